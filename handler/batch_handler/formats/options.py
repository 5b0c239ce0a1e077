"""What a format must know to read and to write, and nothing of where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batch_handler.request import NOTHING
from batch_handler.settings import DEFAULT_PAYLOAD_MB, MIB


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How bodies are read.

    ``placeholders`` says that answers are joined to the body by line (transform jobs): every physical line is a record of
    its own, blank ones included, and a bad one costs only its place. Without it blank lines are nothing, a quoted CSV
    field may span lines, and reading ends at the first bad line, since that fails the request.
    ``csv_header`` says that the first row names the columns. ``fields`` maps payload fields to ``inputs`` (of objects
    without one) or ``parameters.<name>``.
    ``limit`` bounds, in bytes, what a compressed container may unfold to. ``numbers`` makes records of numbers: a CSV row
    of them is one, and so is a JSON list of them. ``max_records`` bounds what a body may hold. ``streams`` says that the
    task can send its answer in pieces: ``stream`` beside ``inputs`` is then one of its parameters.
    """

    placeholders: bool = False
    csv_header: bool = False
    fields: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    limit: int = DEFAULT_PAYLOAD_MB * MIB
    numbers: bool = False
    max_records: int = 500_000
    streams: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """How one task's result looks where JSON's own shape cannot be used.

    ``columns`` gives a result's CSV cells (a NumPy vector, or a list of texts and numbers); ``line`` its one line of text.
    """

    columns: Callable[[Any], Any]
    line: Callable[[Any], str]
