"""question-answering: the passage of a context that answers a question, as the Hugging Face pipeline (version 4) gives it.

A context that does not fit is read in overlapping windows; each is a part, and the best answers of all are the record's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy
import torch
from transformers import AutoModelForQuestionAnswering

from batch_handler.artefact import ArtefactError
from batch_handler.engines import Tokens
from batch_handler.errors import ServiceError, invalid_record, quote
from batch_handler.formats.options import Layout
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded
from batch_handler.tasks.parameters import Parameter, boolean, checked, whole
from batch_handler.tasks.pretrained import engine_for, load_model, load_tokenizer, longest_input
from batch_handler.tasks.tokenisation import readable, refuse_unread

Logits = numpy.ndarray[Any, Any]
USUAL_WINDOW = 384
USUAL_OVERLAP = 128
USUAL_ANSWER = 15
MASKED = -10_000.0


@dataclass(frozen=True, slots=True)
class Window:
    """A piece of the context behind its question. ``context`` are the places of the context's tokens in it."""

    encoding: Any
    context: Sequence[int]
    judged: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Passage:
    """The context and the windows over it."""

    context: str
    windows: Sequence[Window]


class QuestionAnswering:
    """``{"question", "context"}`` to answers. Parameters of the answer shape only the result."""

    holds = ("value",)
    writes = ("json", "json_lines")
    layout = Layout(columns=lambda result: result, line=str)
    result_keys = ("score", "start", "end", "answer")
    stepwise = False

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._tokenizer = load_tokenizer(directory, settings)
        if not self._tokenizer.is_fast:
            raise ArtefactError("the tokenizer cannot tell where its tokens come from: question-answering needs a tokenizer.json")
        self._limit = longest_input(directory, self._tokenizer, settings)
        self._truncation = settings.truncation
        self._question_first = self._tokenizer.padding_side == "right"
        self._gives_types = "token_type_ids" in self._tokenizer.model_input_names
        model = load_model(AutoModelForQuestionAnswering, directory, settings, engine=True)
        self._engine = engine_for(model, directory, settings, head=True, per_token=True)
        self.padded, self.team_tokens = self._engine.padded, self._engine.team_tokens
        self._parameters: Mapping[str, Parameter] = {
            "top_k": whole(1, 1_000),
            "max_answer_len": whole(1, self._limit),
            "max_seq_len": whole(1, self._limit),
            "doc_stride": whole(0, self._limit),
            "handle_impossible_answer": boolean(),
            "align_to_words": boolean(),
        }

    @property
    def description(self) -> str:
        """Engine and length."""
        return f"engine={self._engine.name} max_tokens={self._limit}"

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Check, and cut every context into windows."""
        return [self._encoded(record) for record in records]

    def _encoded(self, record: Record) -> Encoded | ServiceError:
        try:
            parameters = checked(record.parameters, self._parameters)
            question, whole_context = _question_and_context(record.inputs)
            context = readable(whole_context)
            truncated = len(context) < len(whole_context)
            refuse_unread(self._truncation, truncated)
            encodings = self._encodings(readable(question), context, parameters)
        except ServiceError as error:
            return error
        parts = tuple(Encoded(self._tokens(encoding), len(encoding.ids)) for encoding in encodings)
        passage = Passage(context, [self._window(encoding) for encoding in encodings])
        return Encoded(passage, sum(part.length for part in parts), truncated, options=parameters, parts=parts)

    def _encodings(self, question: str, context: str, parameters: Mapping[str, Any]) -> Sequence[Any]:
        """The tokeniser's own windows. Raises ServiceError (400) where question or overlap leave no room for the context."""
        window = parameters.get("max_seq_len", min(self._limit, USUAL_WINDOW))
        taken = len(self._tokenizer(question, add_special_tokens=False, verbose=False)["input_ids"])
        room = window - taken - self._tokenizer.num_special_tokens_to_add(pair=True)
        if room < 1:
            raise invalid_record(f"the question has {taken} tokens and leaves no room for the context within {window}")
        overlap = parameters.get("doc_stride", min(window // 2, USUAL_OVERLAP, room - 1))
        if overlap >= room:
            raise invalid_record(f"'doc_stride' must be less than the {room} tokens of context that fit beside the question")
        batch = self._tokenizer(
            question if self._question_first else context,
            context if self._question_first else question,
            truncation="only_second" if self._question_first else "only_first",
            max_length=window,
            stride=overlap,
            return_overflowing_tokens=True,
        )
        return list(batch.encodings)

    def _tokens(self, encoding: Any) -> Tokens:
        return Tokens(encoding.ids, encoding.type_ids if self._gives_types else [0] * len(encoding.ids))

    def _window(self, encoding: Any) -> Window:
        """Beside the context the class token is judged, which stands for "there is no answer"."""
        wanted = 1 if self._question_first else 0
        context = [place for place, sequence in enumerate(encoding.sequence_ids) if sequence == wanted]
        inside = set(context)
        special = self._tokenizer.cls_token_id
        judged = [place in inside or (special is not None and token == special) for place, token in enumerate(encoding.ids)]
        return Window(encoding, context, judged)

    def run(self, records: Sequence[Encoded]) -> Sequence[Logits]:
        """Start and end logits: tokens × 2 for each window."""
        with torch.inference_mode():
            logits = self._engine.token_logits([record.model_input for record in records]).float().cpu().numpy()
        return numpy.split(logits, list(accumulate(record.length for record in records))[:-1])

    def decode(self, output: Sequence[Logits], record: Encoded) -> Any:
        """The best answer, or the `top_k` best where there are several. The same answer in two windows adds up."""
        options = record.options
        wanted = options.get("top_k", 1)
        aligned = options.get("align_to_words", True)
        answers: dict[str, dict[str, Any]] = {}
        nothing = 1.0
        for logits, window in zip(output, record.model_input.windows, strict=True):
            start, end = (_probabilities(logits[:, side], window) for side in (0, 1))
            nothing = min(nothing, float(start[0] * end[0]))
            spans = _spans(
                start, end, window, 2 * wanted + 10 if aligned else wanted, options.get("max_answer_len", USUAL_ANSWER)
            )
            for first, last, score in spans:
                self._add(answers, self._characters(window, first, last, aligned), score, record.model_input.context)
        ranked = list(answers.values())
        if options.get("handle_impossible_answer"):
            ranked.append({"score": nothing, "start": 0, "end": 0, "answer": ""})
        ranked = sorted(ranked, key=lambda answer: -answer["score"])[:wanted]
        return ranked[0] if len(ranked) == 1 else ranked

    def _characters(self, window: Window, first: int, last: int, aligned: bool) -> tuple[int, int]:
        """Where a span of tokens lies in the context: widened to whole words, where the tokeniser knows words."""
        encoding = window.encoding
        words = (encoding.word_ids[first], encoding.word_ids[last])
        if aligned and None not in words:
            sequence = 1 if self._question_first else 0
            spans = [encoding.word_to_chars(word, sequence) for word in words]
            if None not in spans:
                return spans[0][0], spans[1][1]
        return encoding.offsets[first][0], encoding.offsets[last][1]

    def _add(self, answers: dict[str, dict[str, Any]], place: tuple[int, int], score: float, context: str) -> None:
        text = context[place[0] : place[1]]
        known = answers.setdefault(text.lower(), {"score": 0.0, "start": place[0], "end": place[1], "answer": text})
        known["score"] += score

    def samples(self) -> Sequence[Record]:
        """Short and long contexts."""
        return [Record({"question": "warm", "context": "warm " * words}, 1) for words in (1, 8, 64)]


def load(directory: Path, settings: Settings, name: str) -> QuestionAnswering:
    """The task for any model with a span head. Raises ArtefactError for a tokeniser without offsets."""
    return QuestionAnswering(directory, settings)


def _question_and_context(inputs: Any) -> tuple[str, str]:
    if isinstance(inputs, dict) and set(inputs) == {"question", "context"}:
        question, context = inputs["question"], inputs["context"]
        if isinstance(question, str) and isinstance(context, str):
            if question.strip() and context.strip():
                return question, context
            raise invalid_record(f"the {'context' if question.strip() else 'question'} is empty: send some text")
    raise invalid_record(f"'inputs' must be an object with the texts 'question' and 'context', not {quote(inputs)}")


def _probabilities(logits: Logits, window: Window) -> Logits:
    """Over the judged tokens of a window."""
    masked = numpy.where(window.judged, logits, numpy.float32(MASKED))
    shifted = numpy.exp(masked - masked.max())
    result: Logits = shifted / shifted.sum()
    return result


def _spans(start: Logits, end: Logits, window: Window, count: int, longest: int) -> list[tuple[int, int, float]]:
    """The likeliest spans of at most so many tokens, best first: first token, last token, probability."""
    if not window.context:
        return []
    places = numpy.asarray(window.context)
    scores = numpy.tril(numpy.triu(numpy.outer(start[places], end[places])), longest - 1)
    flat = scores.ravel()
    best = numpy.argpartition(-flat, count)[:count] if count < len(flat) else numpy.arange(len(flat))
    best = best[numpy.argsort(-flat[best], kind="stable")]
    rows, columns = numpy.unravel_index(best, scores.shape)
    found = zip(places[rows], places[columns], flat[best], strict=True)
    return [(int(first), int(last), float(score)) for first, last, score in found if first <= last]
