"""A fault, and those who call meanwhile: what each of them saw, when /ping said so, and when the container served again."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx
import numpy as np

from containers import Container

JSON, JSON_LINES = "application/json", "application/jsonlines"
TOLERANCE = 1e-5
"""How far a float may be from the one that the same record got without neighbours."""
ANSWERED = "200"
EVERY_S = 0.02
SAID_SO_LIMIT_S = 10.0
SERVING_LIMIT_S = 240.0


class Row(NamedTuple):
    """A line of the table of faults. ``lost`` counts the calls that got neither the right content nor an error of their own."""

    fault: str
    calls: int
    seen: str
    said_so: str
    afterwards: str
    lost: int


Told = Callable[[Row], None]
TITLES = ("fault", "calls", "what the clients saw", "/ping says so after", "afterwards", "lost")


@dataclass(frozen=True, slots=True)
class Call:
    """A request, and the content that its answer must have."""

    body: Any
    expected: Any
    content_type: str = JSON

    def ask(self, container: Container) -> httpx.Response:
        """Make the call."""
        return container.invoke(self.body, self.content_type)

    def answered_by(self, answer: httpx.Response) -> bool:
        """Whether this is the right content."""
        return equal(content(answer), self.expected)


def known(container: Container, body: Any, content_type: str = JSON) -> Call:
    """A call with the content that it gets while all is well."""
    return Call(body, content(container.invoke(body, content_type).raise_for_status()), content_type)


def content(answer: httpx.Response) -> Any:
    """What the answer holds; of several lines a list."""
    if answer.headers["content-type"].startswith(JSON_LINES):
        return [json.loads(line) for line in answer.text.splitlines()]
    return answer.json()


def equal(found: Any, expected: Any) -> bool:
    """Whether objects hold the same under each name, texts are the same, and floats, of any shape, nearly so."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(equal(found[name], value) for name, value in expected.items())
    if isinstance(expected, str):
        return bool(found == expected)
    return np.shape(found) == np.shape(expected) and np.allclose(found, expected, atol=TOLERANCE)


def look(call: Call, ask: Callable[[], httpx.Response]) -> tuple[str, bool]:
    """What the client saw, and whether that was a whole answer of its own: the right content, or what went wrong in our words."""
    try:
        answer = ask()
    except httpx.TimeoutException:
        return "no answer", False
    except httpx.HTTPError:
        return "connection closed", False
    try:
        if answer.status_code == 200:
            right = call.answered_by(answer)
            return ANSWERED if right else "200 with another content", right
        error = answer.json()["error"]
        named = bool(error["message"]) and (answer.status_code != 503 or "retry-after" in answer.headers)
        return f"{answer.status_code} {error['type']}", named
    except (ValueError, LookupError, TypeError, AttributeError):
        return f"{answer.status_code} in another form", False


class Incident:
    """Calls around a fault, and a watch on the container. A context that is left when nobody waits any more.

    ``probe`` is the call that is made again and again until its right answer shows that the container serves; then
    ``served`` is done. ``said_so`` are the seconds from `begin` until /ping was not 200, None where it always was. Of a
    fault that ``shows`` there, only what is answered afterwards counts: the moment before it strikes all is well.
    """

    def __init__(self, container: Container, fault: str, probe: Call, shows: bool = True) -> None:
        self.said_so: float | None = None
        self.afterwards = ""
        self._container = container
        self._fault = fault
        self._probe = probe
        self._shown = threading.Event()
        self._shows = shows
        self._calls: list[tuple[Call, Future[httpx.Response]]] = []
        self._pool = ThreadPoolExecutor(64)
        self._over = threading.Event()
        self._began = 0.0
        self.served: Future[float]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._pool.shutdown()

    def call(self, call: Call) -> Future[httpx.Response]:
        """Make a call of which the table tells, and do not wait for it."""
        asked = self._pool.submit(call.ask, self._container)
        self._calls.append((call, asked))
        return asked

    def begin(self) -> None:
        """The fault is next: from here on seconds count."""
        self._began = time.monotonic()
        self._pool.submit(self._watch_ping)
        self.served = self._pool.submit(self._try)

    def serves_again(self) -> float:
        """Wait until all calls have ended and the container serves; the seconds from `begin` until a call was answered."""
        for _, asked in self._calls:
            asked.exception()
        seconds = self.served.result(SERVING_LIMIT_S)
        self.afterwards = f"serves after {seconds:.1f} s"
        self._over.set()
        return seconds

    def ends(self) -> tuple[int, float]:
        """Wait for the container's end: its exit code, and the seconds from `begin`."""
        code, seconds = self._container.wait(120), self._elapsed()
        self._over.set()
        self.afterwards = f"ends with {code} after {seconds:.1f} s"
        return code, seconds

    def row(self) -> Row:
        """What became of it all, once every call has ended."""
        ends = [look(call, asked.result) for call, asked in self._calls]
        said_so = "stays 200" if self.said_so is None else f"{self.said_so:.1f} s"
        lost = sum(not own for _, own in ends)
        return Row(self._fault, len(ends), tally(seen for seen, _ in ends), said_so, self.afterwards, lost)

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _watch_ping(self) -> None:
        while not self._over.is_set():
            if self._container.ping() != 200:
                self.said_so = self._elapsed()
                self._shown.set()
                return
            time.sleep(EVERY_S)

    def _try(self) -> float:
        while self._shows and not self._over.is_set() and not self._shown.wait(EVERY_S):
            pass
        while not self._over.is_set():
            seen, _ = look(self._probe, lambda: self._probe.ask(self._container))
            if seen == ANSWERED and self._container.ping() == 200:
                break
            time.sleep(EVERY_S)
        return self._elapsed()


def tally(seen: Iterable[str]) -> str:
    """How many saw what: ``4 × 200, 1 × 422 PoisonInput``."""
    return ", ".join(f"{count:,} × {what}" for what, count in sorted(Counter(seen).items()))


def table(rows: Iterable[Row]) -> str:
    """The rows as Markdown, with columns that stand under each other."""
    lines = [[str(cell) for cell in row] for row in (TITLES, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def wait_for_calls(container: Container, count: int) -> None:
    """Return once so many calls are in flight."""
    deadline = time.monotonic() + 30
    while sum(value for name, value in container.metrics().items() if name.startswith("byoc_inflight_requests")) < count:
        assert time.monotonic() < deadline
        time.sleep(EVERY_S)


def ended(incident: Incident, told: Told) -> tuple[int, float]:
    """Wait for the container's end: its exit code, and the seconds that it took."""
    found = incident.ends()
    told(incident.row())
    return found


def lets_nobody_down(incident: Incident, told: Told) -> Row:
    """Wait until the container serves again: nobody was left without an answer, and /ping said in time what was the matter."""
    incident.serves_again()
    told(row := incident.row())
    assert row.lost == 0, row
    assert incident.said_so is None or incident.said_so < SAID_SO_LIMIT_S
    return row
