"""A start without a model: java alone, ready at once; the models come and go by the frontend's ``/models``.

Owns what is decided once for all of them (ports, heap, GPUs). What is decided for each is `preparation`'s.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from batch_handler.internal import GPUS, STAGES, WORKER_TEMPLATE
from batch_handler.settings import Settings, response_limit_mb
from entrypoint import devices, diagnosis, environment, nvml, ports, report, torchserve, traces
from entrypoint.capacity import Capacity, heap_mb
from entrypoint.devices import Devices
from entrypoint.process import Signals
from entrypoint.start import Given, Program, supervised, told, write_configuration
from entrypoint.workdir import StartTurn

MODELS = "models"
"""The folder below the work directory with one for each model."""


def serve(given: Given, settings: Settings, signals: Signals, turn: StartTurn) -> int:
    """Run java to its end; the exit code. Raises SettingError, StartError."""
    gpus = devices.choose(settings, nvml.inventory(), given.environment, devices.cuda_of_torch(), ours=True)
    if gpus.note:
        given.log.warning(gpus.note)
    if settings.safe_port_range is None:
        turn.take()
    ports.check_serving_port(settings)
    launch = torchserve.Launch(
        settings=settings,
        # One worker for each model; the processors are what bounds how many are loaded at once.
        capacity=Capacity(1, 1, given.resources.whole_cpus),
        ports=ports.choose(settings, 1),
        home=given.home,
        work=given.work,
        response_mb=response_limit_mb(settings, given.resources.memory_bytes),
        heap_mb=heap_mb(settings, given.resources),
        decode=False,
        gpus=len(gpus.gpus),
        # Models come and go: what all of their workers import is imported once. With GPUs nothing of it was tried yet.
        template=torchserve.Template(given.environment.get(WORKER_TEMPLATE) or ("never" if gpus.gpus else "always")),
    )
    (given.work / MODELS).mkdir()
    variables = environment.base_environment(given.environment, given.work) | gpus.variables()
    exporter = traces.exporter(given.environment, given.home)
    variables[STAGES] = str(settings.slow_request_ms is not None or bool(exporter)).lower()
    program = Program(write_configuration(given, launch, exporter), variables)
    ending = supervised(given, launch, program, signals, turn.give, lambda: _say_ready(given, settings))
    return told(given, ending, _circumstances(given, launch, variables))


def chosen_gpus(variables: Mapping[str, str]) -> Devices:
    """The GPUs that `serve` chose, as they are now."""
    found = {gpu.identifier: gpu for gpu in nvml.inventory().gpus} if variables.get(GPUS) else {}
    return Devices(tuple(found[one] for one in variables.get(GPUS, "").split(",") if one in found))


def _say_ready(given: Given, settings: Settings) -> None:
    in_force = report.settings_in_force(settings, {"model_dir": None, "max_payload_mb": settings.request_limit_mb})
    seconds = time.monotonic() - given.began
    given.log.info(report.start_line(seconds, settings, given.resources, in_force), {"settings": in_force})
    if given.log.format == "text":
        given.log.info(report.other_settings(in_force))


def _circumstances(given: Given, launch: torchserve.Launch, variables: Mapping[str, str]) -> diagnosis.Circumstances:
    """What there is to know of java's end; that of a model is told to whoever loads it."""
    return diagnosis.Circumstances(
        failure_file=Path("/nonexistent"),
        handler="",
        ours=True,
        python=given.home.python,
        environment=variables,
        model_directory=given.work,
        memory_bytes=given.resources.memory_bytes,
        heap_mb=launch.heap_mb,
        oom_kills_before=diagnosis.oom_kills(),
    )
