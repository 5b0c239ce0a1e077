"""Measure the product, its peers and the limits in interleaved rounds.

    python -m benchmarks [--quick] [--model minilm|bert-base|translation] [--systems NAME …] [--rounds N] [--seconds N]

In each round every system is started, checked, measured and stopped once, alone on the machine; the limit is measured at
the round's start and end. Results go to build/bench/ after each system, so that an interrupted run is not lost.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from benchmarks import environments, limits, report, texts
from benchmarks.answers import WrongAnswerError, bodies, check, results
from benchmarks.load import Load, many_lines, single_texts
from benchmarks.models import BENCH, MODELS, Model, prepare
from benchmarks.plan import FULL, OTHER_MODELS, QUICK_PLAN, Plan, Point
from benchmarks.servers import Server, StartError, Watch
from benchmarks.systems import SYSTEMS, System

TEXTS, SEED = 2_048, 5
START_S = 14.0
"""For the estimate of the time left only."""


class Run:
    """A measurement on its way: what was seen so far, and the clock."""

    def __init__(self, model: Model, plan: Plan) -> None:
        self.model, self.plan = model, plan
        self.directory = prepare(model)
        self.records = _write_texts(model)
        self.output = BENCH / ("results.json" if model.name == "minilm" else f"results-{model.name}.json")
        self.seen: dict[str, Any] = {
            "model": {"name": model.name, "title": model.title, "task": model.task},
            "machine": machine(),
            "plan": {"rounds": plan.rounds, "seconds": plan.seconds, "systems": list(plan.systems), "texts": TEXTS},
            "points": [],
            "starts": [],
            "limits": [],
            "absent": {},
        }
        self._started = time.monotonic()
        self._done = 0.0
        self._total = plan.rounds * (2 * self._limit_s + len(plan.limits) * self._limit_s + len(plan.systems) * self._system_s)

    def measure(self) -> None:
        """All rounds. Systems take turns in being first."""
        self._say(f"{self.model.title}: {len(self.plan.systems)} systems, {self.plan.rounds} rounds")
        wanted = limits.reference(self.model.name)
        present = [SYSTEMS[name] for name in self.plan.systems if self._available(SYSTEMS[name])]
        for number in range(self.plan.rounds):
            self._limit(number, "packed", "start")
            for kind in self.plan.limits:
                self._limit(number, kind, "once")
            turn = number % max(1, len(present))
            for system in present[turn:] + present[:turn]:
                self._system(number, system, wanted)
                self._save()
            self._limit(number, "packed", "end")
            self._save()
            self._say(report.drift(self.seen, number))

    def _available(self, system: System) -> bool:
        """Installed, and able to run this model; else the reason goes into the results."""
        if self.model.task not in system.tasks:
            self.seen["absent"][system.name] = f"does not serve {self.model.task}"
        elif system.environment is not None:
            try:
                environments.make(system.environment)
            except environments.InstallError as fault:
                self.seen["absent"][system.name] = f"could not be installed: {fault}"
        reason = self.seen["absent"].get(system.name)
        if reason:
            self._say(f"{system.name}: {reason}")
        return not reason

    def _limit(self, number: int, kind: str, when: str) -> None:
        result = limits.measure(self.model.name, kind, self.plan.seconds)
        self.seen["limits"].append({"round": number, "kind": kind, "when": when, **result})
        self._done += self._limit_s
        self._say(f"{'limit: ' + kind:<40} {result['records_per_s']:>9.1f} records/s")

    def _system(self, number: int, system: System, wanted: Sequence[Any]) -> None:
        expected = self._done + self._system_s
        singles, single_type = bodies(system, self.records, 1)
        try:
            with Server(system, self.directory, self.model.task, (singles[0], single_type)) as server:
                self._verify(server, wanted)
                self._settle(server)
                self._done += START_S
                start = {"round": number, "system": system.name, "cold_start_s": server.cold_start_s, "rest_mb": server.pss_mb()}
                for point in self.plan.points:
                    self._point(number, server, point)
                    self._done += self._point_s(point)
                self.seen["starts"].append({**start, "after_mb": server.pss_mb()})
        except (StartError, WrongAnswerError, OSError) as error:
            self.seen["absent"][system.name] = f"round {number + 1}: {error}"
            self._say(f"{system.name}: {error}")
        self._done = expected

    def _verify(self, server: Server, wanted: Sequence[Any]) -> None:
        """The same texts alone and together must give the reference's answers."""
        system = server.system
        for lines, count in ((1, 4), (16, 2)):
            sent, content_type = bodies(system, self.records[: lines * count], lines)
            for index, body in enumerate(sent):
                status, answer = server.post(body, content_type)
                if status != 200:
                    raise WrongAnswerError(f"{system.name} answers {lines} records with {status}: {answer[:200]!r}")
                check(system.name, results(system, answer, lines), wanted[index * lines : (index + 1) * lines])

    def _settle(self, server: Server) -> None:
        """A short load that counts for nothing: lazy initialisation, compilers, allocators."""
        self._load(server, Point(1, 8), 2.0)
        server.wait_until_idle()

    def _point(self, number: int, server: Server, point: Point) -> None:
        system = server.system
        reason = self._refusal(server, number, point)
        entry: dict[str, Any] = {"round": number, "system": system.name, "lines": point.lines, "clients": point.clients}
        if reason:
            self.seen["points"].append({**entry, "left_out": reason})
            self._say(f"{system.name:<40} {point.title:<18} left out: {reason}")
            return
        pace = self._pace(system, number)
        # Some three turns for every client, so that the latencies are not those of the luckiest alone.
        turns_s = 3.0 * point.clients / pace if pace and point.lines == 1 else 0.0
        before = server.cpu_seconds()
        with Watch(server) as watch:
            load = self._load(server, point, max(self.plan.seconds, min(turns_s, self.plan.longest_s / 2)))
        cpu = server.cpu_seconds() - before
        server.wait_until_idle()
        per_1000 = cpu / load.records * 1_000 if load.records else None
        seen = {"records_per_s": load.records_per_s, "p50_ms": load.p50_ms, "p99_ms": load.p99_ms, "failed": load.failed}
        self.seen["points"].append({**entry, **seen, "cpu_s_per_1000": per_1000, "peak_mb": watch.peak_mb})
        self._say(
            f"{system.name:<40} {point.title:<18} {load.records_per_s:>8.1f}/s  p50 {load.p50_ms:>9.1f} ms  "
            f"p99 {load.p99_ms:>9.1f} ms  {per_1000 or 0.0:>6.2f} CPU s/1,000  {watch.peak_mb:>6.0f} MB"
            + (f"  {load.failed} FAILED" if load.failed else "")
        )

    def _refusal(self, server: Server, number: int, point: Point) -> str | None:
        """Why a point is not measured: too large for the system, or too long at the pace it has shown."""
        if point.lines > server.system.largest:
            return f"takes at most {server.system.largest:,} records"
        pace = self._pace(server.system, number)
        expected = point.lines * point.clients / pace if pace else 0.0
        return f"would take {expected:.0f} s" if expected > self.plan.longest_s else None

    def _pace(self, system: System, number: int) -> float:
        """The most records per second that a system has shown in this round; 0 before its first load."""
        own = (entry for entry in self.seen["points"] if entry["system"] == system.name and entry["round"] == number)
        return max((entry.get("records_per_s", 0.0) for entry in own), default=0.0)

    def _load(self, server: Server, point: Point, seconds: float) -> Load:
        sent, content_type = bodies(server.system, self.records, point.lines)
        if point.lines == 1:
            return single_texts(server.port, server.system.path, sent, point.clients, seconds, BENCH / "run" / "wrk")
        return many_lines(server.port, server.system.path, sent, content_type, point.lines, point.clients, seconds)

    @property
    def _limit_s(self) -> float:
        return self.plan.seconds + 6.0

    @property
    def _system_s(self) -> float:
        return START_S + sum(map(self._point_s, self.plan.points))

    def _point_s(self, point: Point) -> float:
        """For the estimate only: large requests outlast the clock."""
        return self.plan.seconds * (1.0 if point.lines < 5_000 else 4.0)

    def _say(self, line: str) -> None:
        elapsed = time.monotonic() - self._started
        share = min(1.0, self._done / self._total)
        left = clock(elapsed / share * (1.0 - share)) if share > 0.02 else "--:--"
        print(f"{clock(elapsed)} · {left} left │ {line}", flush=True)

    def _save(self) -> None:
        unfinished = self.output.with_suffix(".new")
        unfinished.write_text(json.dumps(self.seen, indent=1) + "\n", "utf-8")
        unfinished.rename(self.output)


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    names = [line.split(":", 1)[1].strip() for line in _cpuinfo() if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
    }


