"""What the runner must know of media types: where a record ends, and how a record that failed looks in an answer."""

from __future__ import annotations

JSON = "application/json"
JSON_LINES = "application/jsonlines"
CSV = "text/csv"
TEXT = "text/plain"
PROCESSED = (JSON, JSON_LINES, CSV)
"""The kinds whose records can be filtered and joined."""
LINES = (JSON_LINES, CSV, TEXT)
"""The kinds that hold one record on each line, however they are split."""
_ALIASES = {
    "application/x-jsonlines": JSON_LINES,
    "application/jsonl": JSON_LINES,
    "application/x-ndjson": JSON_LINES,
    "application/csv": CSV,
}


def kind(media_type: str | None) -> str:
    """The type without its parameters, under its usual name; empty when there is none."""
    bare = (media_type or "").partition(";")[0].strip().lower()
    return _ALIASES.get(bare, bare)
