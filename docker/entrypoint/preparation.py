"""One model of a multi-model endpoint: looked at, decided, written down for TorchServe. The order of steps is `start.prepare`'s.

Each model has a folder of its own below the work directory: ``model/`` for TorchServe, ``environment.json`` for its
worker, ``failure`` for what that worker has to say, and whatever was unpacked or installed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from batch_handler.artefact import detect
from batch_handler.internal import FAILURE_FILE, STAGES
from batch_handler.settings import Settings, resolve, response_limit_mb
from entrypoint import diagnosis, environment, foresight, gpu_capacity, model, model_memory, torchserve
from entrypoint.capacity import Capacity, capacity
from entrypoint.devices import Devices
from entrypoint.multi_model import chosen_gpus
from entrypoint.start import Given, install

DIRECTORY = "model"
ENVIRONMENT = "environment.json"
FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Ready:
    """A model that TorchServe can load. ``gpu_bytes`` is 0 where there are no GPUs."""

    source: model.Source
    directory: Path
    workers: int
    host_bytes: int
    gpu_bytes: int
    oom_kills_before: int
    variables: Mapping[str, str]


def prepare(given: Given, place: Path, artefact: Path, overheads: model_memory.Overheads) -> Ready:
    """Make the model in `artefact` ready in the new folder `place`, which is removed again when it cannot be.

    Raises ArtefactError, SettingError, StartError, OSError.
    """
    place.mkdir()
    try:
        return _prepare(replace(given, work=place), given.work, artefact, overheads)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def _prepare(given: Given, shared: Path, artefact: Path, overheads: model_memory.Overheads) -> Ready:
    first = resolve(given.environment, None, given.baked)
    source = model.open_artefact(detect(artefact, first.task, first.program), given.work, first.program)
    settings = resolve(given.environment, source.config, given.baked)
    for key in source.unusable_keys:
        ignored = f"{key} in {artefact / model.MODEL_CONFIG} is ignored: this TorchServe cannot do it"
        given.log.warning(ignored)
    foresight.check_task(settings, source)
    packages = install(given, settings, source)
    gpus = chosen_gpus(given.environment)
    share, token_budget = _share(given, settings, source, gpus)
    directory = given.work / DIRECTORY
    model.build(source, torchserve.model_keys(settings, share), directory)
    effective = {
        "task": settings.task or source.task,
        "min_workers": share.min_workers,
        "max_workers": share.max_workers,
        "threads": share.threads,
        "response_timeout": settings.response_timeout_s,
        "max_response_mb": response_limit_mb(settings, given.resources.memory_bytes),
        "token_budget": token_budget,
        "model_dir": directory,
    }
    variables = environment.worker_environment(
        given.environment,
        settings,
        effective,
        library=given.home.library,
        work=shared,
        pool_threads=1 if source.shares_weights else share.threads,
        packages=packages,
        failure=given.work / FAILURE,
        stages=given.environment.get(STAGES) == "true",
    )
    different = {name: value for name, value in variables.items() if given.environment.get(name) != value}
    (given.work / ENVIRONMENT).write_text(json.dumps(different), "utf-8")
    on_gpu = gpu_capacity.least_bytes(source.directory, source.size, ours=source.ours) if gpus.gpus else 0
    host = share.min_workers * overheads.needed(source.ours, source.size)
    gpu = share.min_workers * on_gpu
    return Ready(source, directory, share.min_workers, host, gpu, diagnosis.oom_kills(), variables)


def _share(given: Given, settings: Settings, source: model.Source, gpus: Devices) -> tuple[Capacity, int]:
    """One worker unless somebody says more, whoever's handler it is: its neighbours need room."""
    share = capacity(settings, given.resources, True, source.size)
    if not gpus.gpus:
        return share, settings.token_budget
    kind = {"ours": source.ours, "shares_weights": source.shares_weights}
    of_gpus = gpu_capacity.share(settings, given.resources, gpus, source.directory, source.size, **kind)
    return Capacity(share.min_workers, share.max_workers, of_gpus.capacity.threads), of_gpus.token_budget


def explain(given: Given, ready: Ready) -> str | None:
    """Why the worker could not load the model, in its own words where it had any."""
    return diagnosis.told_or_imported(
        diagnosis.Circumstances(
            failure_file=Path(ready.variables[FAILURE_FILE]),
            handler=ready.source.handler,
            ours=ready.source.ours,
            python=given.home.python,
            environment=ready.variables,
            model_directory=ready.directory,
            memory_bytes=given.resources.memory_bytes,
            heap_mb=0,
            oom_kills_before=ready.oom_kills_before,
        )
    )


def discard(place: Path) -> None:
    """Remove all that belongs to a model. Its folder may be gone already."""
    shutil.rmtree(place, ignore_errors=True)
    if place.exists():
        raise OSError(f"{os.fspath(place)} cannot be removed")
