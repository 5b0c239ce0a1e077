"""application/x-npy (NumPy's format specification, NEP 1): numeric tensors whose first axis counts the records. Never pickle."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from tokenize import TokenError
from typing import Any

import numpy
from numpy.lib import format as specification

from batch_handler.errors import ErrorType, ServiceError, invalid_request
from batch_handler.formats.options import Layout, ReadOptions
from batch_handler.formats.values import Builder
from batch_handler.request import Payload

NUMERIC = "biuf"


def read(body: bytes, options: ReadOptions) -> Payload:
    """One record per entry of the first axis. Raises ServiceError (400) for anything but a whole numeric array."""
    array = load(body)
    builder = Builder(options)
    if array.ndim == 0:
        return builder.payload([builder.leaf(array, None)], many=False)
    return builder.payload([builder.leaf(entry, None) for entry in array], many=True)


def write(payload: Payload, results: Sequence[Any], layout: Layout) -> bytes:
    """All results stacked along a new first axis (no such axis for a lone record).

    Raises the first error among the results, since an array has no place for one, and 406 when shapes differ.
    """
    slots = [slot for node in payload.nodes for slot in node.leaves()]
    arrays = [results[slot] for slot in slots]
    failed = next((array for array in arrays if isinstance(array, ServiceError)), None)
    if failed is not None:
        raise failed
    if len({getattr(array, "shape", None) for array in arrays}) > 1 or any(not hasattr(array, "shape") for array in arrays):
        raise ServiceError(ErrorType.NOT_ACCEPTABLE, "results of different shapes make no array: ask for application/json")
    lone = not payload.many and payload.nodes[0].slot is not None
    buffer = io.BytesIO()
    numpy.save(buffer, arrays[0] if lone else numpy.stack(arrays) if arrays else numpy.empty(0), allow_pickle=False)
    return buffer.getvalue()


def load(body: bytes) -> numpy.ndarray[Any, Any]:
    """A numeric array; the header is checked against the bytes that are there before anything is allocated."""
    buffer = io.BytesIO(body)
    try:
        version = specification.read_magic(buffer)
        readers = {(1, 0): specification.read_array_header_1_0, (2, 0): specification.read_array_header_2_0}
        shape, _, dtype = readers[version](buffer)
    except (ValueError, KeyError, EOFError, SyntaxError, RecursionError, MemoryError, OverflowError, TypeError, TokenError):
        raise invalid_request("the body is not an array in NumPy's npy format (version 1 or 2)") from None
    if dtype.kind not in NUMERIC:
        raise invalid_request(f"the array's type is {dtype.name}: only numbers are read, and nothing is unpickled")
    needed = math.prod(shape) * dtype.itemsize
    if not needed:
        raise invalid_request("the array is empty: send at least one record")
    if any(size < 0 for size in shape) or needed != len(body) - buffer.tell():
        raise invalid_request("the array's header does not fit its data: the body is damaged or incomplete")
    buffer.seek(0)
    try:
        array: numpy.ndarray[Any, Any] = specification.read_array(buffer, allow_pickle=False)
    except ValueError:
        raise invalid_request("the array has more axes than NumPy can hold") from None
    return array
