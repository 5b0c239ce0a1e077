"""Java's properties files, as java.util.Properties.load and store define them (Java SE API, class Properties)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
SEPARATOR = re.compile(r"(?<!\\)(?:\\\\)*([ \t\f]*[=:][ \t\f]*|[ \t\f]+)")
ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


def read(path: Path) -> dict[str, str]:
    """All keys of a file, the last of two equal ones winning. Raises OSError."""
    return dict(_entries(path.read_text("latin-1")))


def render(values: Mapping[str, str]) -> str:
    """The text of a properties file with these values, one a line."""
    return "".join(f"{_escape(key, key=True)}={_escape(value)}\n" for key, value in values.items())


def _entries(text: str) -> Iterator[tuple[str, str]]:
    for line in _logical_lines(text):
        separator = SEPARATOR.search(line)
        key, value = (line[: separator.start(1)], line[separator.end(1) :]) if separator else (line, "")
        yield _unescape(key), _unescape(value)


def _logical_lines(text: str) -> Iterator[str]:
    """Natural lines joined where an odd number of backslashes ends one; comments and blank lines left out."""
    pending = ""
    for natural in re.split(r"\r\n|\n|\r", text):
        line = natural.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped[1:], 16)) if len(escaped) == 5 else ESCAPES.get(escaped, escaped)

    return ESCAPED.sub(character, text)


def _escape(text: str, key: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    text = re.sub(r"([=: \t#!])", r"\\\1", text) if key else re.sub(r"\A([ \t])", r"\\\1", text)
    return "".join(_escape_character(character) for character in text)


def _escape_character(character: str) -> str:
    if ord(character) < 0x7F:
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
