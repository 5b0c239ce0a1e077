"""A measurement on its way: rounds of systems, limits and workloads, each alone on the machine, and what was seen so far."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import artefacts, environments, limits, report, starts
from benchmarks.answers import AGREEMENT, WrongAnswerError, bodies, check, close, results
from benchmarks.load import Load, many_lines, single_texts
from benchmarks.machine import machine
from benchmarks.models import BENCH, ROOT, Model, prepare
from benchmarks.plan import Plan, Point
from benchmarks.progress import Progress
from benchmarks.servers import Server, StartError, Watch
from benchmarks.systems import SYSTEMS, System
from benchmarks.workloads import large, sizes, trivial

START_S, LIMIT_START_S, WORKLOAD_START_S, LARGE_REQUEST_TURNS = 14.0, 6.0, 8.0, 4.0
"""For the estimate of the time left only."""
WORKLOADS: Mapping[str, Any] = {workload.NAME: workload for workload in (trivial, large, sizes)}
FAULTS = (StartError, WrongAnswerError, OSError, subprocess.SubprocessError)


class Run:
    """`measure` does all rounds; ``seen`` holds every figure, and is written to ``output`` after each system."""

    def __init__(self, model: Model, plan: Plan, records: Sequence[str], other: Sequence[str], output: Path) -> None:
        """`records` are measured; `other` texts are for an export to take its scales from."""
        self.model, self.plan, self.records, self.other, self.output = model, plan, records, other, output
        prepare(model)
        self.seen: dict[str, Any] = {
            "model": {"name": model.name, "title": model.title, "task": model.task},
            "machine": machine(),
            "plan": {
                "rounds": plan.rounds,
                "seconds": plan.seconds,
                "systems": list(plan.systems),
                "texts": len(records),
                "workloads": list(plan.workloads),
            },
            "points": [],
            "starts": [],
            "limits": [],
            "absent": {},
            "agreement": {},
            "bare": [],
            **{name: [] for name in plan.workloads},
        }
        self._progress = Progress(plan.rounds * self._round_s)

    def measure(self) -> None:
        """All rounds. Systems take turns in being first."""
        self._say(f"{self.model.title}: {len(self.plan.systems)} systems, {self.plan.rounds} rounds")
        wanted = limits.reference(self.model.name)
        present = [SYSTEMS[name] for name in self.plan.systems if self._available(SYSTEMS[name])]
        own = [kind for kind in self.plan.own_limits if any(system.limit == kind for system in present)]
        for number in range(self.plan.rounds):
            for kind in own:
                self._limit(number, kind, "start")
            for kind in self.plan.limits:
                self._limit(number, kind, "once")
            self._bare(number)
            turn = number % max(1, len(present))
            for system in present[turn:] + present[:turn]:
                self._system(number, system, wanted)
                self._save()
            for name in self.plan.workloads:
                self._workload(number, name)
            for kind in own:
                self._limit(number, kind, "end")
            self._save()
            self._say(report.drift(self.seen, number))

    def _available(self, system: System) -> bool:
        """Installed, exported, and able to run this model; else the reason goes into the results."""
        if self.model.task not in system.tasks:
            self.seen["absent"][system.name] = f"does not serve {self.model.task}"
        elif reason := self._not_installed(system) or self._not_prepared(system):
            self.seen["absent"][system.name] = reason
        else:
            try:
                artefacts.make(system, self.model, self.records, self.other)
            except artefacts.ExportError as fault:
                self.seen["absent"][system.name] = f"could not be exported: {fault}"
        if measured := artefacts.agreement(system, self.model):
            self.seen["agreement"][system.name] = measured
        reason = self.seen["absent"].get(system.name)
        if reason:
            self._say(f"{system.name}: {reason}")
        return not reason

    def _not_installed(self, system: System) -> str | None:
        try:
            if system.environment is not None:
                environments.make(system.environment)
        except environments.InstallError as fault:
            return f"could not be installed: {fault}"
        return None

    def _not_prepared(self, system: System) -> str | None:
        """What a peer needs once, such as the model in a format of its own."""
        command = system.first_command(artefacts.directory(system, self.model))
        if not command:
            return None
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        said = (run.stderr or run.stdout).strip().splitlines() or ["it ended without a word"]
        return f"could not be prepared: {said[-1][:300]}" if run.returncode else None

    def _limit(self, number: int, kind: str, when: str) -> None:
        title = f"limit: {kind}"
        try:
            result = limits.measure(self.model.name, kind, self.plan.seconds)
            self.seen["limits"].append({"round": number, "kind": kind, "when": when, **result})
            told = f"{result['records_per_s']:>9.1f} records/s"
        except limits.LimitError as error:
            told = self.seen["absent"][title] = str(error).splitlines()[-1]
        self._progress.done_s += self._limit_s
        self._say(f"{title:<40} {told}")

    def _bare(self, number: int) -> None:
        """The start of a bare script and, where there is an engine with the image, of the container."""
        script = starts.bare_script(self.model)
        container = starts.container(self.model)
        known = isinstance(container, float)
        self.seen["bare"].append({"round": number, "script_s": script, "container_s": container if known else None})
        if not known:
            self.seen["absent"]["start of the image"] = container
        self._say(f"{'start: bare script':<40} {script:>9.1f} s; docker run: {f'{container:.1f} s' if known else container}")

    def _system(self, number: int, system: System, wanted: Sequence[Any]) -> None:
        expected = self._progress.done_s + self._system_s(system.name)
        singles, single_type = bodies(system, self.records, 1)
        directory = artefacts.directory(system, self.model)
        try:
            with Server(system, directory, self.model.task, (singles[0], single_type)) as server:
                agreed = self._verify(server, wanted)
                self._settle(server)
                self._progress.done_s += START_S
                start = {"round": number, "system": system.name, "cold_start_s": server.cold_start_s, "rest_mb": server.pss_mb()}
                for point in self.plan.points_of(system.name):
                    self._point(number, server, point)
                    self._progress.done_s += self._point_s(point)
                self.seen["starts"].append({**start, "after_mb": server.pss_mb(), "agreement": agreed})
        except FAULTS as error:
            self.seen["absent"][system.name] = f"round {number + 1}: {error}"
            self._say(f"{system.name}: {error}")
        self._progress.done_s = expected

    def _verify(self, server: Server, wanted: Sequence[Any]) -> float | None:
        """The same texts alone and together must give the reference's answers; how well those of a rounded engine agree."""
        system = server.system
        agreed: list[float] = []
        for lines, count in ((1, 4), (16, 2)):
            sent, content_type = bodies(system, self.records[: lines * count], lines)
            for index, body in enumerate(sent):
                status, answer = server.post(body, content_type)
                if status != 200:
                    raise WrongAnswerError(f"{system.name} answers {lines} records with {status}: {answer[:200]!r}")
                seen, expected = results(system, answer, lines), wanted[index * lines : (index + 1) * lines]
                if system.exact:
                    check(system.name, seen, expected)
                elif lines > 1:
                    agreed.append(close(system.name, seen, expected))
        if not agreed:
            return None
        mean = sum(agreed) / len(agreed)
        self._say(f"{system.name:<40} agrees to {mean:.5f}")
        if mean < AGREEMENT:
            raise WrongAnswerError(f"{system.name} agrees with the model to {mean:.5f} only")
        return mean

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

    def _workload(self, number: int, name: str) -> None:
        """One of the loads that need no model, on each of its servers."""
        workload = WORKLOADS[name]
        for system in workload.SYSTEMS.values():
            title = f"{name}: {system.name}"
            started = time.monotonic()
            reason = self.seen["absent"].get(title) or self._not_installed(system)
            if reason is None:
                try:
                    entry = workload.measure(system, self.plan.seconds)
                    self.seen[name].append({"round": number, "system": system.name, **entry})
                    reason = workload.line(entry)
                except FAULTS as error:
                    reason = self.seen["absent"][title] = f"round {number + 1}: {error}"
            else:
                self.seen["absent"][title] = reason
            self._progress.done_s += WORKLOAD_START_S + self.plan.seconds
            self._say(f"{title:<48} {reason}  ({time.monotonic() - started:.0f} s)")
        self._save()

    @property
    def _round_s(self) -> float:
        servers = sum(len(WORKLOADS[name].SYSTEMS) for name in self.plan.workloads)
        kinds = 2 * len(self.plan.own_limits) + len(self.plan.limits)
        systems = sum(map(self._system_s, self.plan.systems))
        return kinds * self._limit_s + systems + servers * (WORKLOAD_START_S + self.plan.seconds)

    @property
    def _limit_s(self) -> float:
        return self.plan.seconds + LIMIT_START_S

    def _system_s(self, name: str) -> float:
        return START_S + sum(map(self._point_s, self.plan.points_of(name)))

    def _point_s(self, point: Point) -> float:
        """Large requests outlast the clock."""
        return self.plan.seconds * (1.0 if point.lines < 5_000 else LARGE_REQUEST_TURNS)

    def _say(self, line: str) -> None:
        self._progress.say(line)

    def _save(self) -> None:
        unfinished = self.output.with_suffix(".new")
        unfinished.write_text(json.dumps(self.seen, indent=1) + "\n", "utf-8")
        unfinished.rename(self.output)
