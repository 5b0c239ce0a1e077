"""image/*: the body is one picture, which stays as it came; decoding it belongs to the tasks that look at pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from batch_handler.errors import ErrorType, ServiceError
from batch_handler.formats.options import Layout, ReadOptions
from batch_handler.formats.values import Builder
from batch_handler.request import Payload

MEDIA_TYPES: Mapping[str, str] = {"image/jpeg": "JPEG", "image/png": "PNG", "image/webp": "WEBP"}
"""Registered media types and Pillow's names for what they hold."""


def read(body: bytes, options: ReadOptions) -> Payload:
    """One record: the bytes."""
    builder = Builder(options)
    return builder.payload([builder.leaf(body, None)], many=False)


def write(payload: Payload, results: Sequence[Any], layout: Layout) -> NoReturn:
    """No task's answer is a picture: raises ServiceError (406)."""
    raise ServiceError(ErrorType.NOT_ACCEPTABLE, "no answer is written as a picture: accept application/json")
