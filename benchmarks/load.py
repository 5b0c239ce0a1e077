"""The load: wrk for one text per request, and a few threads of our own for requests of many lines.

wrk ends with the clock and drops what is in flight. With requests that take seconds that would be most of the measure, so
W2's clients finish what they began and the time counts until the last answer.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 600.0
WRK = """\
local bodies, requests, at = {{}}, {{}}, 0
for line in io.lines("{file}") do bodies[#bodies + 1] = line end

function init(arguments)
  for index, body in ipairs(bodies) do
    requests[index] = wrk.format("POST", "{path}", {{["Content-Type"] = "application/json"}}, body)
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency, _)
  local failed = summary.errors
  io.write(string.format(
    '\\n{{"requests": %d, "bad": %d, "lost": %d, "seconds": %.6f, "p50_ms": %.3f, "p99_ms": %.3f}}\\n',
    summary.requests, failed.status, failed.connect + failed.read + failed.write + failed.timeout,
    summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What a load saw. ``failed`` counts answers other than 200 and broken connections, which count for no record."""

    records: int
    seconds: float
    p50_ms: float
    p99_ms: float
    failed: int

    @property
    def records_per_s(self) -> float:
        """Throughput of good answers."""
        return self.records / self.seconds


def single_texts(port: int, path: str, bodies: Sequence[bytes], clients: int, seconds: float, folder: Path) -> Load:
    """W1: one body per request, in order, from `clients` connections."""
    folder.mkdir(parents=True, exist_ok=True)
    listed, script = folder / "bodies.txt", folder / "load.lua"
    listed.write_bytes(b"\n".join(bodies) + b"\n")
    script.write_text(WRK.format(file=listed, path=path), "utf-8")
    options = ["-t", "1", "-c", str(clients), "-d", f"{max(1, round(seconds))}s", "--timeout", "300s", "-s", str(script)]
    printed = subprocess.run(
        ["wrk", *options, f"http://127.0.0.1:{port}"], capture_output=True, text=True, check=True, timeout=seconds + TIMEOUT_S
    ).stdout
    seen = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    good = seen["requests"] - seen["bad"]
    return Load(good, seen["seconds"], seen["p50_ms"], seen["p99_ms"], seen["bad"] + seen["lost"])


def many_lines(
    port: int, path: str, bodies: Sequence[bytes], content_type: str, lines: int, clients: int, seconds: float
) -> Load:
    """W2: `lines` records per request; every client sends at least one request and starts none after `seconds`."""
    latencies: list[float] = []
    failed: list[int] = []
    started = time.perf_counter()

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        at = number
        while True:
            sent = time.perf_counter()
            try:
                connection.request("POST", path, bodies[at % len(bodies)], {"Content-Type": content_type})
                response = connection.getresponse()
                response.read()
                good = response.status == 200
            except (OSError, http.client.HTTPException):
                connection.close()
                good = False
            if good:
                latencies.append(time.perf_counter() - sent)
            else:
                failed.append(at)
            at += clients
            if time.perf_counter() - started >= seconds or len(failed) > clients:
                return

    threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - started
    p50, p99 = (percentile(latencies, share) * 1e3 for share in (0.5, 0.99))
    return Load(len(latencies) * lines, elapsed, p50, p99, len(failed))


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all do not exceed (nearest rank); 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
