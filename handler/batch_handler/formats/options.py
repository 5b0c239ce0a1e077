"""What a format must know to read and to write, and nothing of where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batch_handler.request import NOTHING


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How bodies are read.

    ``blank_lines_count`` makes a blank line a bad record (transform jobs join by line) instead of nothing.
    ``fields`` maps payload fields to ``inputs`` or ``parameters.<name>`` for objects without ``inputs``.
    ``limit`` bounds, in bytes, what a compressed container may unfold to. ``numbers`` makes records of numbers: a CSV row
    of them is one, and so is a JSON list of them.
    """

    blank_lines_count: bool = False
    csv_header: bool = False
    fields: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    limit: int = 25 * 1024 * 1024
    numbers: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """How one task's result looks where JSON's own shape cannot be used.

    ``columns`` gives a result's CSV cells (a NumPy vector, or a list of texts and numbers); ``line`` its one line of text.
    """

    columns: Callable[[Any], Any]
    line: Callable[[Any], str]
