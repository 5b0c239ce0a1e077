"""A script's results as bytes: what is bytes or text already goes out as it is, every other object is written here."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy
import orjson
from sagemaker_inference import content_types

from batch_handler.errors import ErrorType, ServiceError
from batch_handler.formats import BY_MEDIA_TYPE

JSON: str = content_types.JSON
OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def as_bytes(result: Any, accept: str) -> tuple[bytes, str]:
    """A body and its media type. A result that `accept` has no form for is JSON.

    Raises ServiceError (500) for an object that JSON has no word for.
    """
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], str) and "/" in result[1]:
        result, accept = result
    if isinstance(result, bytes | bytearray | memoryview):
        return bytes(result), accept
    if isinstance(result, str):
        return result.encode("utf-8", "replace"), accept
    name = accept.partition(";")[0].strip().lower()
    write = WRITERS.get(name)
    body = write(result) if write else None
    return (as_json(result), JSON) if body is None else (body, accept)


def as_json(value: Any) -> bytes:
    """Compact UTF-8 without NaN: NumPy and torch as lists, bytes as text, any key as text.

    Raises ServiceError (500).
    """
    try:
        return orjson.dumps(value, _listed, OPTIONS)
    except orjson.JSONEncodeError:
        pass  # keys, numbers or texts that only the slower way can write
    try:
        return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        kind = type(value).__name__
        raise ServiceError(ErrorType.MODEL_ERROR, f"the script's result ({kind}) cannot be written as JSON") from None


def plain(value: Any) -> Any:
    """The value out of nothing but JSON's own types."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, bool | int) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_key(key): plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(member) for member in value]
    return orjson.loads(orjson.dumps(value, _listed, OPTIONS))  # arrays, dates, enumerations and the like


def array(value: Any) -> numpy.ndarray[Any, Any] | None:
    """A tensor, an array or nested lists of numbers as an array; None for anything else."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    try:
        found = numpy.asarray(value)
    except (ValueError, TypeError, RuntimeError):
        return None
    return found if found.dtype.kind in "biufU" and found.size else None


def as_npy(value: Any) -> bytes | None:
    """NumPy's format, without pickle; None for what is no array."""
    found = array(value)
    if found is None or found.dtype.kind == "U":
        return None
    buffer = io.BytesIO()
    numpy.save(buffer, found, allow_pickle=False)
    return buffer.getvalue()


def as_csv(value: Any) -> bytes | None:
    """One row per entry of the first axis; None for what has not one or two axes."""
    found = array(value)
    if found is None or found.ndim > 2:
        return None
    rows: list[Any] = numpy.atleast_1d(found).tolist()
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerows([row if isinstance(row, list) else [row] for row in rows])
    return buffer.getvalue().removesuffix("\n").encode("utf-8", "replace")


def as_json_lines(value: Any) -> bytes | None:
    """One line per member of a list; None for anything else."""
    return b"\n".join(as_json(member) for member in value) if isinstance(value, list | tuple) else None


BY_FORMAT: Mapping[str, Callable[[Any], bytes | None]] = {"json_lines": as_json_lines, "csv": as_csv, "npy": as_npy}
WRITERS = {media_type: BY_FORMAT[form.name] for media_type, form in BY_MEDIA_TYPE.items() if form.name in BY_FORMAT}


def _listed(value: Any) -> Any:
    """What orjson does not know: anything with ``tolist``, sets, other mappings and sequences, bytes as text."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    if hasattr(value, "detach"):
        return value.detach().cpu().tolist()
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple) or (isinstance(value, Sequence) and not isinstance(value, str)):
        return list(value)
    if hasattr(value, "__fspath__") or isinstance(value, complex):
        return str(value)
    if hasattr(value, "__float__"):
        return float(value)
    raise TypeError(type(value).__name__)


def _key(key: Any) -> str:
    """A key as JSON would spell it."""
    if isinstance(key, bytes):
        return key.decode("utf-8", "replace")
    if key is None or isinstance(key, bool | numpy.bool_):
        return {None: "null", True: "true", False: "false"}[bool(key) if key is not None else None]
    return str(key.value if isinstance(key, Enum) else key).encode("utf-8", "replace").decode()
