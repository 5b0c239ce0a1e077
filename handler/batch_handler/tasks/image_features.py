"""image-feature-extraction: a model's last hidden state, or its pooled vector, as the Hugging Face pipeline gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from transformers import AutoModel

from batch_handler.errors import ServiceError, invalid_record
from batch_handler.formats.options import Layout
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded
from batch_handler.tasks.parameters import Parameter, boolean
from batch_handler.tasks.pictures import Pictures, pixels_of, sample
from batch_handler.tasks.pretrained import load_model

Features = numpy.ndarray[Any, Any]
PARAMETERS: Mapping[str, Parameter] = {"pool": boolean()}


class ImageFeatures:
    """Pictures to arrays: tokens × hidden size, or channels × height × width; with ``pool`` one vector."""

    holds = ("value", "image")
    writes = ("json", "json_lines", "npy")
    layout = Layout(columns=lambda features: features, line=str)
    result_keys = ()
    padded = False
    team_tokens = 0
    stepwise = False

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._model = load_model(AutoModel, directory, settings)
        self._pictures = Pictures(directory, settings, self._model.config)

    @property
    def description(self) -> str:
        """The engine."""
        return "engine=eager"

    def pixels(self, record: Record) -> int:
        """What a record's picture claims to have."""
        return pixels_of(record)

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Decode and process pictures."""
        return self._pictures.encode(records, PARAMETERS)

    def run(self, records: Sequence[Encoded]) -> Sequence[tuple[Features, Features | None]]:
        """For each picture all features, and the pooled ones where the model has a pooler."""
        pixels = torch.from_numpy(numpy.stack([record.model_input for record in records])).to(self._model.device)
        with torch.inference_mode():
            output = self._model(pixel_values=pixels)
        pooled = getattr(output, "pooler_output", None)
        pools = [None] * len(records) if pooled is None else list(pooled.float().cpu().numpy())
        return list(zip(output[0].float().cpu().numpy(), pools, strict=True))

    def decode(self, output: tuple[Features, Features | None], record: Encoded) -> Features:
        """All features, or the pooled ones where ``pool`` asks for them."""
        features, pooled = output
        if not record.options.get("pool"):
            return features
        if pooled is None:
            raise invalid_record("this model has no pooled output: leave 'pool' out")
        return pooled

    def samples(self) -> Sequence[Record]:
        """One picture, alone and twice."""
        return [Record(sample(), 1)] * 2


def load(directory: Path, settings: Settings, name: str) -> ImageFeatures:
    """The task for any model of pictures."""
    return ImageFeatures(directory, settings)
