"""How many workers a GPU holds and how many tokens their forward passes may have: from its free memory.

The estimate errs on the large side; a pass that does not fit after all is halved by the worker, which remembers it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batch_handler.resources import Resources
from batch_handler.settings import MIB, Settings
from entrypoint.capacity import Capacity, bounds
from entrypoint.devices import Devices

TOKEN_BUDGET = 16_384
"""Tokens of a forward pass where nobody set them: a GPU is idle below some thousands."""
LEAST_BUDGET = 1_024
LANES = 2
"""Lanes of our workers, each with its stream: one tokenises, copies and decodes while the other's kernels run."""
OURS_AT_MOST = 2
"""Workers of ours on a GPU: a second interpreter feeds it where the first is short of time; a third waits for the GPU."""
CONTEXT_BYTES = 600 * MIB
"""What CUDA, cuBLAS and torch's kernels take of a GPU in each process."""
MEMORY_SHARE = 0.8
BYTES_PER_NUMBER = 4
WIDTHS = (("hidden_size", "d_model", "n_embd", "dim"), ("intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "n_inner"))
"""Names that configurations give to the width of a model and of its feed-forward layers."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one GPU is divided into. ``warning`` says that the model is larger than what is free."""

    capacity: Capacity
    token_budget: int
    warning: str | None = None


def share(
    settings: Settings,
    resources: Resources,
    devices: Devices,
    directory: Path,
    model_bytes: int,
    *,
    ours: bool,
    shares_weights: bool,
) -> Share:
    """Workers over all GPUs, lanes of each, and the token budget. Settings override all three."""
    lanes = settings.threads or (LANES if shares_weights else 1)
    per_token = lanes * activation_bytes(directory) if ours else 0
    model = _resident(directory, model_bytes, ours)
    usable = int(MEMORY_SHARE * devices.free_bytes)
    budget = settings.token_budget
    if settings.sources.get("token_budget") == "default":
        budget = fitting_budget(usable - model, per_token)
    need = model + per_token * budget
    cpus = max(1, int(resources.cpus / len(devices.gpus)))
    most = min(cpus, OURS_AT_MOST) if shares_weights else cpus
    per_gpu = max(1, min(most, usable // need))
    low, high = bounds(settings, per_gpu * len(devices.gpus))
    threads = settings.threads or (LANES if shares_weights else max(1, int(resources.cpus / low)))
    return Share(Capacity(low, high, threads), budget, _warning(devices, low, need, usable))


def least_bytes(directory: Path, model_bytes: int, *, ours: bool) -> int:
    """What a worker takes of a GPU with one lane and the smallest passes."""
    passes = activation_bytes(directory) * LEAST_BUDGET if ours else 0
    return _resident(directory, model_bytes, ours) + passes


def _resident(directory: Path, model_bytes: int, ours: bool) -> int:
    """CUDA's part and the weights, which are loaded in 32 bits or, by a foreign handler, copied once."""
    return CONTEXT_BYTES + (1 if ours and not _is_halved(directory) else 2) * model_bytes


def fitting_budget(free_bytes: int, per_token: int) -> int:
    """The largest halving of TOKEN_BUDGET whose activations fit, but no less than LEAST_BUDGET."""
    budget = TOKEN_BUDGET
    while budget > LEAST_BUDGET and per_token * budget > free_bytes:
        budget //= 2
    return budget


def activation_bytes(directory: Path) -> int:
    """What one token takes while a layer runs: its input, queries, keys, values, attention's output and sum, and the
    feed-forward layer's two wide sides; at least 64 KiB where the configuration does not tell the widths."""
    configuration = _configuration(directory)
    hidden, wide = (max((_number(configuration.get(name)) for name in names), default=0) for names in WIDTHS)
    if not hidden:
        return 64 * 1024
    return BYTES_PER_NUMBER * (8 * hidden + 2 * (wide or 4 * hidden))


def _warning(devices: Devices, workers: int, need: int, usable: int) -> str | None:
    gpus = len(devices.gpus)
    if workers < gpus:
        return f"{workers} of {gpus} GPUs are used: a worker has one, and no more workers are wanted"
    each = -(-workers // gpus)
    if need * each > usable:
        return (
            f"{each} worker(s) on a GPU take about {need * each // MIB:,} MiB in full passes, and "
            f"{devices.free_bytes // MIB:,} MiB are free: if they do not fit, use fewer workers or a smaller BYOC_TOKEN_BUDGET"
        )
    return None


def _is_halved(directory: Path) -> bool:
    """Whether the weights are stored in 16 bits; they are loaded in 32."""
    configuration = _configuration(directory)
    return str(configuration.get("dtype") or configuration.get("torch_dtype")) in ("float16", "bfloat16")


def _configuration(directory: Path) -> Mapping[str, Any]:
    """The artefact's config.json, of the encoder where a sentence-transformers directory keeps it in a folder."""
    for path in (directory / "config.json", directory / "0_Transformer" / "config.json"):
        try:
            value = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        return value if isinstance(value, dict) else {}
    return {}


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
