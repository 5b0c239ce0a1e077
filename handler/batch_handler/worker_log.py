"""Everything that a worker says as log records: logging, warnings, prints, tracebacks, with the ids of the requests at work.

A worker's output is a pipe to the frontend, which TorchServe reads line by line. A record goes through it as one line, in
its final form behind a mark that only the two ends know, so that no text that a program prints can pass for a record; what
is written past Python, or by a foreign handler, comes without the mark and gets its form from the frontend.
"""

from __future__ import annotations

import io
import logging
import re
import sys
import threading
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, BinaryIO

from batch_handler import log_lines
from batch_handler.artefact import ArtefactError
from batch_handler.errors import ServiceError
from batch_handler.internal import LOG_MARK
from batch_handler.settings import TABLE, SettingError

SIGN = "\x1e"
"""Begins a marked line."""
NEWLINE = "\x1f"
"""Stands for a newline within one."""
LINE_ENDS = re.compile(r"\r\n|\r|\n")
LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL"}
PENDING_LIMIT = log_lines.MESSAGE_LIMIT
OF_TORCHSERVE = ("model_service_worker", "otf_message_handler", "service", "model_loader")

_asked: ContextVar[tuple[str, ...]] = ContextVar("asked", default=())


@contextmanager
def about(ids: Sequence[str]) -> Iterator[None]:
    """Within it, what this thread logs or prints carries these request ids."""
    token = _asked.set(tuple(ids))
    try:
        yield
    finally:
        _asked.reset(token)


def install(environment: MutableMapping[str, str]) -> bool:
    """Send all that Python code says through records, where the frontend of this project reads them.

    Takes the mark out of `environment`: no other program needs it. Levels are those of SAGEMAKER_CONTAINER_LOG_LEVEL.
    False where nobody reads marked lines, and then all stays as it was.
    """
    mark = environment.pop(LOG_MARK, None)
    if mark is None:
        return False
    form = environment.get(*_setting("log_format"))
    level = TABLE["log_level"].parse(environment.get(*_setting("log_level")))
    output = Output(sys.stdout.buffer, SIGN + mark, form)
    output.addFilter(_worth_telling)
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(_number(level))
    for chatty in ("ts", "PIL", "matplotlib", "numba"):  # their own developers' lines
        logging.getLogger(chatty).setLevel(max(_number(level), logging.WARNING))
    logging.captureWarnings(capture=True)
    sys.stdout = Printed(sys.stdout, output, "stdout", logging.INFO)
    sys.stderr = Printed(sys.stderr, output, "stderr", logging.WARNING)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    return True


class Output(logging.Handler):
    """Writes each record as one marked line, whole."""

    def __init__(self, pipe: BinaryIO, mark: str, form: str) -> None:
        super().__init__()
        self._pipe = pipe
        self._mark = mark
        self._form = form

    def emit(self, record: logging.LogRecord) -> None:
        """Write it; a frontend that is gone is no reason to fail."""
        try:
            self._pipe.write(f"{self._mark}{self._line(record)}\n".encode("utf-8", "backslashreplace"))
            self._pipe.flush()
        except (OSError, ValueError):
            return
        except Exception:  # noqa: BLE001 - a message whose arguments do not fit it is no reason to fail either
            self.handleError(record)

    def _line(self, record: logging.LogRecord) -> str:
        message = "\n".join(part for part in (record.getMessage(), self._trace(record)) if part)
        level = LEVELS.get(record.levelname, record.levelname)
        line = log_lines.line(self._form, level, record.name, message, seconds=record.created, ids=_asked.get())
        return line.replace("\n", NEWLINE)

    @staticmethod
    def _trace(record: logging.LogRecord) -> str:
        formatter = logging.Formatter()
        trace = formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
        return trace + (formatter.formatStack(record.stack_info) if record.stack_info else "")


class Printed(io.TextIOBase):
    """Takes the place of stdout or stderr: every line that is printed is a record."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, original: Any, output: logging.Handler, name: str, level: int) -> None:
        self._original = original
        self._output = output
        self._name = name
        self._level = level
        self._own = threading.local()

    @property
    def buffer(self) -> Any:
        """The bytes below, whose lines come without a mark."""
        return self._original.buffer

    def fileno(self) -> int:
        """That of the stream whose place it takes."""
        number: int = self._original.fileno()
        return number

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Take what is printed; a line is told once it is whole. A progress bar's carriage return ends one too."""
        *whole, rest = LINE_ENDS.split(getattr(self._own, "pending", "") + text)
        for line in whole:
            self._tell(line)
        if len(rest) > PENDING_LIMIT:
            self._tell(rest)
            rest = ""
        self._own.pending = rest
        return len(text)

    def _tell(self, line: str) -> None:
        # Past the loggers: a user's own handler may print what it is given.
        if line.strip() and logging.getLogger().isEnabledFor(self._level):
            self._output.handle(logging.LogRecord(self._name, self._level, "", 0, line, None, None))


def _worth_telling(record: logging.LogRecord) -> bool:
    """Not what TorchServe's worker loop says of every start, nor its traceback of an error that was told as a sentence."""
    if record.name != "root" or record.module not in OF_TORCHSERVE or record.levelno >= logging.CRITICAL:
        return True
    error = record.exc_info[1] if record.exc_info else None
    return record.levelno >= logging.WARNING and not isinstance(error, SettingError | ArtefactError | ServiceError)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger("uncaught").critical("the worker ends on an exception", exc_info=(kind, error, trace))


def _uncaught_in_thread(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_value is not None and arguments.exc_type is not SystemExit:
        name = arguments.thread.name if arguments.thread else "?"
        information = (arguments.exc_type, arguments.exc_value, arguments.exc_traceback)
        logging.getLogger("uncaught").error("the thread %s ended on an exception", name, exc_info=information)


def _setting(name: str) -> tuple[str, str]:
    """A setting's variable, as the entrypoint spells it, and its default."""
    return TABLE[name].variables[0], TABLE[name].default


def _number(level: str) -> int:
    return int(logging.getLevelNamesMapping()[level])
