"""Tasks: what the model does with a record, one file per family, and the table that finds them by Hugging Face's names.

A task encodes records, runs micro-batches of them and decodes outputs; it knows nothing of HTTP, formats or TorchServe.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from batch_handler.errors import ServiceError
from batch_handler.formats.options import Layout
from batch_handler.request import NOTHING, Record
from batch_handler.settings import SettingError, Settings


@dataclass(frozen=True, slots=True)
class Encoded:
    """A record that is ready for a forward pass.

    ``length`` counts the tokens that the model will see. Records of different ``group`` never share a forward pass.
    ``options`` are the checked parameters that shape the result afterwards. ``parts`` are the passes of a record that
    takes several (windows of a long text, pairs with every label): each is planned by its own length, and ``decode`` is
    given the list of their outputs.
    """

    model_input: Any
    length: int
    truncated: bool = False
    group: Hashable = None
    options: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    parts: tuple[Encoded, ...] = ()

    @property
    def passes(self) -> tuple[Encoded, ...]:
        """What goes through the model: the parts, or the record itself."""
        return self.parts or (self,)

    def gathered(self, outputs: Sequence[Any]) -> Any:
        """The outputs of the passes as `decode` takes them; the first error among them stands for all."""
        failed = next((output for output in outputs if isinstance(output, ServiceError)), None)
        return failed or (list(outputs) if self.parts else outputs[0])


class Task(Protocol):
    """What `service` needs of a task. ``run`` must be safe to call from several threads at once.

    ``holds`` names the kinds of record that it takes, ``writes`` the formats that can carry its results. ``result_keys``
    are the keys of an object result, which a caller's own keys may not take. ``padded`` and ``team_tokens`` are its engine's.
    ``stepwise`` says that a pass generates its answers, one token after the other.
    """

    holds: Collection[str]
    writes: Collection[str]
    layout: Layout
    result_keys: Collection[str]
    padded: bool
    team_tokens: int
    stepwise: bool

    @property
    def description(self) -> str:
        """A few words for the start line: engine, size, limits."""

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Check parameters and tokenise; an error stands in the place of a record that cannot be used."""

    def run(self, records: Sequence[Encoded]) -> Sequence[Any]:
        """One forward pass: one output per record, or per part of one."""

    def decode(self, output: Any, record: Encoded) -> Any:
        """An output, or the list of those of a record's parts, as the result that the caller sees."""

    def samples(self) -> Sequence[Record]:
        """A few records for warming up."""


class Seeing(Task, Protocol):
    """A task whose records are pictures: a few bytes may be very much work."""

    def pixels(self, record: Record) -> int:
        """How many a record claims to have, before it is decoded; 0 where it cannot be."""


class Streaming(Task, Protocol):
    """A task that can also send the answer to one record in pieces, where its parameter ``stream`` asks for it."""

    def stream(self, record: Encoded) -> Iterator[str]:
        """The result's text, piece by piece; safe to call beside `run`. Closing the iterator stops the work."""


MODULES: Mapping[str, str] = {
    "sentence-embeddings": "embeddings",
    "sentence-similarity": "sentence_similarity",
    "feature-extraction": "token_vectors",
    "text-classification": "text_classification",
    "sentiment-analysis": "text_classification",
    "token-classification": "token_classification",
    "ner": "token_classification",
    "question-answering": "question_answering",
    "fill-mask": "fill_mask",
    "zero-shot-classification": "zero_shot_classification",
    "text-ranking": "text_ranking",
    "translation": "text_to_text",
    "summarization": "text_to_text",
    "text2text-generation": "text_to_text",
    "text-generation": "text_generation",
    "tensor": "tensor",
    "image-classification": "image_classification",
    "image-feature-extraction": "image_features",
}


def load(task: str, directory: Path, settings: Settings) -> Task:
    """Load the model in `directory` for a task. Raises SettingError for a task that is not there."""
    name = "translation" if task.startswith("translation_") else task
    if name not in MODULES:
        raise SettingError(f"HF_TASK={task} is not a task of this image: use one of {', '.join(MODULES)}")
    module = importlib.import_module(f"batch_handler.tasks.{MODULES[name]}")
    build: Callable[[Path, Settings, str], Task] = module.load
    return build(directory, settings, task)
