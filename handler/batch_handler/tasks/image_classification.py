"""image-classification: labels and scores for a picture, as the Hugging Face pipeline gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from transformers import AutoModelForImageClassification

from batch_handler.errors import ServiceError
from batch_handler.formats.options import Layout
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded
from batch_handler.tasks.parameters import Parameter, one_of, whole
from batch_handler.tasks.pictures import Pictures, pixels_of, sample
from batch_handler.tasks.pretrained import load_model
from batch_handler.tasks.text_classification import FUNCTIONS, default_function

Scores = numpy.ndarray[Any, Any]
DEFAULT_TOP_K = 5
PARAMETERS: Mapping[str, Parameter] = {
    "top_k": whole(1, 1_000_000, null=True),
    "function_to_apply": one_of("sigmoid", "softmax", "none"),
}


class ImageClassification:
    """Pictures to ranked labels. Parameters shape the scores only."""

    holds = ("value", "image")
    writes = ("json", "json_lines", "csv")
    layout = Layout(columns=lambda result: [cell for entry in result for cell in (entry["label"], entry["score"])], line=str)
    result_keys = ()
    padded = False
    team_tokens = 0
    stepwise = False

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._model = load_model(AutoModelForImageClassification, directory, settings)
        self._pictures = Pictures(directory, settings, self._model.config)
        self._labels = [str(self._model.config.id2label[index]) for index in range(self._model.config.num_labels)]
        self._function = default_function(self._model.config)

    @property
    def description(self) -> str:
        """Labels."""
        return f"engine=eager labels={len(self._labels)}"

    def pixels(self, record: Record) -> int:
        """What a record's picture claims to have."""
        return pixels_of(record)

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Decode and process pictures."""
        return self._pictures.encode(records, PARAMETERS)

    def run(self, records: Sequence[Encoded]) -> Sequence[Scores]:
        """Logits: one row of labels per picture."""
        pixels = torch.from_numpy(numpy.stack([record.model_input for record in records])).to(self._model.device)
        with torch.inference_mode():
            logits = self._model(pixel_values=pixels).logits
        return list(logits.float().cpu().numpy())

    def decode(self, output: Scores, record: Encoded) -> list[dict[str, Any]]:
        """The `top_k` best labels (5 unless told; null: all)."""
        scores = FUNCTIONS[record.options.get("function_to_apply", self._function)](output)
        order = numpy.argsort(-scores, kind="stable")[: record.options.get("top_k", DEFAULT_TOP_K)]
        return [{"label": self._labels[index], "score": float(scores[index])} for index in order]

    def samples(self) -> Sequence[Record]:
        """One picture, alone and twice."""
        return [Record(sample(), 1)] * 2


def load(directory: Path, settings: Settings, name: str) -> ImageClassification:
    """The task for any model with an image-classification head."""
    return ImageClassification(directory, settings)
