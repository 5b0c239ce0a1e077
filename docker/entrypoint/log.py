"""The entrypoint's own log lines, as config/log4j2.xml writes the frontend's: text, or one JSON object a line."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

LEVELS = ("DEBUG", "INFO", "WARN", "ERROR", "FATAL")
NAME = "byoc.entrypoint"


@dataclass(frozen=True, slots=True)
class Log:
    """Where and how to write; ``level`` is the lowest that is written. Errors are written at every level."""

    format: str = "text"
    level: str = "INFO"

    def debug(self, message: str) -> None:
        """What only a developer of the container wants to read."""
        self._write("DEBUG", message)

    def info(self, message: str, fields: Mapping[str, Any] | None = None) -> None:
        """A step of a normal start or stop; ``fields`` are added in JSON only."""
        self._write("INFO", message, fields)

    def warning(self, message: str) -> None:
        """Something that works, but probably not as intended."""
        self._write("WARN", message)

    def error(self, message: str) -> None:
        """Why the container stops: on stderr, so that it is the last line of either stream."""
        self._write("ERROR", message)

    def _write(self, level: str, message: str, fields: Mapping[str, Any] | None = None) -> None:
        if level != "ERROR" and LEVELS.index(level) < LEVELS.index(self.level):
            return
        stream: TextIO = sys.stderr if level == "ERROR" else sys.stdout
        print(self.line(level, message, fields), file=stream, flush=True)

    def line(self, level: str, message: str, fields: Mapping[str, Any] | None = None) -> str:
        """One log line; times are UTC with milliseconds (RFC 3339)."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self.format == "text":
            return f"{time} {level} {message}"
        entry = {"time": time, "level": level, "logger": NAME, "message": message, **(fields or {})}
        return json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
