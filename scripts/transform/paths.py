"""JSONPath as DataProcessing's filters use it: what a path selects, in the shape in which the platform passes it on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from jsonpath_ng.exceptions import JSONPathError
from jsonpath_ng.jsonpath import Fields, Index, Slice, Wildcard
from jsonpath_ng.parser import parse

_UNION = re.compile(r"^(?P<before>.*)\[(?P<parts>[-\d:,\s]*,[-\d:,\s]*)\]$")
"""Indexes and slices side by side, ``$[0,5:]``, which the library reads only one by one."""


class NothingSelectedError(Exception):
    """The path leads nowhere in this record."""


@dataclass(frozen=True, slots=True)
class Path:
    """A compiled path. ``whole`` is ``$``, which selects everything and costs nothing."""

    text: str
    parts: tuple[Any, ...]
    several: bool
    names: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether this is ``$``."""
        return self.text.strip() == "$"

    def select(self, value: Any) -> Any:
        """What the path selects: the value itself, an object of the named members, or a list.

        Raises NothingSelectedError where a part of the path finds nothing, or one of several names is not there.
        """
        if self.whole:
            return value
        found = [match for part in self.parts for match in self._found(part, value)]
        if not self.several:
            return found[0].value
        if not self.names:
            return [match.value for match in found]
        chosen = {str(match.path.fields[0]): match.value for match in found}
        missing = [name for name in self.names if name not in chosen]
        if missing:
            raise NothingSelectedError(f"{self.text} names {missing[0]!r}, which it has not")
        return chosen

    def _found(self, part: Any, value: Any) -> list[Any]:
        try:
            matches: list[Any] = part.find(value)
        except (TypeError, AttributeError, KeyError, IndexError):
            matches = []
        if not matches:
            raise NothingSelectedError(f"{self.text} selects nothing in it")
        return matches


def compiled(text: str) -> Path:
    """Compile a path. Raises JSONPathError or ValueError for one that is none."""
    stripped = text.strip()
    if not stripped.startswith("$"):
        raise ValueError(text)
    # AWS's pages also write $.['a','b'], with a dot that JSONPath has not.
    written = stripped.replace(".[", "[")
    union = _UNION.match(written)
    if not union:
        part = parse(written)
        return Path(stripped, (part,), _several(part), _names(part))
    parts = tuple(parse(f"{union['before']}[{index.strip()}]") for index in union["parts"].split(","))
    return Path(stripped, parts, True)


def fault(text: str) -> str | None:
    """What is wrong with a path, or None."""
    try:
        compiled(text)
    except (JSONPathError, ValueError):
        return "is no JSONPath of the kind $.name, $['a','b'], $[0,2] or $[1:]"
    except Exception as error:  # noqa: BLE001 -- the library's parser raises plain Exception for some of its faults
        return f"is no JSONPath: {error}"
    return None


def _names(part: Any) -> tuple[str, ...]:
    """The names of a path that ends in several of them and branches nowhere before."""
    last = getattr(part, "right", part)
    before = getattr(part, "left", None)
    named = isinstance(last, Fields) and len(last.fields) > 1 and not (before is not None and _several(before))
    return tuple(last.fields) if named else ()


def _several(part: Any) -> bool:
    """Whether any step of the path may select more than one value."""
    left, right = getattr(part, "left", None), getattr(part, "right", None)
    if left is not None and right is not None:
        return _several(left) or _several(right) or type(part).__name__ == "Descendants"
    if isinstance(part, Fields):
        return len(part.fields) > 1 or part.fields == ("*",)
    if isinstance(part, Index):
        return len(part.indices) > 1
    return isinstance(part, Slice | Wildcard)
