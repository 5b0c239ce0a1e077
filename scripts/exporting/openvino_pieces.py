"""Pieces for OpenVINO: converted, and with NNCF rounded to 8 bits where that is wanted.

Sources: NNCF's pages on post-training quantisation and on weight compression.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy

from batch_handler.engines.exported import Array, Exported, Run
from batch_handler.engines.openvino_runtime import OpenVino
from exporting.cutting import Cut, quiet

SUFFIX = ".xml"
Advance = Callable[[], object]
Pieces = dict[str, Any]
"""File name → OpenVINO's model."""


def converted(cut: Cut, advance: Advance) -> Pieces:
    """Every piece in full precision."""
    import openvino

    pieces: Pieces = {}
    for part in cut.parts:
        with quiet():
            pieces[part.piece.file] = openvino.convert_model(part.program())
        advance()
    return pieces


def with_rounded_weights(pieces: Pieces, advance: Advance) -> Pieces:
    """Weights as 8-bit numbers with a scale for each output channel; activations are rounded as they come, token by token."""
    import nncf

    for name, model in pieces.items():
        with silence(), quiet():
            pieces[name] = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
        advance()
    return pieces


def rounded(pieces: Pieces, calls: dict[str, list[list[Array]]], advance: Advance) -> Pieces:
    """Weights and activations as 8-bit numbers, the activations' scales fixed by what was seen in `calls` (file → inputs).

    Fixed scales are what keeps an answer independent of its neighbours.
    """
    import nncf

    for name, model in pieces.items():
        seen = calls[name]
        with silence(), quiet():
            pieces[name] = nncf.quantize(
                model,
                nncf.Dataset(seen, lambda inputs: inputs),
                model_type=nncf.ModelType.TRANSFORMER,
                preset=nncf.QuantizationPreset.MIXED,
                subset_size=len(seen),
            )
        calls[name] = []  # the memory goes to the next piece
        advance()
    return pieces


def recorded(model: Any, cut: Cut, pieces: Pieces, batches: Sequence[Any], advance: Advance) -> dict[str, list[list[Array]]]:
    """What every piece is given when the batches run in full precision: file → one list of inputs per batch."""
    runtime = OpenVino("fp32", lanes=1)
    calls: dict[str, list[list[Array]]] = {name: [] for name in pieces}

    def noting(name: str) -> Run:
        run = runtime.compiled(pieces[name])

        def noted(taken: Sequence[Array]) -> Sequence[Array]:
            calls[name].append([numpy.array(value) for value in taken])
            return run(taken)

        return noted

    engine = Exported(model, cut.plan, cut.output, {name: noting(name) for name in pieces})
    for batch in batches:
        engine.states(batch)
        advance()
    return calls


def save(pieces: Pieces, folder: Path) -> None:
    """Into a folder: an .xml and a .bin each, weights in the precision that they have."""
    import openvino

    for name, model in pieces.items():
        openvino.save_model(model, folder / name, compress_to_fp16=False)


@contextlib.contextmanager
def silence() -> Any:
    """NNCF draws bars of its own, one for every piece and algorithm."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
