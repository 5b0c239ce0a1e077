"""Bodies and headers that are small or legal, and cost whoever reads them carelessly gigabytes or minutes."""

from __future__ import annotations

import base64
import gzip
import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy

MIB = 1024 * 1024
ROOM = 25 * MIB - 64
"""The largest body by default, less a few bytes for what stands around."""
MANY = ROOM - 100
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Bomb:
    """``body`` builds it. ``statuses`` are those that may answer it: refused, or done within the limits."""

    body: Callable[[], bytes]
    content_type: str = JSON
    statuses: tuple[int, ...] = (400, 413)
    headers: Mapping[str, str] = field(default_factory=dict)


def filled(begin: bytes, piece: bytes, end: bytes = b"") -> Callable[[], bytes]:
    """As many pieces as a body may hold, between a beginning and an end."""
    return lambda: begin + piece * ((ROOM - len(begin) - len(end)) // len(piece)) + end


def zeros_zipped(mebibytes: int) -> bytes:
    """Gzip of so many MiB of nothing, at a thousandth of its size."""
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(mebibytes)) + packer.flush()


def nested_gzip(depth: int = 40) -> bytes:
    """Gzip in gzip, and so on."""
    body = zeros_zipped(16)
    for _ in range(depth):
        body = gzip.compress(body)
    return body


def npy_header(shape: str, dtype: str = "|u1", data: bytes = b"\0" * 64) -> bytes:
    """An array that claims a shape, over a little data."""
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


