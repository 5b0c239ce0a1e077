"""Checking ``parameters``: a table per task of names, accepted values and words; anything else is the record's error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from batch_handler.errors import invalid_record, quote


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: ``accepts`` completes the sentence "'name' must be …", ``meant`` makes of a value what the model takes."""

    fits: Callable[[Any], bool]
    accepts: str
    meant: Callable[[Any], Any] = lambda value: value


def boolean() -> Parameter:
    """True or false."""
    return Parameter(lambda value: isinstance(value, bool), "true or false")


def whole(low: int, high: int, null: bool = False) -> Parameter:
    """A whole number within bounds, both included; ``null`` where the caller may ask for all."""

    def fits(value: Any) -> bool:
        return value is None if null and value is None else type(value) is int and low <= value <= high

    return Parameter(fits, f"a whole number from {low} to {high}{' or null' if null else ''}")


def number(low: float, high: float) -> Parameter:
    """A number within bounds, both included; JSON has 2 for 2.0, which Hugging Face's rules tell apart."""
    return Parameter(
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high,
        f"a number from {low:g} to {high:g}",
        float,
    )


def one_of(*words: str) -> Parameter:
    """One of these words."""
    return Parameter(lambda value: isinstance(value, str) and value in words, "one of " + ", ".join(words))


def text() -> Parameter:
    """Any text."""
    return Parameter(lambda value: isinstance(value, str), "a text")


def texts(longest: int) -> Parameter:
    """A list of texts, of which there is at least one and at most so many."""
    return Parameter(lambda value: _are_texts(value, longest), f"a list of 1 to {longest} texts")


def text_or_texts(longest: int) -> Parameter:
    """A text, or a list of them."""
    return Parameter(
        lambda value: isinstance(value, str) or _are_texts(value, longest), f"a text or a list of 1 to {longest} texts"
    )


def _are_texts(value: Any, longest: int) -> bool:
    return isinstance(value, list) and 1 <= len(value) <= longest and all(isinstance(member, str) for member in value)


def checked(parameters: Mapping[str, Any], known: Mapping[str, Parameter]) -> Mapping[str, Any]:
    """The parameters as the model takes them. Raises ServiceError (400) for an unknown name or a value that does not fit."""
    for name, value in parameters.items():
        if name not in known:
            raise invalid_record(f"the parameter {quote(name)} is unknown: this model takes {', '.join(sorted(known))}")
        if not known[name].fits(value):
            raise invalid_record(f"the parameter '{name}' must be {known[name].accepts}, not {quote(value)}")
    return {name: known[name].meant(value) for name, value in parameters.items()}
