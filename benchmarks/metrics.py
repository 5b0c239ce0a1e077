"""What the metrics cost: a handler that does nothing, with and without everything that is counted and told.

    python -m benchmarks.metrics [--rounds N] [--seconds N] [--emf-seconds N] [--scrape-seconds N]

``counted`` counts as ever, prints for CloudWatch and is scraped, by default each as often as usual; hard on it
are ``--emf-seconds 1 --scrape-seconds 1``.
``uncounted`` is the same frontend with counting compiled out (workloads/uncounted/), silent and never scraped. In each round
both are started, in turns as first; ratios are taken within a round. Throughput on a machine that is not quiet says little:
CPU time per request is the steadier of the two.
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
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.load import Load, single_texts
from benchmarks.models import BENCH, ROOT
from benchmarks.servers import Repeating, Server, call
from benchmarks.systems import System
from benchmarks.workloads.servers import artefact
from benchmarks.workloads.trivial import BODY, CLIENTS, WARM_S

OFF = Path(__file__).with_name("workloads") / "uncounted"
HOME = ROOT / "build" / "home"
EMF_S, SCRAPE_S = 60, 15.0
"""As usual: our default, and what Prometheus's own example configuration says."""
MOST = 0.01


def main() -> int:
    """Measure, print and write build/bench/metrics.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=float(EMF_S), help="per load (default: %(default)g)")
    parser.add_argument("--emf-seconds", type=int, default=EMF_S, help="between two lines for CloudWatch")
    parser.add_argument("--scrape-seconds", type=float, default=SCRAPE_S, help="between two looks at /metrics")
    options = parser.parse_args()
    if options.seconds < max(options.emf_seconds, options.scrape_seconds):
        parser.error("--seconds is shorter than a period: nothing of what comes once in it would be measured")
    told = {"BYOC_EMF_NAMESPACE": "bench", "BYOC_EMF_SECONDS": str(options.emf_seconds)}
    systems = [System("counted", None, told), System("uncounted", None, home=uncounted())]
    rounds = []
    for number in range(options.rounds):
        order = systems if number % 2 == 0 else systems[::-1]
        rounds.append({system.name: measure(system, options.seconds, options.scrape_seconds) for system in order})
        print(line(number, rounds[-1]), flush=True)
    found = summary(rounds)
    (BENCH / "metrics.json").write_text(json.dumps({"rounds": rounds, **found}, indent=1), "utf-8")
    print(f"throughput × {found['throughput']:.4f} (median of rounds), CPU per request × {found['cpu']:.4f}")
    kept = found["throughput"] >= 1 - MOST
    print(f"the goal of {1 - MOST:.2f} of the uncounted throughput is {'met' if kept else 'missed'}")
    return 0


def uncounted() -> Path:
    """A home like build/home whose frontend counts nothing. Raises CalledProcessError where it cannot be compiled."""
    home, sources = BENCH / "uncounted" / "home", BENCH / "uncounted" / "endpoints"
    shutil.rmtree(home.parent, ignore_errors=True)
    shutil.copytree(ROOT / "docker" / "endpoints", sources)
    shutil.copy(OFF / "ModelMetrics.java", sources / "src/main/java/byoc/endpoints/ModelMetrics.java")
    shutil.copytree(HOME, home, symlinks=True)
    (jar,) = HOME.glob("venv/lib/python3*/site-packages/ts/frontend/model-server.jar")
    subprocess.run([str(sources / "build.sh"), str(jar), str(home / "lib")], check=True)
    return home


def measure(system: System, seconds: float, scrape_seconds: float) -> dict[str, float]:
    """``requests_per_s``, ``cpu_s_per_1000`` over all processes, and how many calls ``failed``."""
    with Server(system, artefact(system, "nothing.py"), "", (BODY, "application/json")) as server:
        load(server, WARM_S)
        before = server.cpu_seconds()
        with Repeating(partial(scrape, server.port), scrape_seconds) if system.settings else nullcontext():
            seen = load(server, seconds)
        cpu = server.cpu_seconds() - before
    return {"requests_per_s": seen.records_per_s, "cpu_s_per_1000": 1_000 * cpu / seen.records, "failed": seen.failed}


def load(server: Server, seconds: float) -> Load:
    """wrk's connections, as for the trivial handler."""
    return single_texts(server.port, server.system.path, [BODY], CLIENTS, seconds, BENCH / "run" / "wrk")


def scrape(port: int) -> None:
    """Read /metrics; a server that does not answer is for the load to count."""
    with suppress(OSError):
        call(port, "GET", "/metrics", b"", "", 10.0)


def summary(rounds: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """Medians over the rounds of counted ÷ uncounted, and each round's ratio."""
    ratios = {
        name: [one["counted"][key] / one["uncounted"][key] for one in rounds]
        for name, key in (("throughput", "requests_per_s"), ("cpu", "cpu_s_per_1000"))
    }
    return {name: statistics.median(each) for name, each in ratios.items()} | {"ratios": ratios}


def line(number: int, one: Mapping[str, Mapping[str, float]]) -> str:
    """For the progress."""
    shown = [f"{name} {one[name]['requests_per_s']:,.0f}/s {one[name]['cpu_s_per_1000']:.4f} CPU s/1,000" for name in sorted(one)]
    return f"round {number + 1}: {'   '.join(shown)}"


if __name__ == "__main__":
    sys.exit(main())
