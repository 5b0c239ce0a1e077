"""zero-shot-classification: how well each of the caller's labels fits a text, as the Hugging Face pipeline gives it.

Every label makes a hypothesis, and the model says whether the text entails it (Yin, Hay and Roth, 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from transformers import AutoModelForSequenceClassification

from batch_handler.artefact import ArtefactError
from batch_handler.errors import ServiceError, invalid_record
from batch_handler.formats.options import Layout
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded
from batch_handler.tasks.encoder import EncoderTask
from batch_handler.tasks.encoding import encode_parts
from batch_handler.tasks.parameters import Parameter, boolean, text, text_or_texts
from batch_handler.tasks.text_classification import softmax
from batch_handler.tasks.tokenisation import Text, single_text

Scores = numpy.ndarray[Any, Any]
TEMPLATE = "This example is {}."
LABELS_LIMIT = 1_000
PARAMETERS: Mapping[str, Parameter] = {
    "candidate_labels": text_or_texts(LABELS_LIMIT),
    "hypothesis_template": text(),
    "multi_label": boolean(),
    "truncation": boolean(),
}


class ZeroShotClassification(EncoderTask):
    """Texts to ranked labels. Every pair of a text and a label is a part of its own; only the text is ever cut."""

    holds = ("value", "text")
    writes = ("json", "json_lines", "csv")
    layout = Layout(columns=lambda result: _columns(result), line=str)
    result_keys = ("sequence", "labels", "scores")

    def __init__(self, directory: Path, settings: Settings) -> None:
        config = self._load(AutoModelForSequenceClassification, directory, settings, head=True, cut="only_first")
        self._entailment = _entailment(config)
        self._contradiction = -1 if self._entailment == 0 else 0

    @property
    def description(self) -> str:
        """Engine and length."""
        return f"engine={self._engine.name} max_tokens={self._tokeniser.limit}"

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Pair every text with each of its labels' hypotheses."""
        return encode_parts(records, self._tokeniser, PARAMETERS, self._truncation, _pairs)

    def run(self, records: Sequence[Encoded]) -> Sequence[Scores]:
        """Logits: one row per pair."""
        with torch.inference_mode():
            logits = self._engine.logits([record.model_input for record in records])
        return list(logits.float().cpu().numpy())

    def decode(self, output: Sequence[Scores], record: Encoded) -> dict[str, Any]:
        """Labels by falling score. One label among others competes with them; alone, or with ``multi_label``, it competes
        with its own contradiction."""
        labels = _labels(record.options)
        logits = numpy.stack(output)
        if record.options.get("multi_label") or len(labels) == 1:
            scores = numpy.array([softmax(row[[self._contradiction, self._entailment]])[1] for row in logits])
        else:
            scores = softmax(logits[:, self._entailment])
        order = scores.argsort(kind="stable")[::-1]
        return {
            "sequence": record.model_input,
            "labels": [labels[place] for place in order],
            "scores": [float(scores[place]) for place in order],
        }

    def samples(self) -> Sequence[Record]:
        """Short and long texts with two labels."""
        return [Record("warm " * words, 1, {"candidate_labels": ["warm", "cold"]}) for words in (1, 8, 64)]


def load(directory: Path, settings: Settings, name: str) -> ZeroShotClassification:
    """The task for a model that was trained on entailment. Raises ArtefactError when no label of it says so."""
    return ZeroShotClassification(directory, settings)


def _entailment(config: Any) -> int:
    for label, index in config.label2id.items():
        if label.lower().startswith("entail"):
            return int(index)
    raise ArtefactError(
        f"no label of the model is called entailment, but {', '.join(config.label2id)}: zero-shot-classification needs a model "
        "trained on natural language inference, or label2id in config.json"
    )


def _pairs(record: Record, parameters: Mapping[str, Any]) -> Sequence[Text]:
    text = single_text(record)
    if not text:
        raise invalid_record("'inputs' is an empty text: send some text to classify")
    if "candidate_labels" not in parameters:
        raise invalid_record("the parameter 'candidate_labels' is missing: send a list of labels")
    labels = _labels(parameters)
    if not labels:
        raise invalid_record("'candidate_labels' names no label")
    template = parameters.get("hypothesis_template", TEMPLATE)
    try:
        hypotheses = [template.format(label) for label in labels]
    except (IndexError, KeyError, ValueError, AttributeError):
        hypotheses = []
    if not hypotheses or hypotheses[0] == template:
        raise invalid_record("the parameter 'hypothesis_template' must hold {} once, where the label goes")
    return [(text, hypothesis) for hypothesis in hypotheses]


def _labels(parameters: Mapping[str, Any]) -> list[str]:
    """A list as it is; a text of labels between commas, apart."""
    labels = parameters["candidate_labels"]
    if isinstance(labels, list):
        return labels
    return [label.strip() for label in labels.split(",") if label.strip()]


def _columns(result: Mapping[str, Any]) -> list[Any]:
    return [cell for pair in zip(result["labels"], result["scores"], strict=True) for cell in pair]
