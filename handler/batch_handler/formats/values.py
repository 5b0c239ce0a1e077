"""The payload forms that JSON values can take, shared by every format that holds such values.

A value is a text, a list, ``{"inputs": …, "parameters": {…}}`` or ``{"instances": […]}``; other keys go back with the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from batch_handler.errors import ErrorType, ServiceError, invalid_record, quote
from batch_handler.formats.options import ReadOptions
from batch_handler.request import NOTHING, Node, Payload, Record

EXPECTED = "send a text, a list of texts, or an object with the key 'inputs'"
OUTPUT_KEY = "output"
STREAM = "stream"
DEPTH_LIMIT = 64
VALUES_PER_RECORD = 4


def too_many(most: int) -> ServiceError:
    """The error of a body that holds more records than one request may."""
    message = f"the body holds more than {most:,} records: send fewer at once, or raise BYOC_MAX_RECORDS"
    return ServiceError(ErrorType.PAYLOAD_TOO_LARGE, message)


def check_values(text: bytes, options: ReadOptions) -> None:
    """Raises ServiceError (413) for JSON of more lists, objects or texts than so many records need: a short one takes
    twenty times its bytes once it is read, and an empty list is no record that would count.
    """
    most = VALUES_PER_RECORD * options.max_records
    if text.count(b"[") + text.count(b"{") > most or text.count(b'"') > 2 * most:
        raise too_many(options.max_records)


class Builder:
    """Collects a request's records while its values are walked; a value that cannot be read leaves an error in its place."""

    def __init__(self, options: ReadOptions) -> None:
        self.records: list[Record | ServiceError] = []
        self.failed = False
        self.numbers = options.numbers
        self._fields = options.fields
        self._most = options.max_records
        self._streams = options.streams
        self._placeholders = options.placeholders

    def value(self, value: Any, line: int | None = None) -> Node:
        """Read one value; ``line`` is its physical line in line formats, else records count through the body."""
        if isinstance(value, list | dict) and _deeper(value, DEPTH_LIMIT):
            message = f"lists and objects are nested more than {DEPTH_LIMIT} levels deep: {EXPECTED}"
            return self.failure(invalid_record(message), line)
        return self._value(value, line)

    def members(self, values: Sequence[Any]) -> list[Node]:
        """Read each value, up to the first bad one where that fails the request."""
        self._count(values)
        return list(self._up_to_the_first_bad(self.value(member) for member in values))

    def _count(self, values: Sequence[Any]) -> None:
        """Each member is a record at least, or nothing: half a million need not be made to find that they are too many."""
        if len(values) > self._most:
            raise too_many(self._most)

    def _up_to_the_first_bad(self, nodes: Iterator[Node]) -> Iterator[Node]:
        for node in nodes:
            yield node
            if self.failed and not self._placeholders:
                return

    def _value(self, value: Any, line: int | None) -> Node:
        if isinstance(value, str) or (self.numbers and _is_array(value)):
            return self.leaf(value, line)
        if isinstance(value, list):
            self._count(value)
            return Node(children=tuple(self._up_to_the_first_bad(self._value(member, line) for member in value)))
        if isinstance(value, dict):
            return self._object(value, line)
        return self.failure(invalid_record(f"a record cannot be {_kind(value)}: {EXPECTED}"), line)

    def is_vector(self, value: Any) -> bool:
        """Whether a list is one record of numbers; a list of lists is as many records as it has members."""
        return self.numbers and isinstance(value, list) and _is_array(value) and not isinstance(value[0], list)

    def leaf(self, inputs: Any, line: int | None, parameters: Mapping[str, Any] = NOTHING) -> Node:
        """Add one record."""
        return self._added(Record(inputs, self._number(line), parameters))

    def failure(self, error: ServiceError, line: int | None, extras: Mapping[str, Any] = NOTHING) -> Node:
        """Add an error in a record's place."""
        self.failed = True
        return self._added(error.at(self._number(line)), extras)

    def payload(self, nodes: Sequence[Node], many: bool) -> Payload:
        """All that was read."""
        return Payload(self.records, nodes, many)

    def _added(self, record: Record | ServiceError, extras: Mapping[str, Any] = NOTHING) -> Node:
        if len(self.records) >= self._most:
            raise too_many(self._most)
        self.records.append(record)
        return Node(slot=len(self.records) - 1, extras=extras)

    def _number(self, line: int | None) -> int:
        return len(self.records) + 1 if line is None else line

    def _object(self, value: dict[str, Any], line: int | None) -> Node:
        if not self._fields.keys().isdisjoint(value):
            value = self._mapped(value)
        if self._streams and STREAM in value:
            value = _with_stream(value)
        carriers = [key for key in ("inputs", "instances") if key in value]
        if len(carriers) != 1:
            named = "with both 'inputs' and 'instances'" if carriers else _keys(value)
            return self.failure(invalid_record(f"an object {named} is no record: {EXPECTED}"), line)
        parameters = value.get("parameters")
        extras = {key: item for key, item in value.items() if key not in ("inputs", "instances", "parameters")} or NOTHING
        if parameters is not None and not isinstance(parameters, dict):
            error = invalid_record(f"'parameters' must be an object, not {_kind(parameters)}")
            return self.failure(error, line, extras)
        carried = value[carriers[0]]
        if carriers[0] == "instances" and not isinstance(carried, list):
            return self.failure(invalid_record("'instances' must be a list of records"), line, extras)
        if isinstance(carried, list) and not _chat(carried) and not (carriers[0] == "inputs" and self.is_vector(carried)):
            self._count(carried)
            members = (self._member(item, line, parameters or NOTHING) for item in carried)
            return Node(children=tuple(self._up_to_the_first_bad(members)), extras=extras)
        leaf = self.leaf(carried, line, parameters or NOTHING)
        return Node(slot=leaf.slot, extras=extras) if extras else leaf

    def _member(self, item: Any, line: int | None, parameters: Mapping[str, Any]) -> Node:
        if isinstance(item, dict) and ("inputs" in item or not self._fields.keys().isdisjoint(item)):
            return self._object({"parameters": dict(parameters), **item}, line)
        return self.leaf(item, line, parameters)

    def _mapped(self, value: dict[str, Any]) -> dict[str, Any]:
        """The object with its fields under the names they stand for; a mapped parameter wins over the same one given plainly."""
        carried = "inputs" in value or "instances" in value
        mapped: dict[str, Any] = {}
        parameters: dict[str, Any] = {}
        for key, item in value.items():
            target = self._fields.get(key)
            if target is None or (target == "inputs" and carried):
                mapped[key] = item
            elif target == "inputs":
                mapped["inputs"] = item
            else:
                parameters[target.removeprefix("parameters.")] = item
        plain = mapped.get("parameters")
        if not parameters or not (plain is None or isinstance(plain, dict)):
            return mapped
        return {**mapped, "parameters": {**(plain or {}), **parameters}}


