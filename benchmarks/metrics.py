"""What the metrics cost: a handler that does nothing, with and without everything that is counted and told.

    python -m benchmarks.metrics [--rounds N] [--seconds N] [--phase-seconds N]

Two servers in one row differ by more than the metrics cost, so one server is compared with itself: its frontend
(workloads/switched/) counts in every second phase only. Each counted phase is held against the mean of its two neighbours.
``counting`` counts; ``telling`` also prints for CloudWatch and is scraped every second, where usual are a minute and a
quarter of one: of what it costs more than counting, a fifteenth is what telling costs at most.

Their noise is as large as the goal, so what counting takes is measured by itself as well (workloads/switched/Counting.java),
beside the CPU time that java spends on a whole request: throughput cannot lose a larger share than that.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.load import single_texts
from benchmarks.models import BENCH, ROOT
from benchmarks.servers import Repeating, Server, call
from benchmarks.systems import System
from benchmarks.workloads.servers import artefact
from benchmarks.workloads.trivial import BODY, CLIENTS, WARM_S

SWITCHED = Path(__file__).with_name("workloads") / "switched"
HOME = ROOT / "build" / "home"
PHASES = BENCH / "run" / "phases.txt"
TOLD_S = 1.0
USUAL_S = 15.0
"""Between two looks at /metrics, as Prometheus's own example configuration says; for CloudWatch our default is a minute."""
MOST = 0.01
JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""As the entrypoint starts the frontend."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What the frontend wrote down of one; ``cpu_s`` is java's CPU time."""

    counted: bool
    seconds: float
    answers: int
    cpu_s: float

    @property
    def rate(self) -> float:
        """Answers per second."""
        return self.answers / self.seconds

    @property
    def cost(self) -> float:
        """Seconds of CPU time per 1,000 answers."""
        return 1_000 * self.cpu_s / self.answers


