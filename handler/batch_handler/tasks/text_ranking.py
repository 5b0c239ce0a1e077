"""text-ranking: how well documents answer a query, judged by a cross-encoder, as sentence-transformers' `rank` gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from transformers import AutoModelForSequenceClassification

from batch_handler.artefact import ArtefactError, read_json
from batch_handler.errors import ServiceError, invalid_record, quote
from batch_handler.formats.options import Layout
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded
from batch_handler.tasks.encoder import EncoderTask
from batch_handler.tasks.encoding import encode_parts
from batch_handler.tasks.parameters import Parameter, boolean, texts, whole
from batch_handler.tasks.text_classification import FUNCTIONS
from batch_handler.tasks.tokenisation import Text, text_or_pair

DOCUMENTS_LIMIT = 10_000
ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "none"}
"""What a cross-encoder's files call the functions that turn its logit into its score."""
PARAMETERS: Mapping[str, Parameter] = {
    "top_k": whole(1, DOCUMENTS_LIMIT, null=True),
    "return_documents": boolean(),
    "truncation": boolean(),
}


class TextRanking(EncoderTask):
    """``{"query", "documents"}`` to documents by falling score, or ``{"text", "text_pair"}`` to the score of that pair.

    Every document is a part of its own.
    """

    holds = ("value",)
    writes = ("json", "json_lines")
    layout = Layout(columns=lambda result: result, line=str)
    result_keys = ("score",)

    def __init__(self, directory: Path, settings: Settings) -> None:
        config = self._load(AutoModelForSequenceClassification, directory, settings, head=True)
        if config.num_labels != 1:
            raise ArtefactError(
                f"the model has {config.num_labels} labels: text-ranking needs a cross-encoder, which gives one score"
            )
        self._function = FUNCTIONS[_activation(directory, config)]

    @property
    def description(self) -> str:
        """Engine and length."""
        return f"engine={self._engine.name} max_tokens={self._tokeniser.limit}"

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Pair every query with each of its documents."""
        return encode_parts(records, self._tokeniser, PARAMETERS, self._truncation, lambda record, _: _pairs(record))

    def run(self, records: Sequence[Encoded]) -> Sequence[float]:
        """One logit per pair."""
        with torch.inference_mode():
            logits = self._engine.logits([record.model_input for record in records])
        return [float(logit) for logit in logits[:, 0].float().cpu()]

    def decode(self, output: Sequence[float], record: Encoded) -> Any:
        """``corpus_id`` counts the documents from 0 as they were sent."""
        scores = self._function(numpy.array(output, numpy.float32)).tolist()
        documents = _documents(record.model_input)
        if documents is None:
            return {"score": scores[0]}
        ranked: list[dict[str, Any]] = [{"corpus_id": place, "score": score} for place, score in enumerate(scores)]
        if record.options.get("return_documents"):
            ranked = [{**entry, "text": documents[entry["corpus_id"]]} for entry in ranked]
        return sorted(ranked, key=lambda entry: -entry["score"])[: record.options.get("top_k")]

    def samples(self) -> Sequence[Record]:
        """Few and many documents."""
        return [Record({"query": "warm", "documents": ["warm " * words] * words}, 1) for words in (1, 8)]


def load(directory: Path, settings: Settings, name: str) -> TextRanking:
    """The task for any cross-encoder. Raises ArtefactError for a model of several labels."""
    return TextRanking(directory, settings)


def _activation(directory: Path, config: Any) -> str:
    """The artefact's own function, wherever its version of sentence-transformers wrote it, else the logistic one."""
    path = directory / "config_sentence_transformers.json"
    named = (
        (getattr(config, "sentence_transformers", None) or {}).get("activation_fn")
        or getattr(config, "sbert_ce_default_activation_function", None)
        or (read_json(path).get("activation_fn") if path.is_file() else None)
        or "Sigmoid"
    )
    name = str(named).rpartition(".")[2]
    if name not in ACTIVATIONS:
        raise ArtefactError(f"the files name the activation {name}, which this image does not run: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _documents(inputs: Any) -> list[str] | None:
    """The list under ``documents`` or ``texts``; None for a pair."""
    found: list[str] | None = inputs.get("documents", inputs.get("texts")) if isinstance(inputs, dict) else None
    return found


def _pairs(record: Record) -> Sequence[Text]:
    inputs = record.inputs
    if isinstance(inputs, dict) and "text" in inputs:
        pair = text_or_pair(record)
        if isinstance(pair, tuple):
            return [pair]
    documents = _documents(inputs)
    fits = documents is not None and set(inputs) <= {"query", "documents", "texts"} and len(inputs) == 2
    if not fits or not isinstance(inputs["query"], str) or not texts(DOCUMENTS_LIMIT).fits(documents):
        raise invalid_record(
            f"'inputs' must be an object with 'query' and 'documents', a list of 1 to {DOCUMENTS_LIMIT} texts, "
            f"or with 'text' and 'text_pair', not {quote(inputs)}"
        )
    return [(inputs["query"], document) for document in documents or ()]
