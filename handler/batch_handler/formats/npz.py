"""application/x-npz: several named npy arrays in a zip file; a record holds the entries of all of them at one place."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any, NoReturn

from batch_handler.errors import ErrorType, ServiceError, invalid_request
from batch_handler.formats import npy
from batch_handler.formats.options import Layout, ReadOptions
from batch_handler.formats.values import Builder
from batch_handler.request import Payload
from batch_handler.settings import MIB

MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
"""How NumPy tells an archive: by its first member, or by its end where it has none."""


def read(body: bytes, options: ReadOptions) -> Payload:
    """Record i is ``{name: array[i]}``. Raises ServiceError: 400 for a broken archive, 413 beyond the size limit."""
    if not body.startswith(MAGIC):  # zipfile looks for an archive's end alone, and takes whatever stands before it
        raise invalid_request("the body is not an npz archive")
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            if sum(member.file_size for member in archive.infolist()) > options.limit:
                megabytes = options.limit // MIB
                raise ServiceError(ErrorType.PAYLOAD_TOO_LARGE, f"the arrays unfold to more than the limit of {megabytes} MB")
            arrays = {member.filename.removesuffix(".npy"): npy.load(_content(archive, member)) for member in archive.infolist()}
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError, OSError):
        raise invalid_request("the body is not a readable npz archive: it is damaged, encrypted or incomplete") from None
    if not arrays or any(array.ndim == 0 for array in arrays.values()):
        raise invalid_request("an npz archive needs arrays whose first axis counts the records")
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        raise invalid_request(f"the arrays hold different numbers of records: {counts}")
    builder = Builder(options)
    total = next(iter(counts.values()))
    nodes = [builder.leaf({name: array[i] for name, array in arrays.items()}, None) for i in range(total)]
    return builder.payload(nodes, many=True)


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """What a member holds, and no more of it than the directory says: that may lie, and ZipFile.read unfolds it whole.

    Raises BadZipFile for a compression that NumPy does not write: the readers of the others know no bound.
    """
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile
    with archive.open(member) as unfolded:
        return unfolded.read(member.file_size + 1)


def write(payload: Payload, results: Sequence[Any], layout: Layout) -> NoReturn:
    """No task's answer is several arrays: raises ServiceError (406)."""
    raise ServiceError(ErrorType.NOT_ACCEPTABLE, "no answer is written as application/x-npz: accept application/x-npy")
