"""How many workers, how many threads each, and how large the JVM's heap may grow: from what the container may use."""

from __future__ import annotations

from dataclasses import dataclass

from batch_handler.resources import Resources
from batch_handler.settings import MIB, Settings, response_limit_mb

# A foreign handler's worker: Python with torch, and a model that is held once, copied once while loading and used.
WORKER_BYTES = 400 * MIB
MODEL_COPIES = 2.5
MEMORY_SHARE = 0.8

# Netty and TorchServe hold a body as received, as a job and as a message to the worker; an answer likewise.
HEAP_BASE_MB = 64
REQUEST_COPIES = 6
RESPONSE_COPIES = 3
HEAP_LOWEST_MB = 96
HEAP_SHARE = 4


@dataclass(frozen=True, slots=True)
class Capacity:
    """Workers that TorchServe starts (``min_workers``; it never adds others by itself) and compute threads of each."""

    min_workers: int
    max_workers: int
    threads: int


def capacity(settings: Settings, resources: Resources, ours: bool, model_bytes: int) -> Capacity:
    """One worker for our handler, which shares one set of weights between its threads; one per CPU for a foreign one.

    ``model_bytes`` is the size of the unpacked artefact. Settings override: a bound that is not set follows the other.
    """
    low, high = bounds(settings, 1 if ours else foreign_workers(resources, model_bytes))
    threads = settings.threads or max(1, int(resources.cpus / low))
    return Capacity(low, high, threads)


def bounds(settings: Settings, default: int) -> tuple[int, int]:
    """The fewest and the most workers: as set, or where one or both are not, as many as `default` or the other bound allow."""
    low, high = settings.min_workers, settings.max_workers
    low = min(default, high or default) if low is None else low
    high = max(default, low) if high is None else high
    return low, high


def foreign_workers(resources: Resources, model_bytes: int) -> int:
    """One worker per whole CPU, as long as all of them fit into four fifths of the memory; at least one."""
    if resources.memory_bytes is None:
        return resources.whole_cpus
    fitting = int(MEMORY_SHARE * resources.memory_bytes / (MODEL_COPIES * model_bytes + WORKER_BYTES))
    return max(1, min(resources.whole_cpus, fitting))


def heap_mb(settings: Settings, resources: Resources) -> int:
    """The heap's bound in MiB: 64 + 6 × request limit + 3 × response limit, within a quarter of the memory, or 96.

    Netty may use as much again outside the heap while bodies pass.
    """
    response = response_limit_mb(settings, resources.memory_bytes)
    wanted = HEAP_BASE_MB + REQUEST_COPIES * settings.request_limit_mb + RESPONSE_COPIES * response
    if resources.memory_bytes is None:
        return wanted
    return max(HEAP_LOWEST_MB, min(wanted, resources.memory_bytes // MIB // HEAP_SHARE))
