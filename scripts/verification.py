"""Whether an artefact answers the same alone and in a batch: started on loopback, asked both ways, compared in a table."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

ENTRYPOINT = Path(__file__).resolve().parents[1] / "build" / "home" / "bin" / "entrypoint"
START_LIMIT_S = 300.0
CALL_LIMIT_S = 120.0
BATCH = 32
DELAY_MS = 50
ABSOLUTE = 1e-5
RELATIVE = 1e-4
OK = 200


class VerificationError(Exception):
    """One sentence: why an artefact was not verified."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one sample, and after how many milliseconds."""

    status: int
    body: bytes
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Row:
    """One sample's two answers. ``difference`` is the largest between two numbers, or None where anything else differs."""

    line: int
    alone: Answer
    batched: Answer
    difference: float | None

    @property
    def same(self) -> bool:
        """Whether both were answers, and the same one."""
        return self.alone.status == self.batched.status == OK and self.difference is not None


def verify(directory: Path, samples: Path, content_type: str = "application/json") -> list[Row]:
    """Ask the artefact in `directory` for every line of `samples`, one by one and together.

    Raises VerificationError when it does not start, or there is nothing to ask.
    """
    lines = read_samples(samples)
    with served(directory, len(lines)) as address:
        alone = [ask(address, body, content_type) for _, body in tqdm(lines, desc="alone", leave=False, disable=None)]
        batched: list[Answer] = []
        for start in range(0, len(lines), BATCH):
            part = [body for _, body in lines[start : start + BATCH]]
            with ThreadPoolExecutor(len(part)) as pool:
                batched += pool.map(lambda body: ask(address, body, content_type), part)
    return [
        Row(number, one, other, difference(decoded(one.body), decoded(other.body)))
        for (number, _), one, other in zip(lines, alone, batched, strict=True)
    ]


def table(rows: Sequence[Row]) -> str:
    """The rows under aligned headings."""
    cells = [("line", "alone", "batched", "ms alone", "ms batched", "difference", "")]
    for row in rows:
        largest = "other" if row.difference is None else f"{row.difference:.1e}"
        times = (f"{row.alone.milliseconds:.0f}", f"{row.batched.milliseconds:.0f}")
        verdict = "same" if row.same else "DIFFERENT" if row.difference is None or row.alone.status == OK else "FAILED"
        cells.append((str(row.line), str(row.alone.status), str(row.batched.status), *times, largest, verdict))
    return aligned(cells)


def aligned(cells: Sequence[Sequence[str]]) -> str:
    """Lines of cells as columns, each as wide as its widest cell."""
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells)


def read_samples(path: Path) -> list[tuple[int, bytes]]:
    """The lines that hold something, with their numbers. Raises VerificationError."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise VerificationError(f"{path} cannot be read: {error.strerror}") from None
    filled = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not filled:
        raise VerificationError(f"{path} holds no samples: write one request body on each line")
    return filled


@contextmanager
def served(directory: Path, samples: int) -> Iterator[str]:
    """The artefact behind one worker on a free port of loopback. Raises VerificationError with the server's last words."""
    if not ENTRYPOINT.exists():
        raise VerificationError(f"{ENTRYPOINT} is missing, so that nothing can be verified: run make tools build/.home first")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "BYOC_MODEL_DIR": str(directory.resolve()),
        "BYOC_BIND_ADDRESS": "127.0.0.1",
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "SAGEMAKER_TS_BATCH_SIZE": str(min(samples, BATCH)),
        "SAGEMAKER_TS_MAX_BATCH_DELAY": str(DELAY_MS),
        "SAGEMAKER_TS_MIN_WORKERS": "1",
        "SAGEMAKER_TS_MAX_WORKERS": "1",
    }
    said = directory.parent / f"{directory.name}-verification.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            [str(ENTRYPOINT), "serve"], env={**os.environ, **settings}, stdout=log, stderr=log, start_new_session=True
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(address, process, said)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        said.unlink(missing_ok=True)


def ask(address: str, body: bytes, content_type: str) -> Answer:
    """One call of /invocations; an error's status and body count as an answer."""
    request = urllib.request.Request(f"{address}/invocations", body, {"Content-Type": content_type})  # noqa: S310 - loopback
    started = time.perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=CALL_LIMIT_S) as response:  # noqa: S310 - loopback
            status, answer = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, answer = error.code, error.read()
    except OSError as error:
        raise VerificationError(f"a sample was not answered: {error}") from None
    return Answer(status, answer, 1_000 * (time.perf_counter() - started))


def decoded(body: bytes) -> Any:
    """JSON, or JSON Lines, or the bytes themselves."""
    try:
        return json.loads(body)
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in body.splitlines()]
    except ValueError:
        return body


def difference(one: Any, other: Any) -> float | None:
    """The largest difference between numbers in the same places; None where anything else differs, or one by too much."""
    if isinstance(one, int | float) and isinstance(other, int | float) and not isinstance(one, bool):
        close = math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        return abs(one - other) if close else None
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs = [(one[key], other[key]) for key in one]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = list(zip(one, other, strict=True))
    else:
        return 0.0 if one == other else None
    found = [difference(*pair) for pair in pairs]
    return None if None in found else max((value for value in found if value is not None), default=0.0)


def _wait(address: str, process: subprocess.Popen[bytes], said: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/ping", timeout=5) as response:  # noqa: S310 - loopback
                if response.status == OK:
                    return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise VerificationError(f"the artefact was not ready within {START_LIMIT_S:.0f} s")
        time.sleep(0.1)
    last = (said.read_text("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
    raise VerificationError(f"the artefact does not start: {last}")
