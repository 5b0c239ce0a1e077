"""Media types: bytes to records and results to bytes, one file per format, and the table that finds them.

Formats know nothing of models. A format's ``read`` never raises for a single bad record: the error takes the record's place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sagemaker_inference import content_types

from batch_handler.formats import csv, images, json, json_lines, npy, npz, text
from batch_handler.formats.options import Layout, ReadOptions
from batch_handler.request import Payload

__all__ = ["BY_MEDIA_TYPE", "FORMATS", "NUMBERS", "TEXTUAL", "WRITABLE", "Format", "Layout", "ReadOptions"]

NUMBERS = "numbers"


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write records and results as bytes.

    ``holds`` is what a record is when it was read: any JSON ``value``, a ``text``, a ``tensor`` or an ``image``.
    ``rows`` says that ReadOptions may make it rows of ``numbers`` as well.
    """

    name: str
    media_types: tuple[str, ...]
    holds: str
    read: Callable[[bytes, ReadOptions], Payload]
    write: Callable[[Payload, Sequence[Any], Layout], bytes]
    rows: bool = False

    def suits(self, holds: Collection[str]) -> bool:
        """Whether a task that takes such records can take this format."""
        return self.holds in holds or (self.rows and NUMBERS in holds)

    def announced(self, parameters: Mapping[str, str]) -> Format:
        """This format as the parameters of a Content-Type narrow it: ``header`` is known to text/csv (RFC 4180, section 3)."""
        header = CSV_HEADER.get(parameters.get("header", "").lower())
        if header is None or self.read is not csv.read:
            return self
        return replace(self, read=lambda body, options: csv.read(body, replace(options, csv_header=header)))


CSV_HEADER: Mapping[str, bool] = {"present": True, "absent": False}
FORMATS: tuple[Format, ...] = (
    Format("json", (content_types.JSON,), "value", json.read, json.write),
    Format(
        "json_lines",
        ("application/jsonlines", "application/x-jsonlines", "application/jsonl", "application/x-ndjson"),
        "value",
        json_lines.read,
        json_lines.write,
    ),
    Format("csv", (content_types.CSV, "application/csv"), "text", csv.read, csv.write, rows=True),
    Format("text", ("text/plain",), "text", text.read, text.write),
    Format("npy", (content_types.NPY,), "tensor", npy.read, npy.write),
    Format("npz", (content_types.NPZ,), "tensor", npz.read, npz.write),
    Format("images", tuple(images.MEDIA_TYPES), "image", images.read, images.write),
)
BY_MEDIA_TYPE: Mapping[str, Format] = {media_type: form for form in FORMATS for media_type in form.media_types}
WRITABLE: Sequence[str] = [name for name, form in BY_MEDIA_TYPE.items() if form.write not in (npz.write, images.write)]
TEXTUAL = ("value", "text")
"""What bodies of text hold, which a charset may be told for."""
