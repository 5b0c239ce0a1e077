"""CUDA graphs of one forward pass by the shapes of its inputs: recorded, kept, replayed and dropped.

Each lane records its own and keeps them in one pool of memory: replays of one lane follow one another, so they may share
it, and those of two lanes overlap, so they may not. Source: torch's notes on CUDA graphs (private pools, capture modes).
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from batch_handler.device import to_device

log = logging.getLogger(__name__)

Tensors = Mapping[str, torch.Tensor]
Forward = Callable[[Tensors], torch.Tensor]
Key = tuple[tuple[str, tuple[int, ...]], ...]

REPLAYED_AFTER = 3
"""Passes of a shape without a graph before one is recorded: a shape that comes once is not worth it, and what libraries
set up at a first call must not become part of it."""
KEPT = 64
"""Graphs that a lane keeps, the latest used: each holds its inputs, and what the driver needs for some hundred nodes."""
_recording = threading.Lock()


class Recorder(Protocol):
    """What records and replays; on a GPU, `CudaRecorder`."""

    def record(self, forward: Forward, inputs: Tensors) -> Recorded:
        """Record a pass that reads these very tensors. Raises what the device raises."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A pass that reads ``inputs`` and writes ``output`` whenever ``replay`` is called."""

    inputs: Tensors
    output: torch.Tensor
    replay: Callable[[], Any]


@dataclass(slots=True)
class Lane:
    """What one thread has: its graphs, latest used last, how often it saw each shape without, and its memory."""

    recorder: Recorder
    graphs: OrderedDict[Key, Recorded] = field(default_factory=OrderedDict)
    seen: Counter[Key] = field(default_factory=Counter)


class Graphs:
    """Runs passes on a device, replaying what it has recorded. On a CPU there is nothing to record, and passes just run."""

    def __init__(self, where: torch.device, recorder: Callable[[], Recorder] | None = None) -> None:
        self._where = where
        self._recorder = recorder or (CudaRecorder if where.type == "cuda" else None)
        self._lanes = threading.local()

    def run(self, forward: Forward, inputs: Tensors) -> torch.Tensor:
        """The output of `forward` over `inputs`, which lie on the CPU. It is valid until the same thread runs again."""
        lane = self._lane()
        if lane is None:
            return forward(self._copied(inputs))
        key: Key = tuple((name, tuple(tensor.shape)) for name, tensor in inputs.items())
        recorded = lane.graphs.get(key)
        if recorded is None and lane.seen[key] >= REPLAYED_AFTER:
            recorded = self._record(lane, key, forward, inputs)
        if recorded is None:
            lane.seen[key] += 1
            return forward(self._copied(inputs))
        lane.graphs.move_to_end(key)
        for name, tensor in inputs.items():
            source = tensor.pin_memory() if self._where.type == "cuda" else tensor
            recorded.inputs[name].copy_(source, non_blocking=True)
        recorded.replay()
        return recorded.output

    def _lane(self) -> Lane | None:
        if self._recorder is None:
            return None
        lane: Lane | None = getattr(self._lanes, "lane", None)
        if lane is None:
            lane = self._lanes.lane = Lane(self._recorder())
        return lane

    def _record(self, lane: Lane, key: Key, forward: Forward, inputs: Tensors) -> Recorded | None:
        """A new graph; None where it cannot be recorded, for want of memory or because of what the pass does."""
        try:
            with _recording:  # torch records in one stream of its own
                recorded = lane.recorder.record(forward, self._copied(inputs))
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                log.warning("no memory is left for another graph: this shape runs without, and comes again later")
                lane.seen[key] = 0
            else:
                log.warning("a pass cannot be recorded as a CUDA graph (%s): passes run without", type(error).__name__)
                self._recorder = None
            return None
        lane.graphs[key] = recorded
        del lane.seen[key]
        if len(lane.graphs) > KEPT:
            lane.graphs.popitem(last=False)
        return recorded

    def _copied(self, inputs: Tensors) -> Tensors:
        return {name: to_device(tensor, self._where) for name, tensor in inputs.items()}


class CudaRecorder:
    """Records on the current GPU, into a pool of memory of its own. Made on the thread that will use it."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, forward: Forward, inputs: Tensors) -> Recorded:
        """Record a pass; other threads' kernels go on meanwhile."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.current_stream().synchronize()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            output = forward(inputs)
        return Recorded(inputs, output, graph.replay)
