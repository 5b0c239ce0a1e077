"""OpenVINO behind an exported engine: one set of weights, one core per call, memory that stays bounded.

Sources: the properties of OpenVINO's CPU device (``ov::hint::inference_precision``, ``ov::num_streams``,
``ov::hint::dynamic_quantization_group_size``).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openvino

from batch_handler.engines.exported import Array, Run

STEP = 8
STEPS_PER_OCTAVE = 16
GROUP = 32
"""Activations that share a scale where they meet 8-bit weights: always of one token, so that no neighbour has a say."""


class OpenVino:
    """Pieces compiled for as many streams as lanes, each of one thread. Precision is set, never left to the CPU's taste."""

    def __init__(self, precision: str, lanes: int) -> None:
        self._core = openvino.Core()
        self._settings = {
            "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(GROUP if precision == "int8-weights" else 0),
            "NUM_STREAMS": str(lanes),
            "INFERENCE_NUM_THREADS": str(lanes),
            "ENABLE_CPU_PINNING": False,
        }

    def load(self, path: Path) -> Run:
        """Read and compile a piece."""
        return self.compiled(self._core.read_model(path))

    def compiled(self, model: Any) -> Run:
        """A piece in memory, ready to run."""
        compiled = self._core.compile_model(model, "CPU", self._settings)
        count = len(compiled.outputs)
        requests = threading.local()

        def run(taken: Sequence[Array]) -> Sequence[Array]:
            try:
                request = requests.mine
            except AttributeError:
                request = requests.mine = compiled.create_infer_request()
            request.infer(list(taken), share_inputs=True, share_outputs=True)
            return [request.get_output_tensor(place).data for place in range(count)]

        return run

    def room(self, tokens: int) -> int:
        """OpenVINO keeps kernels for every length that it has seen, so a row gets one of few: 16 per doubling."""
        step = max(STEP, (1 << (tokens - 1).bit_length()) // (2 * STEPS_PER_OCTAVE))
        return -(-tokens // step) * step


def start(precision: str, lanes: int) -> OpenVino:
    """OpenVINO on the CPU."""
    return OpenVino(precision, lanes)
