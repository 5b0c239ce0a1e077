"""feature-extraction without pooling: the last hidden state of every token, as the Hugging Face pipeline gives it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from transformers import AutoModel

from batch_handler.errors import ServiceError
from batch_handler.formats.options import Layout
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded
from batch_handler.tasks.encoder import EncoderTask
from batch_handler.tasks.encoding import encode_texts
from batch_handler.tasks.parameters import boolean
from batch_handler.tasks.tokenisation import single_text

Matrix = numpy.ndarray[Any, Any]
PARAMETERS = {"truncation": boolean()}


class TokenVectors(EncoderTask):
    """Texts to matrices: tokens × hidden size, special tokens included."""

    holds = ("value", "text")
    writes = ("json", "json_lines")
    layout = Layout(columns=lambda matrix: matrix, line=str)
    result_keys = ()

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._load(AutoModel, directory, settings, head=False)

    @property
    def description(self) -> str:
        """Engine and length."""
        return f"engine={self._engine.name} max_tokens={self._tokeniser.limit}"

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Tokenise."""
        return encode_texts(records, self._tokeniser, PARAMETERS, self._truncation, lambda record, _: single_text(record))

    def run(self, records: Sequence[Encoded]) -> Sequence[Matrix]:
        """One matrix per record."""
        with torch.inference_mode():
            states = self._engine.hidden([record.model_input for record in records])
            each = torch.split(states.cpu(), [record.length for record in records])
        return [rows.numpy() for rows in each]

    def decode(self, output: Matrix, record: Encoded) -> Matrix:
        """The matrix itself."""
        return output

    def samples(self) -> Sequence[Record]:
        """Short and long texts."""
        return [Record("warm " * words, 1) for words in (1, 8, 64)]


def load(directory: Path, settings: Settings, name: str) -> TokenVectors:
    """The task for any encoder."""
    return TokenVectors(directory, settings)
