"""One start: everything that follows from settings, artefact and machine is decided and written; then java runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batch_handler.artefact import TENSOR_TASK, detect
from batch_handler.internal import FAILURE_FILE, WORKER_TEMPLATE
from batch_handler.resources import Resources
from batch_handler.settings import Settings, flag, resolve, response_limit_mb
from entrypoint import (
    devices,
    diagnosis,
    environment,
    foresight,
    gpu_capacity,
    gpu_metrics,
    http,
    model,
    nvml,
    ports,
    process,
    properties,
    report,
    requirements,
    torchserve,
    traces,
)
from entrypoint.capacity import Capacity, capacity, heap_mb
from entrypoint.home import Home
from entrypoint.log import Log
from entrypoint.supervise import Ending, Supervision
from entrypoint.workdir import StartTurn

PLATFORM_TIMEOUT_S = 60
"""How long SageMaker waits for a real-time answer."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a start begins with. ``began`` is time.monotonic() of the very beginning."""

    environment: Mapping[str, str]
    baked: Mapping[str, str]
    resources: Resources
    home: Home
    work: Path
    log: Log
    began: float


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was decided; all files are written, and ``command`` can run."""

    source: model.Source
    launch: torchserve.Launch
    effective: Mapping[str, Any]
    variables: Mapping[str, str]
    command: list[str]


def prepare(given: Given, model_dir: Path, task: str | None, program: str, turn: StartTurn) -> Prepared:
    """Look at the artefact, decide, write. Raises ArtefactError, SettingError, StartError."""
    source = model.open_artefact(detect(model_dir, task, program), given.work, program)
    settings = resolve(given.environment, source.config, given.baked)
    for key in source.unusable_keys:
        ignored = f"{key} in the artefact's {model.MODEL_CONFIG} is ignored: this TorchServe cannot do it"
        given.log.warning(ignored)
    foresight.check_task(settings, source)
    gpus = devices.choose(settings, nvml.inventory(), given.environment, devices.cuda_of_torch(), source.ours)
    if gpus.note:
        given.log.warning(gpus.note)
    if too_late := patience(settings):
        given.log.warning(too_late)
    exporter = traces.exporter(given.environment, given.home)
    packages = install(given, settings, source)
    if settings.safe_port_range is None:
        turn.take()
    ports.check_serving_port(settings)
    launch, token_budget = _decide(given, settings, source, gpus)
    effective = _effective(settings, source, launch) | {"token_budget": token_budget}
    variables = environment.worker_environment(
        given.environment,
        settings,
        effective | {"model_dir": launch.model_directory},
        library=given.home.library,
        work=given.work,
        pool_threads=1 if source.shares_weights else launch.capacity.threads,
        packages=packages,
        devices=gpus.variables(),
        stages=settings.slow_request_ms is not None or bool(exporter),
    )
    return Prepared(source, launch, effective, variables, _write(given, source, launch, exporter))


def run(given: Given, prepared: Prepared, signals: process.Signals, turn: StartTurn, hint: bool) -> int:
    """Run java to its end, say why when that was not in order, leave no process behind; the exit code."""
    launch, settings = prepared.launch, prepared.launch.settings

    def on_answer() -> None:
        turn.give()
        torchserve.check_model(torchserve.model_keys(settings, launch.capacity), launch.ports.management)

    def on_ready() -> None:
        _say_ready(given, prepared, hint)

    known = _circumstances(given, prepared)
    ending = supervised(given, launch, Program(prepared.command, prepared.variables), signals, on_answer, on_ready)
    return told(given, ending, known)


def told(given: Given, ending: Ending, known: diagnosis.Circumstances) -> int:
    """The last line of the log, and the exit code."""
    if sentence := diagnosis.explain(ending, known):
        given.log.error(sentence)
    elif ending.took_s is not None:
        stopped = f"stopped after {ending.took_s:.1f} s: every call was answered, exit 0"
        given.log.info(stopped)
    return ending.exit_code


@dataclass(frozen=True, slots=True)
class Program:
    """java's command line and environment."""

    command: Sequence[str]
    variables: Mapping[str, str]


def supervised(
    given: Given,
    launch: torchserve.Launch,
    program: Program,
    signals: process.Signals,
    on_answer: Callable[[], None],
    on_ready: Callable[[], None],
) -> Ending:
    """Run java to its end and leave no process behind. The callbacks are those of `Supervision.run`."""
    settings = launch.settings
    process.adopt_orphans()
    signals.queue()
    child = process.Child(program.command, program.variables, given.work)
    sampling = gpu_metrics.Sampling(launch.gpu_metrics) if launch.gpus else None
    limits = {"drain_s": torchserve.DRAIN_S, "startup_s": settings.startup_timeout}
    try:
        supervision = Supervision(child, signals, given.log, **limits)
        return supervision.run(http.reachable_address(settings.bind_address), settings.port, on_answer, on_ready)
    finally:
        if sampling is not None:
            sampling.stop()
        process.end_descendants()