def npz(size: int, members: int = 1, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Arrays of so many zeros each."""
    array = io.BytesIO()
    numpy.save(array, numpy.zeros((1, size), numpy.uint8))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for number in range(members):
            archive.writestr(f"{number}.npy", array.getvalue())
    return buffer.getvalue()


def npz_that_lies() -> bytes:
    """An archive whose directory claims a few bytes for what unfolds to 64 MiB."""
    body = bytearray(npz(64 * MIB))
    directory = body.rindex(b"PK\x01\x02")
    body[directory + 24 : directory + 28] = struct.pack("<I", 200)
    return bytes(body)


def npz_of_one_member_many_times() -> bytes:
    """A directory of very many entries that all point at the same 4 MiB."""
    body = npz(4 * MIB)
    start, end = body.rindex(b"PK\x01\x02"), body.rindex(b"PK\x05\x06")
    entry, count = body[start:end], 60_000
    closing = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(entry) * count, start, 0)
    return body[:start] + entry * count + closing


def png(width: int, height: int, kind: int = 0, depth: int = 1, extra: bytes = b"") -> bytes:
    """A picture of one colour: a bit a pixel by default, 8,000 of them in a byte of the file."""
    per_pixel = {0: 1, 2: 3, 6: 4}[kind] * depth
    row = bytes(1 + -(-width * per_pixel // 8))
    packer = zlib.compressobj(6)
    rows = min(height, 1 + 64 * MIB // len(row))
    data = b"".join(packer.compress(row) for _ in range(rows)) + packer.flush()
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)), (b"IDAT", data), (b"IEND", b"")]
    pieces = [struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts]
    return b"\x89PNG\r\n\x1a\n" + pieces[0] + extra + b"".join(pieces[1:])


def png_text(mebibytes: int) -> bytes:
    """A tiny picture with compressed text that unfolds to so many MiB."""
    body = b"zTXt" + b"Comment\0\0" + zlib.compress(bytes(mebibytes * MIB), 9)
    return png(8, 8, extra=struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body)))


def jpeg_header(width: int, height: int) -> bytes:
    """The beginning of a JPEG that claims a size."""
    frame = struct.pack(">HHBHHB", 0xFFC0, 17, 8, height, width, 3) + b"\x01\x11\0\x02\x11\0\x03\x11\0"
    return b"\xff\xd8" + frame + struct.pack(">HH", 0xFFDA, 12) + b"\x03\x01\0\x02\0\x03\0\0\x3f\0" + bytes(1_000)


def webp_header(width: int, height: int) -> bytes:
    """The beginning of a WebP that claims a size."""
    sizes = struct.pack("<I", (width - 1) | (height - 1) << 14)
    return b"RIFF" + struct.pack("<I", 1_000) + b"WEBPVP8L" + struct.pack("<I", 988) + b"\x2f" + sizes + bytes(983)


def large_pictures(count: int) -> bytes:
    """A list of the largest picture, 8 KB each time."""
    return b'["' + b'","'.join([base64.b64encode(png(7_000, 7_000))] * count) + b'"]'


READ = (200, 400, 413)
"""What may as well be read, since it is one honest record or many."""
BODIES: dict[str, Bomb] = {
    "gzip of ten times the limit": Bomb(lambda: zeros_zipped(256), headers={"Content-Encoding": "gzip"}, statuses=(413,)),
    "gzip in gzip forty times": Bomb(nested_gzip, headers={"Content-Encoding": "gzip"}),
    "gzip of a million empty members": Bomb(lambda: gzip.compress(b"") * 1_250_000, headers={"Content-Encoding": "gzip"}),
    "gzip of text that fits": Bomb(
        lambda: gzip.compress(filled(b'"', b"a", b'"')()), headers={"Content-Encoding": "gzip"}, statuses=READ
    ),
    "a million open brackets": Bomb(filled(b"", b"["), statuses=(400, 413)),
    "objects a thousand deep": Bomb(lambda: b'{"inputs":' * 1_000 + b"1" + b"}" * 1_000),
    "empty lists": Bomb(filled(b"[", b"[],", b"[]]"), statuses=(413,)),
    "empty lists in inputs": Bomb(filled(b'{"inputs":[', b"[],", b"[]]}"), statuses=(413,)),
    "empty objects": Bomb(filled(b"[", b"{},", b"{}]")),
    "numbers for texts": Bomb(filled(b"[", b"0,", b"0]")),
    "numbers in inputs": Bomb(filled(b'{"inputs":[', b"0,", b"0]}"), statuses=(413,)),
    "one letter a text": Bomb(filled(b"[", b'"a",', b'"a"]'), statuses=(413,)),
    "the same key again and again": Bomb(filled(b'{"inputs":"a"', b',"inputs":"a"', b"}"), statuses=READ),
    "very many keys": Bomb(lambda: b'{"inputs":"a"' + b"".join(b',"%d":0' % n for n in range(1_500_000)) + b"}", statuses=READ),
    "very many parameters": Bomb(
        lambda: b'{"inputs":"a","parameters":{"a":0' + b"".join(b',"%d":0' % n for n in range(1_500_000)) + b"}}"
    ),
    "a number of 25 million digits": Bomb(filled(b'{"inputs":', b"9", b"}")),
    "a fraction of 25 million digits": Bomb(filled(b'{"inputs":0.', b"9", b"}")),
    "a million numbers of 300 digits": Bomb(filled(b'{"inputs":[', b"9" * 300 + b",", b"0]}")),
    "a text of 25 MB": Bomb(filled(b'"', b"a", b'"'), statuses=READ),
    "a text of 25 MB of escapes": Bomb(filled(b'"', b"\\u0000", b'"'), statuses=READ),
    "a text of 25 MB not to be cut": Bomb(filled(b'{"parameters":{"truncation":false},"inputs":"', b"word ", b'"}')),
    "a ligature of eighteen letters": Bomb(filled(b'"', "\ufdfa".encode(), b'"'), statuses=READ),
    "combining marks without end": Bomb(filled(b'"a', "\u0315\u0300".encode(), b'"'), statuses=READ),
    "words of Chinese": Bomb(filled(b'"', "\u6f22".encode(), b'"'), statuses=READ),
    "blanks": Bomb(filled(b'"', b" ", b'"'), statuses=READ),
    "one line of 25 MB": Bomb(filled(b'"', b"a", b'"'), "application/jsonlines", READ),
    "blank lines": Bomb(filled(b"", b"\n"), "application/jsonlines"),
    "lines of brackets": Bomb(filled(b"", b"[" * 1_000 + b"\n"), "application/jsonlines"),
    "empty lists on a line": Bomb(filled(b"[", b"[],", b"[]]"), "application/jsonlines", (413,)),
    "a field of 25 MB": Bomb(filled(b'"', b"a", b'"'), "text/csv", READ),
    "quotes": Bomb(filled(b"", b'"'), "text/csv", READ),
    "open quotes": Bomb(filled(b"", b'"a\n'), "text/csv", READ),
    "newlines in a quoted field": Bomb(filled(b'"', b"\n", b'"'), "text/csv", READ),
    "quotes and newlines in a quoted field": Bomb(filled(b'"', b'""\n', b'"'), "text/csv", READ),
    "blank rows": Bomb(filled(b"", b"\n"), "text/csv"),
    "commas": Bomb(filled(b"", b","), "text/csv"),
    "a header of commas": Bomb(filled(b"", b","), "text/csv; header=present"),
    "lines of a letter": Bomb(filled(b"", b"a\n"), "text/plain", (413,)),
    "text in four bytes a letter": Bomb(lambda: ("a" * 6_000_000).encode("utf-32"), "text/plain; charset=utf-32", READ),
    "text that doubles in UTF-8": Bomb(lambda: ("\u6f22" * 13_000_000).encode("utf-16"), "text/plain; charset=utf-16", READ),
}
ARRAYS: dict[str, Bomb] = {
    "an array of an exabyte": Bomb(lambda: npy_header("(1152921504606846976,)"), "application/x-npy"),
    "an array whose size overflows": Bomb(lambda: npy_header("(4294967296, 4294967296, 4294967296)"), "application/x-npy"),
    "an array of no bytes and many entries": Bomb(lambda: npy_header("(99999999999, 0)", data=b""), "application/x-npy"),
    "an array of very many axes": Bomb(lambda: npy_header("(" + "1," * 20_000 + ")"), "application/x-npy"),
    "a header of brackets": Bomb(lambda: npy_header("(" * 9_000), "application/x-npy"),
    "an array of objects": Bomb(lambda: npy_header("(1,)", "|O", b"cos\nsystem\n(S'true'\ntR."), "application/x-npy"),
    "an array of 25 million entries": Bomb(
        lambda: npy_header(f"({ROOM - 100},)", data=bytes(ROOM - 100)), "application/x-npy", (413,)
    ),
    "an archive of five times the limit": Bomb(lambda: npz(128 * MIB), "application/x-npz", (413,)),
    "an archive of bzip2": Bomb(lambda: npz(64 * MIB, 1, zipfile.ZIP_BZIP2), "application/x-npz", (413,)),
    "an archive that lies about its size": Bomb(npz_that_lies, "application/x-npz"),
    "one member sixty thousand times": Bomb(npz_of_one_member_many_times, "application/x-npz", (413,)),
    "an archive of very many members": Bomb(lambda: npz(1, 20_000), "application/x-npz", READ),
}
PICTURES: dict[str, Bomb] = {
    "a picture of ten thousand million pixels": Bomb(lambda: png(100_000, 100_000), "image/png"),
    "a picture of 64 million pixels": Bomb(lambda: png(8_000, 8_000), "image/png"),
    "the largest picture": Bomb(lambda: png(7_000, 7_000), "image/png", READ),
    "a picture with 96 MiB of text": Bomb(lambda: png_text(96), "image/png", READ),
    "a JPEG of 4,000 million pixels": Bomb(lambda: jpeg_header(65_500, 65_500), "image/jpeg"),
    "a WebP of 268 million pixels": Bomb(lambda: webp_header(16_383, 16_383), "image/webp"),
    "very many large pictures": Bomb(lambda: large_pictures(400), statuses=(413,)),
    "as many large pictures as may be": Bomb(lambda: large_pictures(10), statuses=(200, 504)),
}  # fmt: skip
HEADERS: dict[str, str] = {
    "very many parameters": "application/json" + ';a="b"' * 9_000,
    "open quotes": "application/json" + ';a="' * 12_000,
    "backslashes": 'application/json;a="' + "\\" * 50_000,
    "continuations": "application/json" + "".join(f";a*{number}*=%41" for number in range(4_000)),
    "semicolons": "application/json" + ";" * 50_000,
    "blanks": "application/json;" + " " * 50_000 + "x",
    "very many ranges": ",".join(f"a/{number};q=0.5" for number in range(4_000)),
    "weights": "a/b" + ";q=.5" * 10_000,
    "commas": "," * 60_000,
    "a word without end": "a" * 60_000,
}
