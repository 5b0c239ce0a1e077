"""The table of targets: a name, what must hold for any bytes, and what to begin with. Their corpus lies beside it."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy

from fuzz import bodies, wire

CORPUS = Path(__file__).parent / "corpus"
LONG = 4_096


@dataclass(frozen=True, slots=True)
class Target:
    """``run`` raises for bytes that break what must hold. ``seeds`` are inputs of the right form, ``longest`` in bytes.

    ``words`` are pieces of the format, which no search would find byte by byte.
    """

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()
    longest: int = 256


def _array(shape: tuple[int, ...], dtype: str) -> bytes:
    buffer = io.BytesIO()
    numpy.save(buffer, numpy.zeros(shape, dtype))
    return buffer.getvalue()


def _archive(compression: int, *names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name in names:
            archive.writestr(f"{name}.npy", _array((2, 1), "<f4"))
    return buffer.getvalue()


def _each(*seeds: bytes) -> tuple[bytes, ...]:
    """The seeds under every choice of options."""
    return tuple(bytes([choice]) + seed for seed in seeds for choice in range(len(bodies.OPTIONS)))


WORDS = (b'"inputs"', b'"instances"', b'"parameters"', b'"stream"', b'"text"', b'"k"', b"true", b"null", b"1e308", b'"\\ud83d"')
VALUES = (
    b'"a"',
    b'["a", "b"]',
    b'{"inputs": ["a"], "parameters": {"top_k": 2}, "id": 7}',
    b'{"instances": ["a", {"inputs": "b"}]}',
    b"[[1, 2.5e3], [-0, 18446744073709551616]]",
    b'{"text": "a", "k": 1, "stream": true}',
    b'[{"role": "user", "content": "a"}]',
)
HEADERS = (b"application/json", b"text/csv; header=present", b"charset=utf-16", b"*/*;q=0.5", b", ", b"; q=1", b"gzip", b"x-npy")
ARRAYS = (_array((2, 3), "<f4"), _array((), "<f8"), _array((4,), "|u1"), _array((1, 2, 2), ">i2"), _array((2,), "|b1"))
ZIPPED = gzip.compress(b"a" * 99, mtime=0)
MESSAGE = b"\0I" + bytes.fromhex("00000001610000000162000000016300000000ffffffff")
TARGETS: Mapping[str, Target] = {
    "json": Target(bodies.BODIES["json"], _each(*VALUES, b"\n".join(VALUES)), WORDS),
    "json_lines": Target(bodies.BODIES["json_lines"], _each(b"\n".join(VALUES), b'"a"\r\n\n{\n"b"\n'), WORDS),
    "csv": Target(
        bodies.BODIES["csv"],
        _each(b'"a, ""b"""\r\n"two\nlines"\n', b"inputs,id\na,1\nb,2\n", b"1,2.5\n-3,nan\n", b'open,"\n"'),
        (b'""', b'","', b"\r\n", b'"\n"'),
    ),
    "text": Target(bodies.BODIES["text"], _each(b"a\r\nb\n\nc", b"\xef\xbb\xbfa\n\xff\n"), (b"\xef\xbb\xbf", b"\xe2\x80\xa8")),
    "npy": Target(
        bodies.BODIES["npy"],
        tuple(b"\0" + array for array in ARRAYS),
        (b"'descr'", b"'shape': (", b"'fortran_order': True", b"<f8"),
    ),
    "npz": Target(
        bodies.BODIES["npz"],
        tuple(b"\0" + _archive(kind, "a", "b") for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)),
        (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06"),
        LONG,
    ),
    "script": Target(
        bodies.script_input,
        tuple(bytes([kind]) + body for kind, body in enumerate((b"[[1, 2], [3, 1e3]]", b"1,2\n3,4\n", ARRAYS[0]))),
        (b"Infinity", b"NaN", b"1e999", b"true", b"null"),
    ),
    "negotiated": Target(
        wire.negotiated,
        (
            b"a\napplication/json; charset=utf-8\napplication/jsonlines;q=0.5, */*;q=0.1",
            b'b\ntext/csv; header="present"\ntext/html, image/gif, *; q=.2',
            b"c\nimage/png\napplication/x-npy;q=0, text/event-stream",
        ),
        HEADERS,
    ),
    "inflated": Target(
        wire.inflated, (gzip.compress(b"a"), gzip.compress(b"") * 2, gzip.compress(b"a" * 99)[:-4]), (b"\x1f\x8b\x08",)
    ),
    "compressed": Target(wire.compressed, (b"\0", b"\xff" + b"a" * 40, b"\x0aabc")),
    "picture": Target(wire.picture, tuple(wire.samples()), (b"IHDR", b"IDAT", b"acTL", b"Exif\0\0", b"VP8X"), LONG),
    "picture_text": Target(
        wire.picture_text, (b"data:image/png;base64,iVBORw0KGgo=", b"https://a/b", b" iVBO\nRw0K "), (b"base64,", b"data:")
    ),
    "message": Target(
        wire.message,
        (b"\0I" + bytes.fromhex("00000001610000000162000000016300000000ffffffff"),),
        (b"\xff\xff\xff\xff", b"\0\0\0\4body"),
    ),
    "batch": Target(wire.batch, (b"\x02name\nvalue\nid\nbody\nother\n\n\n",)),
    "request": Target(
        wire.request,
        tuple(
            b"\n".join((b"a" * choice, kind, accept, coding, body))
            for choice in range(3)
            for kind, accept, coding, body in (
                (b"application/json", b"text/csv", b"", VALUES[2]),
                (b"application/jsonlines; charset=utf-8", b"", b"gzip", gzip.compress(VALUES[0] + b"\n" + VALUES[2], mtime=0)),
                (b"text/csv", b"application/jsonlines, */*;q=0.1", b"identity", b"text,id\na,1\n"),
                (b"application/x-npy", b"application/json", b"", ARRAYS[0]),
            )
        ),
        (*WORDS, *HEADERS),
        LONG,
    ),
}


def kept(name: str) -> list[bytes]:
    """The corpus of a target: inputs that once reached something new, or broke something."""
    path = CORPUS / f"{name}.zip"
    if not path.exists():
        return []
    with zipfile.ZipFile(path) as archive:
        return [archive.read(member) for member in archive.namelist()]