def patience(settings: Settings) -> str | None:
    """A warning about batches that are waited for longer than callers wait for their answers."""
    delay_s = settings.max_batch_delay / 1000
    limit_s = settings.response_timeout_s if settings.batch_transform else min(PLATFORM_TIMEOUT_S, settings.response_timeout_s)
    if delay_s <= limit_s:
        return None
    return (
        f"{settings.sources['max_batch_delay']} lets a request wait up to {delay_s:g} s for a batch of {settings.batch_size}, "
        f"and its caller gives up after {limit_s} s: a call that fewer than {settings.batch_size - 1} others join is lost"
    )


def install(given: Given, settings: Settings, source: model.Source) -> Path | None:
    """The artefact's own packages, in the work directory."""
    if source.requirements is None:
        return None
    return requirements.install(source.requirements, given.home.python, given.work, given.environment, settings.allow_install)


def _decide(given: Given, settings: Settings, source: model.Source, gpus: devices.Devices) -> tuple[torchserve.Launch, int]:
    """All that TorchServe is told, and the token budget."""
    share, token_budget = capacity(settings, given.resources, source.shares_weights, source.size), settings.token_budget
    if gpus.gpus:
        kind = {"ours": source.ours, "shares_weights": source.shares_weights}
        of_gpus = gpu_capacity.share(settings, given.resources, gpus, source.directory, source.size, **kind)
        share, token_budget = of_gpus.capacity, of_gpus.token_budget
        if of_gpus.warning:
            given.log.warning(of_gpus.warning)
    launch = torchserve.Launch(
        settings=settings,
        capacity=share,
        ports=ports.choose(settings, share.max_workers),
        home=given.home,
        work=given.work,
        response_mb=response_limit_mb(settings, given.resources.memory_bytes),
        heap_mb=heap_mb(settings, given.resources),
        decode=not source.ours and flag(given.environment.get("TS_DECODE_INPUT_REQUEST") or "false"),
        gpus=len(gpus.gpus),
        template=_template(given, source, share, gpus),
    )
    return launch, token_budget


def _template(given: Given, source: model.Source, share: Capacity, gpus: devices.Devices) -> torchserve.Template:
    """With one worker a template takes some 60 MB more than that worker alone, so it waits for the first that ends; each
    further worker then takes a third of what it would, and a fraction of the time.

    A foreign archive starts as its author knows it. With GPUs nothing of it was tried yet.
    """
    if asked := given.environment.get(WORKER_TEMPLATE):
        return torchserve.Template(asked)
    if not source.ours or gpus.gpus:
        return torchserve.Template.NEVER
    return torchserve.Template.ALWAYS if share.min_workers > 1 else torchserve.Template.RESTARTS


def _effective(settings: Settings, source: model.Source, launch: torchserve.Launch) -> dict[str, Any]:
    """The settings whose values follow from others, by their names."""
    return {
        "task": source.task if source.task in (None, TENSOR_TASK) else settings.task or source.task,
        "min_workers": launch.capacity.min_workers,
        "max_workers": launch.capacity.max_workers,
        "threads": launch.capacity.threads,
        "response_timeout": settings.response_timeout_s,
        "max_response_mb": launch.response_mb,
    }


def _write(given: Given, source: model.Source, launch: torchserve.Launch, exporter: list[str]) -> list[str]:
    """Everything below the work directory; the command line of java."""
    model.build(source, torchserve.model_keys(launch.settings, launch.capacity), launch.model_directory)
    return write_configuration(given, launch, exporter)


def write_configuration(given: Given, launch: torchserve.Launch, exporter: list[str]) -> list[str]:
    """TorchServe's own files and folders; the command line of java."""
    for folder in ("tmp", "store", "cache"):
        (given.work / folder).mkdir()
    configuration = given.work / "config.properties"
    configuration.write_text(properties.render(torchserve.properties(launch, given.baked)), "latin-1")
    command = torchserve.command(launch, given.home.java(), configuration, exporter)
    given.log.debug(" ".join(command))
    given.log.debug(configuration.read_text("latin-1"))
    return command


def _circumstances(given: Given, prepared: Prepared) -> diagnosis.Circumstances:
    return diagnosis.Circumstances(
        failure_file=Path(prepared.variables[FAILURE_FILE]),
        handler=prepared.source.handler,
        ours=prepared.source.ours,
        python=given.home.python,
        environment=prepared.variables,
        model_directory=prepared.launch.model_directory,
        memory_bytes=given.resources.memory_bytes,
        heap_mb=prepared.launch.heap_mb,
        oom_kills_before=diagnosis.oom_kills(),
    )


def _say_ready(given: Given, prepared: Prepared, hint: bool) -> None:
    settings = prepared.launch.settings
    shown = {**prepared.effective, "max_payload_mb": settings.request_limit_mb}
    in_force = {"handler": prepared.source.handler, **report.settings_in_force(settings, shown)}
    seconds = time.monotonic() - given.began
    given.log.info(report.start_line(seconds, settings, given.resources, in_force), {"settings": in_force})
    if given.log.format == "text":
        given.log.info(report.other_settings(in_force))
    if hint:
        if given.log.format == "text":
            print(report.example(settings), flush=True)  # at a terminal: a line to copy, and nothing else on it
        else:
            given.log.info(report.example(settings))
