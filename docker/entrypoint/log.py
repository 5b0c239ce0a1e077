"""The entrypoint's own log lines; their form is everybody's, of batch_handler.log_lines."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TextIO

from batch_handler import log_lines
from batch_handler.settings import TABLE

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
        """One log line."""
        return log_lines.line(self.format, level, NAME, message, fields=fields)

    def uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """For sys.excepthook: a fault of ours, with its traceback in one record."""
        told = "".join(traceback.format_exception(kind, error, trace))
        self.error(f"the entrypoint failed: {kind.__name__}\n{told}")


def provisional(environment: Mapping[str, str]) -> Log:
    """The log until all settings are known to be good: a bad one is told in the form that was asked for."""
    asked = environment.get(TABLE["log_format"].variables[0], "").strip().lower()
    return Log(log_lines.JSON if asked == log_lines.JSON else "text")
