"""The environment of java and, through it, of the workers."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batch_handler.internal import EARLY_ANSWERS, FAILURE_FILE, LOG_MARK, STAGES
from batch_handler.settings import TABLE, Settings

# TorchServe reads these by itself, past the configuration that was checked.
UNWANTED = ("TS_CONFIG_FILE", "TS_MODEL_SERVER_HOME", "LOG_LOCATION", "METRICS_LOCATION", "SM_TELEMETRY_LOG")
CACHES = {
    "HF_HOME": "huggingface",
    "TORCH_HOME": "torch",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "XDG_CACHE_HOME": "xdg",
    "MPLCONFIGDIR": "matplotlib",
    "NUMBA_CACHE_DIR": "numba",
}
FIXED = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    EARLY_ANSWERS: "true",
}
# oneDNN keeps code for each shape that it has met, by default 1,024 of them at up to half a megabyte each, and to make it anew
# costs up to a millisecond. The packed engine, which rounds its tokens, shows it some 300; others meet new ones for hours.
# What torch keeps of it besides, thread by thread and by default 1,024 as well (LRU_…), no longer holds what oneDNN let go.
# GNU's OpenMP lets a thread that waits for its team spin for a millisecond; between two operators of a model 30 microseconds do,
# and the core goes back to the tokeniser and to java.
BOUNDED = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "320", "LRU_CACHE_CAPACITY": "64", "GOMP_SPINCOUNT": "10000"}
# What libraries tell their own developers (torch about pynvml, say) is nothing that a reader of the log can act on.
QUIET_WARNINGS = "ignore::FutureWarning,ignore::DeprecationWarning,ignore::PendingDeprecationWarning"
THREAD_POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def worker_environment(
    environment: Mapping[str, str],
    settings: Settings,
    effective: Mapping[str, Any],
    *,
    library: Path,
    work: Path,
    pool_threads: int,
    packages: Path | None = None,
    devices: Mapping[str, str] | None = None,
    failure: Path | None = None,
    stages: bool = False,
) -> dict[str, str]:
    """Everything a worker reads, under the first of its names, so that nobody has to resolve it again.

    ``packages`` are the artefact's own, found after ours; ``devices`` the variables about GPUs;
    ``failure`` is where the worker writes why it cannot load its model.
    ``stages`` says whether the time of every request's stages is taken.
    ``effective`` holds the values that follow from others (threads, limits) by their names in the settings table.
    """
    values = {name: effective.get(name, getattr(settings, name)) for name in TABLE}
    canonical = {TABLE[name].variables[0]: as_text(value) for name, value in values.items() if value is not None}
    pools = dict.fromkeys(THREAD_POOLS, str(pool_threads))
    # glibc gives every thread an arena of its own, up to eight per CPU; only the compute threads earn one.
    arenas = {"MALLOC_ARENA_MAX": str(max(2, int(effective["threads"])))}
    search = [library] if packages is None else [library, packages]
    paths = {"PYTHONPATH": os.pathsep.join(map(str, search)), FAILURE_FILE: str(failure or work / "failure")}
    ours = pools | arenas | canonical | paths | {STAGES: str(stages).lower()} | dict(devices or {})
    return base_environment(environment, work) | ours


def base_environment(environment: Mapping[str, str], work: Path) -> dict[str, str]:
    """The part that says nothing of any model: what was given, and where libraries may write."""
    inherited = BOUNDED | {name: value for name, value in environment.items() if name not in UNWANTED}
    caches = {variable: str(work / "cache" / folder) for variable, folder in CACHES.items()}
    warnings = {"PYTHONWARNINGS": environment.get("PYTHONWARNINGS") or QUIET_WARNINGS}
    # Drawn by chance, so that nothing that a caller sends and a script prints can begin with it; java and all workers share it.
    told = {LOG_MARK: environment.get(LOG_MARK) or secrets.token_hex(8)}
    ours = caches | FIXED | warnings | told | {"TMPDIR": str(work / "tmp")}
    return inherited | _identity(environment, work) | ours


def as_text(value: Any) -> str:
    """A setting's value as its variable would spell it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "-".join(str(part) for part in value)
    return json.dumps(value) if isinstance(value, Mapping) else str(value)


def _identity(environment: Mapping[str, str], work: Path) -> dict[str, str]:
    """A home that can be written and a name, which libraries ask for and an arbitrary uid has not."""
    home = environment.get("HOME", "")
    usable = bool(home) and home != "/" and os.access(home, os.W_OK | os.X_OK)
    return {"HOME": home if usable else str(work), "USER": environment.get("USER") or "byoc"}
