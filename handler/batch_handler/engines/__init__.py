"""Engines: how an encoder's forward pass runs. The exact ones give the same answers and differ in what they waste; those
that were exported in a lower precision are served only where the artefact brings them.

An engine takes token sequences and returns hidden states without padding, or logits; tasks decide what to make of them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from batch_handler.artefact import ArtefactError
from batch_handler.settings import SettingError

log = logging.getLogger(__name__)

ROUNDING = ("tf32", "bf16", "fp16")
PACKED = "packed"
PACKAGE = "package the model with scripts/package_model.py --engine"


@dataclass(frozen=True, slots=True)
class Tokens:
    """One tokenised record: token ids and, for pairs of texts, which text each token belongs to."""

    ids: Sequence[int]
    types: Sequence[int]


def per_token_logits(output: Any) -> torch.Tensor:
    """Rows × tokens × labels from what a head returned; the two logits of a question-answering head stand as labels."""
    logits: torch.Tensor = (
        torch.stack([output.start_logits, output.end_logits], dim=-1) if "start_logits" in output else output.logits
    )
    return logits


class Engine(Protocol):
    """The forward pass of an encoder over several records at once. Safe to call from several threads.

    ``padded`` says whether a pass pads; fewer than ``team_tokens`` tokens are done sooner by one pass on all cores than by
    one on each, which would read all weights for its share of them.
    """

    name: str
    padded: bool
    team_tokens: int

    def hidden(self, records: Sequence[Tokens]) -> torch.Tensor:
        """Last hidden states of all records one after the other: total tokens × hidden size, no padding."""

    def logits(self, records: Sequence[Tokens]) -> torch.Tensor:
        """What the classification head says: records × labels."""

    def token_logits(self, records: Sequence[Tokens], kept: Sequence[int] | None = None) -> torch.Tensor:
        """What a head that judges every token says: total tokens × labels, no padding.

        ``kept`` are places in that row of tokens: only theirs are wanted, in this order. A head of several outputs (where
        a span starts and ends) gives them as labels.
        """


def choose(
    model: Any,
    wanted: str,
    head: bool,
    per_token: bool = False,
    directory: Path | None = None,
    precision: str = "auto",
    lanes: int = 1,
) -> Engine:
    """The engine that the artefact in `directory` brings, else the fastest exact one that the model's architecture allows.

    `head` says that the model classifies, `per_token` that it does so token by token; `lanes` threads will call.
    ``packed`` is checked against ``eager`` on the model's own weights; where it cannot run or differs by more than 2e-5,
    ``eager`` serves. ``bf16`` makes it round, which it does for nobody who did not ask. An engine that the artefact brings
    is never replaced in silence: raises SettingError or ArtefactError when it cannot run, or when `wanted` or `precision`
    ask for what is not there.
    """
    from batch_handler.engines import manifest
    from batch_handler.engines.checks import Use

    use = Use(head, per_token)
    if wanted in ("packed", "eager", "graphs"):
        packaged = None
    else:
        packaged = manifest.find(directory) if directory else None
        if wanted != "auto" and (packaged is None or packaged.engine != wanted):
            found = f"{packaged.engine}'s" if packaged else "none"
            raise SettingError(
                f"BYOC_ENGINE={wanted}, but the engine in the artefact is {found}: {PACKAGE} {wanted}, or use auto"
            )
    if packaged is not None and packaged.engine == PACKED:
        if precision == "auto" and model.device.type == "cpu":
            precision = packaged.precision
        packaged = None
    if packaged is None or directory is None:
        if precision == "bf16" and model.device.type == "cpu":
            return _in_bf16(model, wanted, use)
        if precision not in ("auto", "fp32") and model.device.type != "cuda":
            raise SettingError(
                f"BYOC_PRECISION={precision} needs an engine in the artefact: {PACKAGE} openvino --precision {precision}"
            )
        return _of_torch(model, wanted, use, precision not in ROUNDING)
    return _packaged(model, packaged, directory, use, precision, lanes)


def _of_torch(model: Any, wanted: str, use: Any, exactly: bool) -> Engine:
    """Packed (on a GPU: graphs) where it fits, else eager. Raises SettingError where one is wanted and does not fit.

    `exactly` is said of models that compute in fp32: only they can be held to AGREEMENT.
    """
    from batch_handler.engines.checks import AGREEMENT, exact, fitting_head, samples
    from batch_handler.engines.eager import Eager

    eager = Eager(model)
    if wanted == "eager":
        return eager
    if wanted == "graphs" or (wanted == "auto" and model.device.type == "cuda"):
        return _on_a_gpu(model, wanted, use, eager, samples(model), exactly)
    try:
        from batch_handler.engines.packed import Packed  # transformers 4 lacks what it builds on

        records = samples(model)
        packed = Packed(model, fitting_head(model, eager, use, records))
        difference = exact(packed, eager, use, records)
    except Exception as error:  # noqa: BLE001 - any architecture may fail in its own way, and eager serves it
        log.info("the packed engine does not fit %s (%s)", type(model).__name__, type(error).__name__)
        difference = float("inf")
    if difference <= AGREEMENT:
        return packed
    if wanted == "packed":
        raise SettingError(f"BYOC_ENGINE=packed does not fit {type(model).__name__}: use auto or eager")
    log.info("engine eager: packed differs from it by %.1e on this model", difference)
    return eager


def _in_bf16(model: Any, wanted: str, use: Any) -> Engine:
    """Packed, its linear layers multiplying in bf16. Raises SettingError where that does not pay, or does not fit."""
    from batch_handler.engines.checks import alike, independent, samples
    from batch_handler.engines.linear import multiplies_bf16

    if wanted == "eager":
        raise SettingError("BYOC_PRECISION=bf16, but BYOC_ENGINE=eager computes in fp32 on the CPU: use BYOC_ENGINE=auto")
    if not multiplies_bf16():
        raise SettingError(
            "BYOC_PRECISION=bf16 needs a CPU with AMX (Intel Xeon from 2023 on, as in m7i and c7i instances) and is slower than "
            "fp32 on this one: use BYOC_PRECISION=fp32"
        )
    exact = _of_torch(model, wanted, use, exactly=True)
    if exact.name == PACKED:
        from batch_handler.engines.packed import Packed

        rounded, records = Packed(model, exact.head, torch.bfloat16), samples(model)  # type: ignore[attr-defined]  # a packed one's
        if alike(rounded, exact, records) and independent(rounded, records):
            return rounded
    raise SettingError(f"BYOC_PRECISION=bf16 does not fit {type(model).__name__} on the CPU: use BYOC_PRECISION=fp32")


def _on_a_gpu(model: Any, wanted: str, use: Any, eager: Engine, records: Sequence[Tokens], exactly: bool) -> Engine:
    """Graphs where they fit, else eager. Raises SettingError where graphs are wanted and there is no GPU, or they do not fit."""
    if model.device.type != "cuda":
        raise SettingError("BYOC_ENGINE=graphs needs a GPU, and this model runs on the CPU: use auto, packed or eager")
    try:
        from batch_handler.engines.cuda import fitting  # transformers 4 lacks what it builds on
    except ImportError:
        return eager
    engine = fitting(model, eager, use, records, exactly)
    if wanted == "graphs" and engine is eager:
        raise SettingError(f"BYOC_ENGINE=graphs does not fit {type(model).__name__}: use auto or eager")
    return engine


def _packaged(model: Any, packaged: Any, directory: Path, use: Any, precision: str, lanes: int) -> Engine:
    """The engine that was exported with the model, held to what it promises."""
    from batch_handler.engines.checks import AGREEMENT, alike, exact, fitting_head, samples
    from batch_handler.engines.eager import Eager
    from batch_handler.engines.exported import open_engine
    from batch_handler.engines.manifest import AGAIN, FOLDER

    served = packaged.precision if precision == "auto" else precision
    if served != packaged.precision and not ({served, packaged.precision} <= {"fp32", "bf16"} and packaged.engine == "openvino"):
        raise SettingError(
            f"BYOC_PRECISION={precision}, but the artefact's {FOLDER}/ is {packaged.precision}: "
            f"{PACKAGE} {packaged.engine} --precision {precision}, or use auto"
        )
    eager = Eager(model)
    records = samples(model)
    try:
        head = fitting_head(model, eager, use, records)
    except NotImplementedError as error:
        raise ArtefactError(
            f"the artefact's {FOLDER}/ does not fit {type(model).__name__} ({error}): set BYOC_ENGINE=eager"
        ) from None
    engine = open_engine(model, head, directory, packaged, served, lanes)
    right = exact(engine, eager, use, records) <= AGREEMENT if served == "fp32" else alike(engine, eager, records)
    if not right:
        raise ArtefactError(f"the artefact's {FOLDER}/ does not compute what its weights do: it is damaged, or {AGAIN}")
    return engine
