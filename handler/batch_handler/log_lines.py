r"""The form of a log line: text, or one JSON object, for the entrypoint, the workers and the trace exporter.

The frontend writes the same form (LineLayout.java). Where lines go, and which are written at all, is for others to say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

JSON = "json"
MESSAGE_LIMIT = 64 * 1024
"""Characters of a message; CloudWatch takes 256 KB a line."""
IDS_LIMIT = 32
"""Request ids of one line; a batch may have a thousand."""
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""What moves a terminal's cursor, ends a line for some reader, or has no UTF-8. Not tab and newline."""


def line(
    form: str,
    level: str,
    logger: str,
    message: str,
    *,
    seconds: float | None = None,
    ids: Sequence[str] = (),
    fields: Mapping[str, Any] | None = None,
) -> str:
    """One record, without the newline behind it. Whatever a message holds, it cannot pass for another record.

    `seconds` since the epoch, or now; times are UTC with milliseconds (RFC 3339). `ids` are those of the requests that
    it is about. `fields` are added in JSON only. In text, the lines of a message but the first are set in by two spaces.
    """
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    time = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if len(message) > MESSAGE_LIMIT:
        message = f"{message[:MESSAGE_LIMIT]}… ({len(message) - MESSAGE_LIMIT} more characters)"
    if form != JSON:
        return f"{time} {level} {_text(message, _text_ids(ids, message))}"
    entry = {"time": time, "level": level, "logger": logger, "message": message, **_json_ids(ids), **(fields or {})}
    return UNSAFE.sub(_escaped, json.dumps(entry, ensure_ascii=False, separators=(",", ":"), default=str))


def _text(message: str, ids: str) -> str:
    if message.isprintable():
        return message + ids
    first, *others = UNSAFE.sub(_escaped, message.rstrip("\n")).split("\n")
    return "\n  ".join([first + ids, *others])


def _text_ids(ids: Sequence[str], message: str) -> str:
    if not ids or (len(ids) == 1 and ids[0] in message.split()):
        return ""
    return f" id={ids[0]}" if len(ids) == 1 else f" ids={','.join(ids[:IDS_LIMIT])}"


def _json_ids(ids: Sequence[str]) -> dict[str, Any]:
    if not ids:
        return {}
    return {"id": ids[0]} if len(ids) == 1 else {"ids": list(ids[:IDS_LIMIT])}


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
