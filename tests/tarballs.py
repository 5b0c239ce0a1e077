"""Tar archives that a careful reader refuses, each by what it does to a careless one."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

MIB = 1024 * 1024
Entry = tuple[tarfile.TarInfo, bytes]


def entry(name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE, **fields: object) -> Entry:
    """A member and its bytes; `fields` replace what its header says."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content) if kind == tarfile.REGTYPE else 0
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def packed(*entries: Entry) -> bytes:
    """An archive as Python writes it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def block(name: str, size: int, kind: bytes = tarfile.REGTYPE, form: int = tarfile.GNU_FORMAT) -> bytes:
    """A header alone, which may claim any size, below zero as well."""
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(form)


def padded(content: bytes) -> bytes:
    """To whole blocks."""
    return content + bytes(-len(content) % tarfile.BLOCKSIZE)


def header_of(kind: bytes, size: int, content: bytes) -> bytes:
    """A header about the next member, which claims so many bytes, with these, and a member."""
    return block("@", size, kind) + padded(content) + packed(entry("after"))


def pax(**values: str) -> bytes:
    """Records of an extended header that tarfile would not write itself, and a member."""
    records = b""
    for key, value in values.items():
        body = f" {key.replace('__', '.')}={value}\n".encode()
        length = next(size for size in range(len(body), len(body) + 9) if size == len(body) + len(str(size)))
        records += str(length).encode() + body
    return header_of(tarfile.XHDTYPE, len(records), records)


END = bytes(2 * tarfile.BLOCKSIZE)
ONE = block("first", 1) + padded(b"x")
LONG_NAME = block("@", 1, tarfile.GNUTYPE_LONGNAME) + padded(b"x")
REFUSED: Mapping[str, tuple[Callable[[], bytes], str]] = {
    "a link": (lambda: packed(entry("good"), entry("l", kind=tarfile.SYMTYPE, linkname="good")), "holds a link.*'l'"),
    "a link that leads out": (lambda: packed(entry("l", kind=tarfile.SYMTYPE, linkname="/etc")), "holds a link.*'l'"),
    "a hard link": (lambda: packed(entry("good"), entry("l", kind=tarfile.LNKTYPE, linkname="good")), "holds a link.*'l'"),
    "a hard link that leads out": (lambda: packed(entry("l", kind=tarfile.LNKTYPE, linkname="../x")), "holds a link.*'l'"),
    "a pipe": (lambda: packed(entry("p", kind=tarfile.FIFOTYPE)), "a device.*'p'"),
    "a character device": (lambda: packed(entry("c", kind=tarfile.CHRTYPE)), "a device.*'c'"),
    "a block device": (lambda: packed(entry("b", kind=tarfile.BLKTYPE)), "a device.*'b'"),
    "an unknown kind": (lambda: packed(entry("u", kind=b"Z")), "a device.*'u'"),
    "an absolute name": (lambda: packed(entry("/tmp/evil")), "leads out of it, '/tmp/evil'"),
    "a way up": (lambda: packed(entry("../evil")), "leads out of it, '../evil'"),
    "a way down and up": (lambda: packed(entry("a/../../evil")), "leads out of it, 'a/../../evil'"),
    "a directory above": (lambda: packed(entry("..", kind=tarfile.DIRTYPE)), "leads out of it, '..'"),
    "a name of an extended header that leads out": (lambda: pax(path="../evil"), "leads out of it, '../evil'"),
    "a name with a zero": (lambda: pax(path="a\0b"), "leads out of it"),
    "a name twice": (lambda: packed(entry("model.bin"), entry("model.bin")), "'model.bin' twice"),
    "a name twice in two spellings": (lambda: packed(entry("a/b"), entry("./a//b")), "'./a//b' twice"),
    "a directory and a file of one name": (lambda: packed(entry("a/b"), entry("a")), "'a' twice"),
    "a file and a directory of one name": (lambda: packed(entry("a"), entry("a/b")), "cannot be unpacked: .*/a: "),
    "a long name": (lambda: packed(entry("n" * 256)), "a name of over 255 bytes, 'nnn"),
    "a long name in letters of two bytes": (lambda: packed(entry("ä" * 128)), "a name of over 255 bytes, 'äää"),
    "a long path": (lambda: packed(entry("d/" * 600 + "x")), "a path of over 1,024 bytes, 'd/d/"),
    "very many entries": (lambda: 1_001 * block("./", 0, tarfile.DIRTYPE) + END, "more than 1,000 entries"),
    "very many directories": (
        lambda: packed(*[entry(f"{number}/" + "d/" * 500, kind=tarfile.DIRTYPE) for number in range(2)]),
        "more than 1,000 entries",
    ),
    "a size that the disk has not": (lambda: block("big", 1 << 60) + END, "over 200 times its own size"),
    "zeros": (lambda: packed(entry("zeros", bytes(16 * MIB))), "over 200 times its own size"),
    "zeros behind the end": (lambda: ONE + END + bytes(16 * MIB), "over 200 times its own size"),
    "a size below zero": (lambda: block("less", -1_024) + END, "over 200 times its own size"),
    "a size below zero in an extended header": (lambda: pax(size="-1024"), "over 200 times its own size"),
    "a name of a gigabyte": (lambda: header_of(tarfile.GNUTYPE_LONGNAME, 1 << 30, b""), "impossible length"),
    "a name of less than nothing": (lambda: header_of(tarfile.GNUTYPE_LONGNAME, -1_024, b""), "impossible length"),
    "an extended header of a gigabyte": (lambda: header_of(tarfile.XHDTYPE, 1 << 30, b""), "impossible length"),
    "an extended header of digits": (lambda: header_of(tarfile.XHDTYPE, MIB, b"1" * MIB), "impossible length"),
    "headers about headers": (lambda: 1_000 * LONG_NAME + END, "cannot be unpacked"),
    "a sparse file": (
        lambda: pax(GNU__sparse__map="0,1", GNU__sparse__size=str(1 << 40), GNU__sparse__name="s"),
        "a sparse file",
    ),
    "a sparse file of no numbers": (lambda: pax(GNU__sparse__map="a,b", GNU__sparse__size="1"), "cannot be unpacked"),
    "a number of very many letters": (
        lambda: pax(GNU__sparse__map="x" * 9_000, GNU__sparse__size="1"),
        "cannot be unpacked .{,420}: it",
    ),
    "a file that ends early": (lambda: block("cut", 10_000) + b"x" * 5_000, "cannot be unpacked"),
    "an archive without an end": (lambda: ONE, "no end mark"),
    "a size too small": (lambda: block("less", 1) + b"x" * 2_048 + END, "no end mark"),
    "something behind the end": (lambda: ONE + END + ONE + END, "something stands behind its end"),
    "no archive": (lambda: b"not an archive" * 100, "cannot be unpacked"),
    "nothing": (lambda: b"", "cannot be unpacked"),
}  # fmt: skip
"""What is refused: the archive before compression, and what is said of it where 1,000 entries and 8 MiB are the most."""


def compressed(body: bytes, path: Path) -> Path:
    """As a file that gzip wrote."""
    path.write_bytes(gzip.compress(body))
    return path
