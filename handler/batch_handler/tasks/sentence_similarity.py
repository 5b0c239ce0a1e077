"""sentence-similarity: the cosine between a sentence and each of several others, over the artefact's own embeddings.

Source of the payload and of the result: the Hugging Face task page of that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy

from batch_handler.errors import ServiceError, invalid_record, quote
from batch_handler.formats.options import Layout
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded
from batch_handler.tasks.embeddings import Embeddings, Vector
from batch_handler.tasks.parameters import texts
from batch_handler.tasks.tokenisation import Text

SENTENCES_LIMIT = 10_000


class SentenceSimilarity:
    """``{"source_sentence", "sentences"}`` to one score per sentence. Every text is a part of its own."""

    holds = ("value",)
    writes = ("json", "json_lines", "csv")
    layout = Layout(columns=lambda scores: scores, line=str)
    result_keys = ()
    stepwise = False

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._embeddings = Embeddings(directory, settings)
        self.padded, self.team_tokens = self._embeddings.padded, self._embeddings.team_tokens

    @property
    def description(self) -> str:
        """Engine, pooling and length."""
        return self._embeddings.description

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Prompt and tokenise the source and all sentences."""
        return self._embeddings.encode_several(records, self._texts)

    def run(self, records: Sequence[Encoded]) -> Sequence[Vector]:
        """One vector per text."""
        return self._embeddings.run(records)

    def decode(self, output: Sequence[Vector], record: Encoded) -> Vector:
        """Cosines, in the order of the sentences."""
        vectors = numpy.stack(output)
        lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
        unit = vectors / numpy.maximum(lengths, 1e-12)
        cosines: Vector = unit[1:] @ unit[0]
        return cosines

    def samples(self) -> Sequence[Record]:
        """Few and many sentences."""
        return [Record({"source_sentence": "warm", "sentences": ["warm " * words] * words}, 1) for words in (1, 8)]

    def _texts(self, record: Record, parameters: Mapping[str, Any]) -> Sequence[Text]:
        inputs = record.inputs
        if not isinstance(inputs, dict) or set(inputs) != {"source_sentence", "sentences"} or not _fit(inputs):
            raise invalid_record(
                "'inputs' must be an object with 'source_sentence', a text, and 'sentences', "
                f"a list of 1 to {SENTENCES_LIMIT} texts, not {quote(inputs)}"
            )
        every = [inputs["source_sentence"], *inputs["sentences"]]
        return [self._embeddings.prompted(one, parameters) for one in every]


def load(directory: Path, settings: Settings, name: str) -> SentenceSimilarity:
    """The task for any encoder that gives sentence embeddings."""
    return SentenceSimilarity(directory, settings)


def _fit(inputs: Mapping[str, Any]) -> bool:
    return isinstance(inputs["source_sentence"], str) and texts(SENTENCES_LIMIT).fits(inputs["sentences"])
