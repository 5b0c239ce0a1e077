"""token-classification: a label for every token, or for every entity, as the Hugging Face pipeline gives them.

Source of the aggregation strategies and of the results' keys: that pipeline's documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy
import torch
from transformers import AutoModelForTokenClassification

from batch_handler.errors import ServiceError, invalid_record
from batch_handler.formats.options import Layout
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded
from batch_handler.tasks.encoder import EncoderTask
from batch_handler.tasks.parameters import Parameter, boolean, checked, one_of, texts
from batch_handler.tasks.tokenisation import Marked, refuse_truncation, single_text

Scores = numpy.ndarray[Any, Any]
WORDWISE = ("first", "average", "max")
PARAMETERS: Mapping[str, Parameter] = {
    "aggregation_strategy": one_of("none", "simple", *WORDWISE),
    "ignore_labels": Parameter(lambda value: value == [] or texts(1_000).fits(value), "a list of labels"),
    "truncation": boolean(),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A token, or the tokens of a word, with the probability of every label. ``index`` is the first token's place."""

    word: str
    scores: Scores
    index: int
    start: int | None
    end: int | None
    inside_word: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """What `decode` must know of the text beside the scores."""

    text: str
    marked: Marked


class TokenClassification(EncoderTask):
    """Texts to labelled tokens or entities. Parameters shape the result only, so any records may share a forward pass."""

    holds = ("value", "text")
    writes = ("json", "json_lines")
    layout = Layout(columns=lambda result: result, line=str)
    result_keys = ()

    def __init__(self, directory: Path, settings: Settings) -> None:
        config = self._load(AutoModelForTokenClassification, directory, settings, head=True, per_token=True)
        self._labels = [str(config.id2label[index]) for index in range(config.num_labels)]
        self._subwords_marked = _marks_subwords(self._tokenizer)

    @property
    def description(self) -> str:
        """Engine, labels and length."""
        return f"engine={self._engine.name} labels={len(self._labels)} max_tokens={self._tokeniser.limit}"

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Tokenise all readable texts in one call."""
        read = [_text(record) for record in records]
        marked = iter(self._tokeniser.marked([text for text in read if isinstance(text, str)]))
        return [
            text if isinstance(text, ServiceError) else self._encoded(record, text, next(marked))
            for record, text in zip(records, read, strict=True)
        ]

    def _encoded(self, record: Record, text: str, marked: Marked) -> Encoded | ServiceError:
        wordwise = record.parameters.get("aggregation_strategy") in WORDWISE
        try:
            if not marked.tokens.ids:
                raise invalid_record("the text holds no token that this model knows: send some text")
            if wordwise and marked.offsets is None:
                raise invalid_record("this model's tokenizer knows no words: use the aggregation_strategy none or simple")
            refuse_truncation(record.parameters, self._truncation, marked.truncated, self._tokeniser.limit)
        except ServiceError as error:
            return error
        source = Source(text, marked)
        return Encoded(source, len(marked.tokens.ids), marked.truncated, None, record.parameters)

    def run(self, records: Sequence[Encoded]) -> Sequence[Scores]:
        """Probabilities: tokens × labels for each record."""
        with torch.inference_mode():
            logits = self._engine.token_logits([record.model_input.marked.tokens for record in records])
            scores = logits.float().softmax(-1).cpu().numpy()
        return numpy.split(scores, list(accumulate(record.length for record in records))[:-1])

    def decode(self, output: Scores, record: Encoded) -> list[dict[str, Any]]:
        """Tokens or entities in the order of the text, without those of the ignored labels (``O`` unless told)."""
        strategy = record.options.get("aggregation_strategy", "none")
        ignored = record.options.get("ignore_labels", ["O"])
        pieces = self._pieces(output, record.model_input)
        if strategy in WORDWISE:
            pieces = [self._word(word, strategy) for word in _words(pieces)]
        tokens = [self._token(piece) for piece in pieces]
        if strategy == "none":
            return [token for token in tokens if token["entity"] not in ignored]
        entities = [self._entity(group) for group in _entities(tokens)]
        return [entity for entity in entities if entity["entity_group"] not in ignored]

    def _pieces(self, scores: Scores, source: Source) -> list[Piece]:
        marked = source.marked
        return [self._piece(scores[index], index, source) for index, special in enumerate(marked.special) if not special]

    def _piece(self, scores: Scores, index: int, source: Source) -> Piece:
        token = source.marked.tokens.ids[index]
        word = self._tokenizer.convert_ids_to_tokens(token)
        if source.marked.offsets is None:
            return Piece(word, scores, index, None, None)
        start, end = source.marked.offsets[index]
        original = source.text[start:end]
        if token == self._tokenizer.unk_token_id:
            return Piece(original, scores, index, start, end)
        if self._subwords_marked:
            inside = len(word) != len(original)
        else:
            inside = start > 0 and " " not in source.text[start - 1 : start + 1]
        return Piece(word, scores, index, start, end, inside)

    def _word(self, pieces: Sequence[Piece], strategy: str) -> Piece:
        """The pieces of one word as one, with the scores that the strategy takes from them."""
        word = self._tokenizer.convert_tokens_to_string([piece.word for piece in pieces])
        return Piece(word, JUDGES[strategy](pieces), pieces[0].index, pieces[0].start, pieces[-1].end)

    def _token(self, piece: Piece) -> dict[str, Any]:
        best = int(piece.scores.argmax())
        return {
            "entity": self._labels[best],
            "score": float(piece.scores[best]),
            "index": piece.index,
            "word": piece.word,
            "start": piece.start,
            "end": piece.end,
        }

    def _entity(self, tokens: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "entity_group": tokens[0]["entity"].split("-", 1)[-1],
            "score": float(numpy.mean([token["score"] for token in tokens])),
            "word": self._tokenizer.convert_tokens_to_string([token["word"] for token in tokens]),
            "start": tokens[0]["start"],
            "end": tokens[-1]["end"],
        }

    def samples(self) -> Sequence[Record]:
        """Short and long texts."""
        return [Record("warm " * words, 1) for words in (1, 8, 64)]


def load(directory: Path, settings: Settings, name: str) -> TokenClassification:
    """The task for any model with a token-classification head."""
    return TokenClassification(directory, settings)


JUDGES: Mapping[str, Callable[[Sequence[Piece]], Scores]] = {
    "first": lambda pieces: pieces[0].scores,
    "max": lambda pieces: max(pieces, key=lambda piece: float(piece.scores.max())).scores,
    "average": lambda pieces: numpy.stack([piece.scores for piece in pieces]).mean(0),
}
"""Which probabilities a word has, from those of its tokens."""


def _text(record: Record) -> str | ServiceError:
    try:
        checked(record.parameters, PARAMETERS)
        return single_text(record)
    except ServiceError as error:
        return error


def _words(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Tokens by word: one that continues a word joins the token before it."""
    words: list[list[Piece]] = []
    for piece in pieces:
        if words and piece.inside_word:
            words[-1].append(piece)
        else:
            words.append([piece])
    return words


def _entities(tokens: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Neighbours of one kind together; ``B-`` starts an entity anew, a label without prefix continues."""
    groups: list[list[Mapping[str, Any]]] = []
    for token in tokens:
        label = token["entity"]
        if groups and not label.startswith("B-") and _kind(label) == _kind(groups[-1][-1]["entity"]):
            groups[-1].append(token)
        else:
            groups.append([token])
    return groups


def _kind(label: str) -> str:
    return label[2:] if label.startswith(("B-", "I-")) else label


def _marks_subwords(tokenizer: Any) -> bool:
    """Whether the vocabulary itself says which tokens continue a word (``##ing``)."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return bool(backend is not None and getattr(backend.model, "continuing_subword_prefix", None))
