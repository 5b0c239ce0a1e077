"""A campaign over all targets, bounded in time: what ran, how far it reached, what broke, and which inputs are worth keeping."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fuzz.targets import CORPUS, TARGETS, Target, kept

SLOWEST_S = 5
MOST_MB = 2_560
"""What one input may take, and what a process may have: torch and transformers alone are 700 MB."""
ENDLESS_S = 60
"""When the engine gives an input up: its clock runs on while others have the processor, and its alarm ends it unexplained."""
LIMITS = (f"-timeout={ENDLESS_S}", f"-rss_limit_mb={MOST_MB}", "-print_final_stats=1", "-verbosity=1", "-use_value_profile=0")
MOST_SAID = 3_000
"""Characters of what the engine says; the fault stands at the end of it."""
MOST_KEPT = 32 * 1024
"""Bytes of a target's corpus."""
EPOCH = (2024, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one target. ``edges`` are those covered of instrumented code, ``broken`` the input that broke it.

    ``said`` is what the engine told of its end, where that was not the end of its time.
    """

    name: str
    executions: int
    edges: int
    corpus: int
    seconds: float
    broken: Path | None
    said: str

    def row(self) -> str:
        """One line of the table."""
        verdict = "BROKEN" if self.said else "held"
        return f"{self.name:14} {self.executions:>12,} {self.edges:>7,} {self.corpus:>7,} {self.seconds:>7.0f}  {verdict}"

    def again(self) -> str:
        """How to see it once more."""
        data = f" {self.broken}" if self.broken else ""
        return f"again: PYTHONPATH=handler:tests .venv/bin/python -m fuzz.engine {self.name}{data}"


HEADING = f"{'target':14} {'executions':>12} {'edges':>7} {'corpus':>7} {'seconds':>7}"


def run(names: Sequence[str], seconds: int, processes: int, found: Path) -> Iterator[Outcome]:
    """Fuzz each target for `seconds`, `processes` at a time; new inputs go to `found`, by target."""
    with ThreadPoolExecutor(processes) as pool:
        yield from pool.map(lambda name: fuzz(name, seconds, found), names)


def fuzz(name: str, seconds: int, found: Path) -> Outcome:
    """Fuzz one target."""
    own = found / name
    own.mkdir(parents=True, exist_ok=True)
    prefix = found / f"{name}-broken-"
    with _start(name, TARGETS[name]) as (start, words):
        begun = time.monotonic()
        ended = _engine(
            name,
            *LIMITS,
            f"-max_total_time={seconds}",
            f"-max_len={TARGETS[name].longest}",
            f"-artifact_prefix={prefix}",
            *words,
            str(own),
            str(start),
        )
    said = ended.stdout + re.sub(r"^INFO: .*\n", "", ended.stderr, flags=re.MULTILINE)
    broken = re.search(r"Test unit written to (\S+)", said)
    return Outcome(
        name,
        int(_last(r"stat::number_of_executed_units:\s+(\d+)", said) or _last(r"^#(\d+)", said) or 0),
        int(_last(r"cov: (\d+)", said) or 0),
        int(_last(r"corp: (\d+)", said) or 0),
        time.monotonic() - begun,
        Path(broken[1]) if broken else None,
        f"{said[-MOST_SAID:]}\n{_ending(ended.returncode)}" if broken or ended.returncode else "",
    )


def keep(name: str, found: Path) -> int:
    """Make the smallest of what reached something new the target's corpus, and all that once broke it; returns how many."""
    reached = sorted({*kept(name), *(path.read_bytes() for path in (found / name).glob("*"))}, key=lambda data: (len(data), data))
    inputs, room = _broke(name, found), MOST_KEPT
    for data in reached:
        room -= len(data)
        if room > 0 and data not in inputs:
            inputs.append(data)
    CORPUS.mkdir(exist_ok=True)
    with zipfile.ZipFile(CORPUS / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number, data in enumerate(inputs):
            archive.writestr(zipfile.ZipInfo(f"{number:04}", EPOCH), data)
    return len(inputs)


def _broke(name: str, found: Path) -> list[bytes]:
    """Inputs that broke the target once, when it holds for them now: no later change may bring that back."""
    inputs = [path.read_bytes() for path in found.glob(f"{name}-broken-*")]
    for data in inputs:
        TARGETS[name].run(data)
    return inputs


@contextmanager
def _start(name: str, target: Target) -> Iterator[tuple[Path, list[str]]]:
    """A directory with the seeds and the corpus, and the option that names the words."""
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / "start"
        start.mkdir()
        for number, data in enumerate((*target.seeds, *kept(name))):
            (start / f"{number:04}").write_bytes(data)
        words = Path(folder) / "words"
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
        yield start, [f"-dict={words}"] if target.words else []


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def _engine(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fuzz.engine", *arguments], capture_output=True, encoding="utf-8", errors="replace", check=False
    )


def _ending(code: int) -> str:
    """A process that the kernel ends, where memory is short for instance, says nothing itself."""
    return f"the engine was ended by {signal.Signals(-code).name}" if code < 0 else f"the engine ended with {code}"


def _last(pattern: str, said: str) -> str | None:
    found = re.findall(pattern, said, re.MULTILINE)
    return found[-1] if found else None