def _cpuinfo() -> Iterator[str]:
    yield from Path("/proc/cpuinfo").read_text().splitlines()


def _write_texts(model: Model) -> list[str]:
    """The texts, and a copy on disk for the limits, which run in processes of their own."""
    tokenizer = Tokenizer.from_file(str(prepare(MODELS["minilm"]) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(words: Sequence[str]) -> list[int]:
        return [len(encoding.ids) for encoding in tokenizer.encode_batch(list(words), add_special_tokens=False)]

    records = texts.texts(texts.lengths(TEXTS, SEED, model.longest), count, SEED)
    (BENCH / "models" / f"{model.name}.texts.json").write_text(json.dumps(records), "utf-8")
    return records


def _plan(options: argparse.Namespace) -> Plan:
    plan = QUICK_PLAN if options.quick else FULL
    if options.model != "minilm":
        plan = replace(plan, systems=OTHER_MODELS, points=[point for point in plan.points if point.lines <= 256], limits=("one",))
    changes = {name: value for name in ("systems", "rounds", "seconds") if (value := getattr(options, name))}
    return replace(plan, **changes)


def main() -> int:
    """The command line: measure, then write the table and the plots."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="about five minutes: the product, two peers, few points")
    parser.add_argument("--model", choices=list(MODELS), default="minilm")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), metavar="NAME", help="; ".join(SYSTEMS))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="per point")
    options = parser.parse_args()
    (BENCH / "models").mkdir(parents=True, exist_ok=True)
    # Ended from outside, the server that runs is still stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run = Run(MODELS[options.model], _plan(options))
    run.measure()
    table = run.output.with_name(run.output.name.replace("results", "table")).with_suffix(".md")
    table.write_text(report.markdown(run.seen), "utf-8")
    print(f"\n{table.read_text('utf-8')}\nwritten: {run.output}, {table}")
    return _plots(run.output)


def _plots(measured: Path) -> int:
    """The plots are drawn in an environment of their own, where matplotlib is."""
    try:
        python = environments.make("report")
    except environments.InstallError as fault:
        print(f"no plots: {fault}", file=sys.stderr)
        return 1
    return subprocess.run([str(python), "-m", "benchmarks.plots", str(measured)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
