"""fill-mask: the likeliest tokens in the place of each mask, as the Hugging Face pipeline gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy
import torch
from transformers import AutoModelForMaskedLM

from batch_handler.artefact import ArtefactError
from batch_handler.engines import Tokens
from batch_handler.errors import ServiceError, invalid_record, quote
from batch_handler.formats.options import Layout
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded
from batch_handler.tasks.encoder import EncoderTask
from batch_handler.tasks.encoding import encode_texts
from batch_handler.tasks.parameters import Parameter, boolean, text_or_texts, whole
from batch_handler.tasks.tokenisation import single_text

Scores = numpy.ndarray[Any, Any]
DEFAULT_TOP_K = 5
PARAMETERS: Mapping[str, Parameter] = {
    "top_k": whole(1, 1_000_000),
    "targets": text_or_texts(10_000),
    "truncation": boolean(),
}


@dataclass(frozen=True, slots=True)
class Masked:
    """A text's tokens, the places of its masks among them, and the tokens that may stand there (empty: any)."""

    tokens: Tokens
    places: tuple[int, ...]
    targets: tuple[int, ...]


class FillMask(EncoderTask):
    """Texts with masks to ranked tokens. The vocabulary is scored at the masks only, where the engine allows it."""

    holds = ("value", "text")
    writes = ("json", "json_lines")
    layout = Layout(columns=lambda result: result, line=str)
    result_keys = ()

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._load(AutoModelForMaskedLM, directory, settings, head=True, per_token=True)
        if self._tokenizer.mask_token_id is None:
            raise ArtefactError("the tokenizer has no mask token: set mask_token in tokenizer_config.json")
        self._vocabulary: Mapping[str, int] = self._tokenizer.get_vocab()

    @property
    def description(self) -> str:
        """Engine and length."""
        return f"engine={self._engine.name} mask={self._tokenizer.mask_token} max_tokens={self._tokeniser.limit}"

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Tokenise, find the masks, and look up the targets."""
        encoded = encode_texts(records, self._tokeniser, PARAMETERS, self._truncation, lambda record, _: single_text(record))
        return [record if isinstance(record, ServiceError) else self._masked(record) for record in encoded]

    def _masked(self, record: Encoded) -> Encoded | ServiceError:
        mask = self._tokenizer.mask_token_id
        places = tuple(place for place, token in enumerate(record.model_input.ids) if token == mask)
        if not places:
            cut = " in the part that the model can read" if record.truncated else ""
            return invalid_record(f"the text has no {self._tokenizer.mask_token} to fill{cut}")
        try:
            targets = self._targets(record.options.get("targets", []))
        except ServiceError as error:
            return error
        return Encoded(Masked(record.model_input, places, targets), record.length, record.truncated, record.group, record.options)

    def _targets(self, targets: str | list[str]) -> tuple[int, ...]:
        """Token ids: the target itself where the vocabulary has it, else its first token."""
        found = set()
        for target in [targets] if isinstance(targets, str) else targets:
            token = self._vocabulary.get(target)
            if token is None:
                pieces = self._tokeniser.bare(target)
                if not pieces:
                    raise invalid_record(f"the target {quote(target)} holds no token that this model knows")
                token = pieces[0]
            found.add(int(token))
        return tuple(sorted(found))

    def run(self, records: Sequence[Encoded]) -> Sequence[Scores]:
        """Logits at the masks: masks × vocabulary for each record."""
        starts = [0, *accumulate(record.length for record in records)]
        kept = [start + place for start, record in zip(starts, records, strict=False) for place in record.model_input.places]
        with torch.inference_mode():
            logits = self._engine.token_logits([record.model_input.tokens for record in records], kept)
            scores = logits.float().softmax(-1).cpu().numpy()
        return numpy.split(scores, list(accumulate(len(record.model_input.places) for record in records))[:-1])

    def decode(self, output: Scores, record: Encoded) -> Any:
        """The `top_k` best tokens for the mask; for several masks a list of such lists."""
        masked: Masked = record.model_input
        filled = [
            self._filled(scores, place, masked, record.options) for scores, place in zip(output, masked.places, strict=True)
        ]
        return filled[0] if len(filled) == 1 else filled

    def _filled(self, scores: Scores, place: int, masked: Masked, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        allowed = numpy.array(masked.targets or range(len(scores)))
        order = numpy.argsort(-scores[allowed], kind="stable")[: options.get("top_k", DEFAULT_TOP_K)]
        return [self._proposal(int(token), float(scores[token]), place, masked) for token in allowed[order]]

    def _proposal(self, token: int, score: float, place: int, masked: Masked) -> dict[str, Any]:
        ids = [token if at == place else one for at, one in enumerate(masked.tokens.ids)]
        ids = [one for one in ids if one != self._tokenizer.pad_token_id]
        lone = len(masked.places) == 1  # with several masks, skipping special tokens would drop the other masks
        return {
            "score": score,
            "token": token,
            "token_str": self._tokenizer.decode([token]),
            "sequence": self._tokenizer.decode(ids, skip_special_tokens=lone),
        }

    def samples(self) -> Sequence[Record]:
        """Short and long texts with a mask."""
        return [Record(f"{self._tokenizer.mask_token} " + "warm " * words, 1) for words in (1, 8, 64)]


def load(directory: Path, settings: Settings, name: str) -> FillMask:
    """The task for any masked language model. Raises ArtefactError without a mask token."""
    return FillMask(directory, settings)