def _with_stream(value: Mapping[str, Any]) -> dict[str, Any]:
    """The object with ``stream`` among its parameters, where the same one given there wins."""
    rest = {key: item for key, item in value.items() if key != STREAM}
    parameters = rest.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        return rest
    return {**rest, "parameters": {STREAM: value[STREAM], **(parameters or {})}}


def render(node: Node, results: Sequence[Any]) -> Any:
    """One value of the answer: results in the places of their records, with the caller's own keys."""
    if node.slot is None:
        value: Any = [render(child, results) for child in node.children]
    else:
        value = results[node.slot]
        if isinstance(value, ServiceError):
            value = value.as_object()
    if not node.extras:
        return value
    return {**node.extras, **(value if isinstance(value, dict) else {OUTPUT_KEY: value})}


def separate(payload: Payload) -> Sequence[Node]:
    """The values that stand on lines of their own: a lone ``{"inputs": [ … ]}`` is as many lines as it has records."""
    if not payload.many and len(payload.nodes) == 1 and payload.nodes[0].slot is None and not payload.nodes[0].extras:
        return payload.nodes[0].children
    return payload.nodes


def single(node: Node) -> Iterator[Node]:
    """The records of one value, each with all keys that the caller gave it or a list around it."""
    if node.slot is not None:
        yield node
    for child in node.children:
        for leaf in single(child):
            yield Node(slot=leaf.slot, extras={**node.extras, **leaf.extras})


def _deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects lie in each other more than so many levels deep: neither Python nor orjson writes any depth."""
    if not isinstance(value, list | dict):
        return False
    members = value if isinstance(value, list) else value.values()
    return levels == 0 or any(isinstance(member, list | dict) and _deeper(member, levels - 1) for member in members)


def _chat(value: list[Any]) -> bool:
    """Whether a list is one conversation, ``[{"role", "content"}, …]``, and so one record."""
    return bool(value) and all(isinstance(member, dict) and {"role", "content"} <= member.keys() for member in value)


def _is_array(value: Any) -> bool:
    """A number, or lists that begin with one: whether they are even is seen when they become an array."""
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, int | float)


def _keys(value: Mapping[str, Any]) -> str:
    if not value:
        return "without keys"
    return f"with the key{'s' if len(value) > 1 else ''} {quote(', '.join(value))}"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names: dict[type, str] = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "an object")
