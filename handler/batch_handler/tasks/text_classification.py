"""text-classification: labels and scores for a text or a pair of texts, as the Hugging Face pipeline gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from transformers import AutoModelForSequenceClassification

from batch_handler.errors import ServiceError
from batch_handler.formats.options import Layout
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded
from batch_handler.tasks.encoder import EncoderTask
from batch_handler.tasks.encoding import encode_texts
from batch_handler.tasks.parameters import boolean, one_of, whole
from batch_handler.tasks.tokenisation import text_or_pair

Scores = numpy.ndarray[Any, Any]
PARAMETERS = {
    "top_k": whole(1, 1_000_000, null=True),
    "function_to_apply": one_of("sigmoid", "softmax", "none"),
    "truncation": boolean(),
}


def softmax(logits: Scores) -> Scores:
    """Over the labels, shifted by the largest logit so that nothing overflows."""
    shifted = numpy.exp(logits - logits.max())
    result: Scores = shifted / shifted.sum()
    return result


def sigmoid(logits: Scores) -> Scores:
    """Label by label; written with tanh, which does not overflow."""
    result: Scores = 0.5 * (1.0 + numpy.tanh(0.5 * logits))
    return result


FUNCTIONS: Mapping[str, Callable[[Scores], Scores]] = {
    "softmax": softmax,
    "sigmoid": sigmoid,
    "none": lambda logits: logits,
}


class TextClassification(EncoderTask):
    """Texts to labels. Parameters shape the scores only, so records of different parameters may share a forward pass."""

    holds = ("value", "text")
    writes = ("json", "json_lines", "csv")
    layout = Layout(columns=lambda result: _columns(result), line=str)
    result_keys = ("label", "score")

    def __init__(self, directory: Path, settings: Settings) -> None:
        config = self._load(AutoModelForSequenceClassification, directory, settings, head=True)
        self._labels = [str(config.id2label[index]) for index in range(config.num_labels)]
        self._function = default_function(config)

    @property
    def description(self) -> str:
        """Engine, labels and length."""
        return f"engine={self._engine.name} labels={len(self._labels)} max_tokens={self._tokeniser.limit}"

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Tokenise texts and pairs."""
        return encode_texts(records, self._tokeniser, PARAMETERS, self._truncation, lambda record, _: text_or_pair(record))

    def run(self, records: Sequence[Encoded]) -> Sequence[Scores]:
        """Logits: one row of labels per record."""
        with torch.inference_mode():
            logits = self._engine.logits([record.model_input for record in records])
        return list(logits.float().cpu().numpy())

    def decode(self, output: Scores, record: Encoded) -> Any:
        """The best label, or a list of the `top_k` best when the request names `top_k` (null: all)."""
        scores = FUNCTIONS[record.options.get("function_to_apply", self._function)](output)
        count = record.options.get("top_k", 1) or len(self._labels)
        order = numpy.argsort(-scores, kind="stable")[:count]
        ranked = [{"label": self._labels[index], "score": float(scores[index])} for index in order]
        return ranked if "top_k" in record.options else ranked[0]

    def samples(self) -> Sequence[Record]:
        """Short and long texts."""
        return [Record("warm " * words, 1) for words in (1, 8, 64)]


def load(directory: Path, settings: Settings, name: str) -> TextClassification:
    """The task for any model with a sequence-classification head."""
    return TextClassification(directory, settings)


def default_function(config: Any) -> str:
    """The pipeline's rule: by problem type, else sigmoid for one label and softmax for several."""
    if config.problem_type == "regression":
        return "none"
    if config.problem_type == "multi_label_classification" or config.num_labels == 1:
        return "sigmoid"
    return "softmax"


def _columns(result: Any) -> list[Any]:
    ranked = result if isinstance(result, list) else [result]
    return [cell for entry in ranked for cell in (entry["label"], entry["score"])]
