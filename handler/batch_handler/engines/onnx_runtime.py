"""onnxruntime behind an exported engine: one set of weights, one core per call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnxruntime

from batch_handler.engines.exported import Array, Run

ERRORS_ONLY = 3


class OnnxRuntime:
    """Sessions whose calls run in the caller's thread; any number of threads may call."""

    def __init__(self) -> None:
        self._options = onnxruntime.SessionOptions()
        self._options.intra_op_num_threads = 1
        self._options.inter_op_num_threads = 1
        self._options.log_severity_level = ERRORS_ONLY
        # It would keep a plan of memory for every length that it has seen.
        self._options.enable_mem_pattern = False

    def load(self, path: Path) -> Run:
        """Read a piece."""
        session = onnxruntime.InferenceSession(str(path), self._options, providers=["CPUExecutionProvider"])
        names = [node.name for node in session.get_inputs()]

        def run(taken: Sequence[Array]) -> Sequence[Array]:
            outputs: Sequence[Array] = session.run(None, dict(zip(names, taken, strict=True)))
            return outputs

        return run

    def room(self, tokens: int) -> int:
        """As many as there are: nothing is kept by length."""
        return tokens


def start(precision: str, lanes: int) -> OnnxRuntime:
    """onnxruntime on the CPU, in the precision of the file, for any number of lanes."""
    return OnnxRuntime()
