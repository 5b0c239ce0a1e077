"""JSON values whose integers may have any size: orjson reads those beyond 64 bits as floats and refuses to write them.

Everything else is orjson's: what it refuses stays refused, and a value without such integers takes no other path.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

SMALLEST = -(2**63)
LARGEST = 2**64 - 1
"""What orjson reads and writes as an integer."""
LONG = b"0" * 19
"""The fewest digits that an integer beyond these bounds has, as `_DIGITS` shows them."""
_DIGITS = bytes(ord("0") if chr(byte) in "0123456789" else ord(" ") for byte in range(256))
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def loads(body: bytes, numbers: bool = False) -> Any:
    """The value of a strict JSON document; with `numbers` lists are arrays, whose large integers become floats.

    Raises orjson.JSONDecodeError.
    """
    value = orjson.loads(body)  # first, since the standard library is laxer: NaN, 1e999 and lone surrogates end here
    if LONG not in body.translate(_DIGITS):
        return value
    try:
        exact = json.loads(body.decode("utf-8"))
        return _rounded(exact) if numbers else exact
    except RecursionError:  # nested less deeply than orjson's limit, but far more deeply than a record may be
        return value


def dumps(value: Any) -> bytes:
    """Compact UTF-8; NumPy arrays as they are, NaN and infinities as null. Raises orjson.JSONEncodeError."""
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except orjson.JSONEncodeError:
        return orjson.dumps(_spelled(value), option=_OPTIONS)


def _rounded(value: Any, listed: bool = False) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item, listed) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item, listed=True) for item in value]
    return float(value) if listed and _large(value) else value


def _large(value: Any) -> bool:
    return isinstance(value, int) and not SMALLEST <= value <= LARGEST


def _spelled(value: Any) -> Any:
    """The value with its large integers already written."""
    if _large(value):
        return orjson.Fragment(str(value))
    if isinstance(value, dict):
        return {key: _spelled(item) for key, item in value.items()}
    return [_spelled(item) for item in value] if isinstance(value, list | tuple) else value
