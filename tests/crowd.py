"""Many clients at once against one server, every answer judged by its content; and what they saw.

One event loop drives them all, since the server and not the crowd is to be the busy one.
"""

from __future__ import annotations

import asyncio
import csv
import io
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import aiohttp
import numpy as np
import orjson

from running import Endpoint

TOLERANCE = 1e-5
BAD_SHARE = 0.02
WORDS = ("kettle", "harbour", "lantern", "quiet", "river", "seventeen", "copper", "violin", "margin", "orchard", "über", "naïve")
REFUSALS = (
    ("application/json", b'{"inputs": "no end', 400),
    ("application/json", b'{"inputs": "\xff\xfe"}', 400),
    ("application/jsonlines", b'"a line"\n{"inputs": 7}', 400),
    ("application/json", b'{"inputs": []', 400),
    ("application/pdf", b"%PDF-1.7", 415),
    ("text/csv", b'"never closed', 400),
    ("application/x-npy", b"\x93NUMPY\x01\x00 nonsense", 400),
)
"""Bodies of which none can be answered, and the status of each; 415 where this task takes no such type."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, and what its answer must be: the vectors of ``expected`` (records × dimensions), or a refusal."""

    content_type: str
    body: bytes
    statuses: tuple[int, ...]
    expected: np.ndarray | None = None


@dataclass(slots=True)
class Sight:
    """What the crowd saw. ``wrong`` holds a sentence for each answer that nobody should get; latencies are in seconds."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def answers(self) -> int:
        """All answers, refusals among them."""
        return sum(self.statuses.values())

    def quantile(self, share: float) -> float:
        """Latency of good answers in seconds."""
        return float(np.quantile(self.latencies, share))


class Calls:
    """Makes calls with known answers for the embedded encoder: each text's vector was asked for alone, once, beforehand."""

    def __init__(self, endpoint: Endpoint, texts: int = 300, seed: int = 6) -> None:
        self._random = random.Random(seed)
        self._texts = [self._text() for _ in range(texts)]
        self._vectors = np.array([endpoint.invoke({"inputs": text}).json() for text in self._texts], np.float32)

    def __iter__(self) -> Iterator[Call]:
        while True:
            yield self._refused() if self._random.random() < BAD_SHARE else self._answered()

    def _text(self) -> str:
        length = min(200, max(1, int(self._random.lognormvariate(2.6, 1.0))))
        return " ".join(self._random.choice(WORDS) for _ in range(length))

    def _answered(self) -> Call:
        kind = self._random.random()
        count = 1 if kind < 0.9 else self._random.randint(2, 12)
        chosen = [self._random.randrange(len(self._texts)) for _ in range(count)]
        texts, expected = [self._texts[place] for place in chosen], self._vectors[chosen]
        if kind < 0.8:
            return Call("application/json", orjson.dumps({"inputs": texts[0]}), (200,), expected)
        if kind < 0.9:
            return Call("text/csv; charset=utf-8", _row(texts[0]), (200,), expected)
        if kind < 0.96:
            return Call("application/json", orjson.dumps({"inputs": texts}), (200,), expected)
        return Call("application/jsonlines", b"\n".join(orjson.dumps(text) for text in texts), (200,), expected)

    def _refused(self) -> Call:
        content_type, body, status = self._random.choice(REFUSALS)
        return Call(content_type, body, (status, 415) if status == 400 and "npy" in content_type else (status,))


def _row(text: str) -> bytes:
    written = io.StringIO()
    csv.writer(written).writerow([text])
    return written.getvalue().encode()


def besiege(base_url: str, calls: Calls, clients: int, seconds: float, refusable: bool = False) -> Sight:
    """Let so many keep-alive clients call for so long. ``refusable``: a full queue's honest 503 is no fault."""
    return asyncio.run(_besiege(base_url, calls, clients, seconds, refusable))


async def _besiege(base_url: str, calls: Calls, clients: int, seconds: float, refusable: bool) -> Sight:
    sight, source = Sight(), iter(calls)
    began = time.monotonic()

    async def client(session: aiohttp.ClientSession) -> None:
        while time.monotonic() - began < seconds:
            await _call(session, next(source), sight, refusable)

    connector = aiohttp.TCPConnector(limit=0, force_close=False)
    async with aiohttp.ClientSession(base_url, connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as session:
        await asyncio.gather(*(client(session) for _ in range(clients)))
    sight.seconds = time.monotonic() - began
    return sight


async def _call(session: aiohttp.ClientSession, call: Call, sight: Sight, refusable: bool) -> None:
    began = time.monotonic()
    try:
        async with session.post("/invocations", data=call.body, headers={"Content-Type": call.content_type}) as response:
            body = await response.read()
    except aiohttp.ClientError as error:
        sight.wrong.append(f"no answer to {call.body[:60]!r}: {error!r}")
        return
    sight.statuses[response.status] += 1
    if response.status == 503 and refusable:
        if fault := _dishonesty(response, body):
            sight.wrong.append(fault)
        await asyncio.sleep(float(response.headers.get("Retry-After", "1")))
    elif response.status not in call.statuses:
        sight.wrong.append(f"{response.status} instead of {call.statuses} for {call.body[:60]!r}: {body[:200]!r}")
    elif response.status == 200:
        sight.latencies.append(time.monotonic() - began)
        if not _equal(call, response.content_type, body):
            sight.wrong.append(f"another answer than alone for {call.body[:60]!r}")


def _dishonesty(response: aiohttp.ClientResponse, body: bytes) -> str | None:
    error = orjson.loads(body)["error"]
    honest = response.headers.get("Retry-After") and error["type"] == "Overloaded" and "queue" in error["message"]
    return None if honest else f"a 503 that does not say when to come back and why: {response.headers} {body[:200]!r}"


def _equal(call: Call, content_type: str, body: bytes) -> bool:
    expected = call.expected
    if expected is None:
        return False
    if content_type == "text/csv":
        found = np.loadtxt(io.BytesIO(body), delimiter=",", dtype=np.float32, ndmin=2)
    elif content_type == "application/jsonlines":
        found = np.array([orjson.loads(line) for line in body.splitlines()], np.float32)
    else:
        found = np.array(orjson.loads(body), np.float32).reshape(len(expected), -1)
    return found.shape == expected.shape and bool(np.allclose(found, expected, atol=TOLERANCE))


def latencies_of_ping(base_url: str, seconds: float, every: float = 0.1) -> Sequence[float]:
    """Ask /ping for so long from a process of its own; seconds each, infinite where it was not 200."""
    return asyncio.run(_ping(base_url, seconds, every))


async def _ping(base_url: str, seconds: float, every: float) -> list[float]:
    found: list[float] = []
    began = time.monotonic()
    async with aiohttp.ClientSession(base_url, timeout=aiohttp.ClientTimeout(total=5)) as session:
        while (start := time.monotonic()) - began < seconds:
            try:
                async with session.get("/ping") as response:
                    found.append(time.monotonic() - start if response.status == 200 else float("inf"))
            except (aiohttp.ClientError, TimeoutError):
                found.append(float("inf"))
            await asyncio.sleep(max(0.0, every - (time.monotonic() - start)))
    return found