def main() -> int:
    """Measure, print and write build/bench/metrics.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="per load (default: %(default)g)")
    parser.add_argument("--phase-seconds", type=float, default=0.5, help="(default: %(default)g)")
    options = parser.parse_args()
    if options.seconds < 6 * options.phase_seconds:
        parser.error("--seconds leaves no room for a few phases: give at least six times --phase-seconds")
    home = switched()
    ratios: dict[str, list[Mapping[str, float]]] = {"counting": [], "telling": []}
    for number in range(options.rounds):
        for way, found in ratios.items():
            found.extend(measure(home, way == "telling", options.seconds, options.phase_seconds))
            print(f"round {number + 1}, {way}: {shown(summary(found))}", flush=True)
    summaries = {way: summary(ones) for way, ones in ratios.items()}
    usual = at_usual_periods(**summaries)
    print(f"at the usual periods throughput × {usual['throughput']:.4f}, java's CPU time per request × {usual['cpu']:.4f}")
    counting_us, request_us = alone_us(home), summaries["counting"]["request_us"]
    told = max(0.0, summaries["telling"]["cpu"] - summaries["counting"]["cpu"]) * TOLD_S / USUAL_S
    share = counting_us / request_us + told
    print(f"by itself counting takes {counting_us:.2f} µs of java's {request_us:.1f} for a request that does nothing")
    print(f"with what telling adds that is {share:.2%}: the goal of {MOST:.0%} is {'met' if share <= MOST else 'missed'}")
    figures = {"ratios": ratios, "usual": usual, "counting_us": counting_us, "request_us": request_us, "share": share}
    (BENCH / "metrics.json").write_text(json.dumps(figures, indent=1), "utf-8")
    return 0


def alone_us(home: Path) -> float:
    """Microseconds of CPU time in which a frontend like ours counts one call and nothing else."""
    (jar,) = HOME.glob("venv/lib/python3*/site-packages/ts/frontend/model-server.jar")
    command = ["java", *JAVA, "-cp", f"{home / 'lib' / 'byoc-endpoints.jar'}:{jar}", "byoc.endpoints.Counting"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    return float(printed) / 1_000


def switched() -> Path:
    """A home like build/home whose frontend counts by turns. Raises CalledProcessError where it cannot be compiled."""
    home, endpoints = BENCH / "switched" / "home", BENCH / "switched" / "endpoints"
    shutil.rmtree(home.parent, ignore_errors=True)
    shutil.copytree(ROOT / "docker" / "endpoints", endpoints)
    package = endpoints / "src/main/java/byoc/endpoints"
    counted = (package / "ModelMetrics.java").read_text("utf-8").replace("ModelMetrics", "CountedMetrics")
    (package / "CountedMetrics.java").write_text(counted.replace("final class", "class", 1), "utf-8")
    for source in SWITCHED.glob("*.java"):
        shutil.copy(source, package)
    shutil.copytree(HOME, home, symlinks=True)
    (jar,) = HOME.glob("venv/lib/python3*/site-packages/ts/frontend/model-server.jar")
    subprocess.run([str(endpoints / "build.sh"), str(jar), str(home / "lib")], check=True)
    return home


def settings(phases: Path, phase_s: float) -> dict[str, str]:
    """Where the frontend of ``switched`` writes its phases, and how long one is."""
    return {"BENCH_PHASES": str(phases), "BENCH_PHASE_MS": str(round(1_000 * phase_s))}


def measure(home: Path, telling: bool, seconds: float, phase_s: float) -> list[dict[str, float]]:
    """``throughput`` and ``cpu`` of each counted phase as ratios to its neighbours'; ``request_us``, the latter's own."""
    PHASES.parent.mkdir(parents=True, exist_ok=True)
    PHASES.unlink(missing_ok=True)
    told = {"BYOC_EMF_NAMESPACE": "bench", "BYOC_EMF_SECONDS": str(round(TOLD_S))} if telling else {}
    system = System("switched", None, settings(PHASES, phase_s) | told, home=home)
    with Server(system, artefact(system, "nothing.py"), "", (BODY, "application/json")) as server:
        load(server, WARM_S)
        first = len(read(PHASES)) + 1  # the phase that the load begins in is no whole one
        with Repeating(partial(scrape, server.port), TOLD_S) if telling else nullcontext():
            load(server, seconds)
        seen = read(PHASES)[first:]
    return compared(seen)


def read(file: Path) -> list[Phase]:
    """All phases that have ended."""
    rows = [line.split() for line in file.read_text("utf-8").splitlines()]
    return [Phase(counted == "1", float(seconds), int(answers), float(cpu)) for counted, seconds, answers, cpu in rows]


def compared(seen: Sequence[Phase]) -> list[dict[str, float]]:
    """Each counted phase beside the mean of the two around it."""
    return [
        {
            "throughput": phase.rate / statistics.mean((before.rate, after.rate)),
            "cpu": phase.cost / statistics.mean((before.cost, after.cost)),
            "request_us": 1_000 * statistics.mean((before.cost, after.cost)),
        }
        for before, phase, after in zip(seen, seen[1:], seen[2:], strict=False)
        if phase.counted
    ]


def load(server: Server, seconds: float) -> None:
    """wrk's connections, as for the trivial handler."""
    single_texts(server.port, server.system.path, [BODY], CLIENTS, seconds, BENCH / "run" / "wrk")


def scrape(port: int) -> None:
    """Read /metrics where the running phase is a counted one; what fails is for the load to count."""
    seen = read(PHASES)
    if seen and not seen[-1].counted:
        with suppress(OSError):
            call(port, "GET", "/metrics", b"", "", 10.0)


def summary(ratios: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Medians, and the standard error of each as ``…_error``."""
    found = {}
    for name in ("throughput", "cpu", "request_us"):
        values = [one[name] for one in ratios]
        found[name] = statistics.median(values)
        spread = statistics.median(abs(value - found[name]) for value in values)
        found[f"{name}_error"] = 1.48 * 1.25 * spread / len(values) ** 0.5  # as if they were normally distributed
    return found


def at_usual_periods(counting: Mapping[str, float], telling: Mapping[str, float]) -> dict[str, float]:
    """What is left when everything is told as seldom as usual."""
    return {name: counting[name] + (telling[name] - counting[name]) * TOLD_S / USUAL_S for name in ("throughput", "cpu")}


def shown(found: Mapping[str, float]) -> str:
    """For the progress."""
    names = {"throughput": "throughput", "cpu": "java's CPU time per request"}
    return ", ".join(f"{words} × {found[name]:.4f} ± {found[f'{name}_error']:.4f}" for name, words in names.items())


if __name__ == "__main__":
    sys.exit(main())
