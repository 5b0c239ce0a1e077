"""token-classification equals the Hugging Face pipeline: entities, words and places identical, scores within 1e-5."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asking import answers
from batch_handler.errors import ServiceError
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded, Task, load
from models import heads
from models.encoders import LONGEST
from models.language import sentences, stories

TOLERANCE = 1e-5
STRATEGIES = ["none", "simple", "first", "average", "max"]
Find = Callable[..., Path]
Make = Callable[..., Settings]

pytestmark = pytest.mark.usefixtures("single_threaded")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Find:
    """An artefact with random weights, or the trained tagger, built once."""
    built: dict[str, Path] = {}

    def find(name: str) -> Path:
        if name not in built:
            path = tmp_path_factory.mktemp(name) / "model"
            built[name] = (
                heads.save_tagger(path) if name == "tagger" else heads.save(path, name, "TokenClassification", **heads.TAGS)
            )
        return built[name]

    return find


@pytest.fixture(scope="module")
def task(directory: Find, loaded: Callable[[str, Path], Task]) -> Callable[..., Task]:
    """The task over an artefact, loaded once."""
    return lambda name="tagger": loaded("token-classification", directory(name))


@pytest.fixture(scope="module")
def reference(directory: Find) -> Callable[[str], Any]:
    """The pipeline."""
    from transformers import pipeline

    return lambda name: pipeline("token-classification", str(directory(name)), device="cpu")


def agree(ours: Any, theirs: Any) -> None:
    """Equal but for the last digits of the scores."""
    bare = [[{key: value for key, value in entry.items() if key != "score"} for entry in side] for side in (ours, theirs)]
    assert bare[0] == bare[1]
    assert [entry["score"] for entry in ours] == pytest.approx([float(entry["score"]) for entry in theirs], abs=TOLERANCE)


def test_the_trained_model_finds_people_and_places(task: Callable[..., Task]) -> None:
    told = stories(200, seed=99)
    found = answers(task(), [story.text for story in told], {"aggregation_strategy": "first"})
    right = [
        {entry["word"] for entry in answer} == {story.named("PER"), story.named("LOC")}
        for answer, story in zip(found, told, strict=True)
    ]
    assert sum(right) >= 190


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", ["tagger", "bert", "roberta", "distilbert", "electra", "modernbert"])
@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
def test_answers_equal_the_pipelines(
    task: Callable[..., Task], reference: Callable[[str], Any], name: str, strategy: str
) -> None:
    texts = [*sentences(25, seed=8), " leading and trailing ", "a\nb\tc", *(story.text for story in stories(5))]
    theirs = reference(name)(texts, aggregation_strategy=strategy)
    for one, other in zip(answers(task(name), texts, {"aggregation_strategy": strategy}), theirs, strict=True):
        agree(one, other)


@pytest.mark.parametrize("ignored", [[], ["O"], ["O", "PER", "B-PER"], ["LOC"]])
@pytest.mark.parametrize("strategy", ["none", "simple"])
def test_ignored_labels_are_the_pipelines(
    task: Callable[..., Task], reference: Callable[[str], Any], ignored: list[str], strategy: str
) -> None:
    texts = [story.text for story in stories(6, seed=4)]
    parameters = {"aggregation_strategy": strategy, "ignore_labels": ignored}
    for one, other in zip(answers(task(), texts, parameters), reference("tagger")(texts, **parameters), strict=True):
        agree(one, other)


def test_the_eager_engine_gives_the_same(directory: Find, settings: Make, task: Callable[..., Task]) -> None:
    eager = load("token-classification", directory("tagger"), settings(BYOC_ENGINE="eager"))
    assert "engine=packed" in task().description
    assert "engine=eager" in eager.description
    texts = sentences(20, seed=5)
    for one, other in zip(answers(task(), texts), answers(eager, texts), strict=True):
        agree(one, other)


def test_neighbours_change_nothing(task: Callable[..., Task]) -> None:
    texts = sentences(30, seed=6)
    together = answers(task(), texts)
    for text, answer in zip(texts, together, strict=True):
        agree(answers(task(), [text])[0], answer)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"strategy": "first"}, "the parameter 'strategy' is unknown"),
        ({"aggregation_strategy": "FIRST"}, "must be one of none, simple, first, average, max"),
        ({"ignore_labels": "O"}, "must be a list of labels"),
        ({"ignore_labels": [1]}, "must be a list of labels"),
        ({"truncation": 1}, "must be true or false"),
    ],
)
def test_a_wrong_parameter_is_that_records_error(task: Callable[..., Task], parameters: dict[str, Any], words: str) -> None:
    good, bad = task().encode([Record("a", 1), Record("b", 2, parameters)])
    assert isinstance(good, Encoded)
    assert isinstance(bad, ServiceError)
    assert bad.status == 400
    assert words in bad.message


def test_long_text_is_cut_and_counted_or_refused_when_asked(task: Callable[..., Task]) -> None:
    long = "kami " * 500
    cut, refused, number = task().encode([Record(long, 1), Record(long, 2, {"truncation": False}), Record(5, 3)])
    assert isinstance(cut, Encoded)
    assert (cut.truncated, cut.length) == (True, LONGEST)
    assert isinstance(refused, ServiceError)
    assert isinstance(number, ServiceError)


def test_a_text_of_nothing_has_no_entities(task: Callable[..., Task]) -> None:
    assert answers(task(), ["", " "], {"aggregation_strategy": "average"}) == [[], []]
