"""text-classification equals the Hugging Face pipeline: labels identical, scores within 1e-5."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from batch_handler.errors import ServiceError
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded, Task, load
from batch_handler.tasks.text_classification import sigmoid, softmax
from models import encoders
from models.language import opinions, sentences

TOLERANCE = 1e-5
Find = Callable[..., Path]
Make = Callable[..., Settings]


@pytest.fixture(scope="module")
def task(artefact: Find, loaded: Callable[[str, Path], Task]) -> Callable[..., Task]:
    """The task over an artefact, loaded once."""
    return lambda name="trained", **options: loaded("text-classification", artefact(name, **options))


@pytest.fixture(scope="module")
def pipeline(artefact: Find) -> Callable[..., Any]:
    """The reference."""
    from transformers import pipeline

    return lambda name="trained", **options: pipeline("text-classification", str(artefact(name, **options)), device="cpu")


def answers(task: Task, inputs: list[Any], parameters: dict[str, Any] | None = None) -> list[Any]:
    encoded = task.encode([Record(item, number, parameters or {}) for number, item in enumerate(inputs, 1)])
    good = [record for record in encoded if isinstance(record, Encoded)]
    outputs = iter(task.run(good)) if good else iter(())
    return [record if isinstance(record, ServiceError) else task.decode(next(outputs), record) for record in encoded]


def agree(ours: Any, theirs: Any) -> None:
    """The same labels in the same order, scores within the tolerance."""
    if isinstance(theirs, dict):
        ours, theirs = [ours], [theirs]
    assert [entry["label"] for entry in ours] == [entry["label"] for entry in theirs]
    assert [entry["score"] for entry in ours] == pytest.approx([entry["score"] for entry in theirs], abs=TOLERANCE)


def test_the_trained_model_knows_good_from_bad(task: Callable[..., Task]) -> None:
    texts, labels = opinions(400, seed=77)
    found = [answer["label"] == "good" for answer in answers(task(), texts)]
    assert sum(one == bool(other) for one, other in zip(found, labels, strict=True)) >= 380


@pytest.mark.parametrize("architecture", ["trained", "bert", "roberta", "xlm-roberta", "distilbert", "electra", "modernbert"])
def test_answers_equal_the_pipelines(task: Callable[..., Task], pipeline: Callable[..., Any], architecture: str) -> None:
    texts = [*sentences(60, seed=8), " leading and trailing ", "", "…", "a\nb\tc"]
    random.Random(0).shuffle(texts)
    for ours, theirs in zip(answers(task(architecture), texts), pipeline(architecture)(texts, truncation=True), strict=True):
        agree(ours, theirs)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra"])
def test_pairs_equal_the_pipelines(task: Callable[..., Task], pipeline: Callable[..., Any], architecture: str) -> None:
    left, right = sentences(20, seed=1, longest=12), sentences(20, seed=2, longest=12)
    pairs = [{"text": one, "text_pair": other} for one, other in zip(left, right, strict=True)]
    reference = pipeline(architecture)
    for ours, pair in zip(answers(task(architecture), pairs), pairs, strict=True):
        agree(ours, reference(pair))


def test_a_pair_without_its_second_text_is_a_text(task: Callable[..., Task]) -> None:
    plain, named, empty = answers(task("bert"), ["kami", {"text": "kami"}, {"text": "kami", "text_pair": None}])
    assert plain == pytest.approx(named)
    assert plain == pytest.approx(empty)


FIVE = {"id2label": {index: f"L{index}" for index in range(5)}, "label2id": {f"L{index}": index for index in range(5)}}


@pytest.mark.parametrize("top_k", [1, 2, 5, 50, None])
@pytest.mark.parametrize("function", [None, "softmax", "sigmoid", "none"])
def test_top_k_and_function_equal_the_pipelines(
    task: Callable[..., Task], pipeline: Callable[..., Any], top_k: int | None, function: str | None
) -> None:
    parameters: dict[str, Any] = {"top_k": top_k} | ({"function_to_apply": function} if function else {})
    texts = sentences(6, seed=3)
    ours = answers(task("bert", **FIVE), texts, parameters)
    theirs = pipeline("bert", **FIVE)(texts, truncation=True, **parameters)
    for one, other in zip(ours, theirs, strict=True):
        assert isinstance(one, list)
        agree(one, other)


@pytest.mark.parametrize(
    "options",
    [
        {},
        FIVE,
        {**FIVE, "problem_type": "multi_label_classification"},
        {**FIVE, "problem_type": "regression"},
        {**FIVE, "problem_type": "single_label_classification"},
        {"id2label": {0: "only"}, "label2id": {"only": 0}},
        {"id2label": {0: "only"}, "label2id": {"only": 0}, "problem_type": "regression"},
    ],
    ids=["two", "five", "multi-label", "regression", "single-label", "one label", "one regression"],
)
def test_the_default_function_is_the_pipelines(
    task: Callable[..., Task], pipeline: Callable[..., Any], options: dict[str, Any]
) -> None:
    texts = sentences(4, seed=4)
    theirs = pipeline("bert", **options)(texts, truncation=True)
    for one, other in zip(answers(task("bert", **options), texts), theirs, strict=True):
        agree(one, other)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"topk": 1}, "the parameter 'topk' is unknown: this model takes function_to_apply, top_k, truncation"),
        ({"top_k": 0}, "'top_k' must be a whole number from 1"),
        ({"top_k": -1}, "'top_k' must be"),
        ({"top_k": 1.0}, "'top_k' must be"),
        ({"top_k": True}, "'top_k' must be"),
        ({"top_k": "2"}, "'top_k' must be"),
        ({"function_to_apply": "relu"}, "must be one of sigmoid, softmax, none"),
        ({"function_to_apply": None}, "must be one of"),
        ({"function_to_apply": ["softmax"]}, "must be one of"),
        ({"truncation": "false"}, "must be true or false"),
        ({"truncation": None}, "must be true or false"),
    ],
)
def test_a_wrong_parameter_is_that_records_error(task: Callable[..., Task], parameters: dict[str, Any], words: str) -> None:
    encoded = task().encode([Record("a", 1), Record("b", 2, parameters), Record("c", 3)])
    assert [isinstance(record, ServiceError) for record in encoded] == [False, True, False]
    assert isinstance(encoded[1], ServiceError)
    assert encoded[1].status == 400
    assert words in encoded[1].message


@pytest.mark.parametrize(
    "inputs", [None, 5, True, ["a"], ["a", "b"], {}, {"text": 5}, {"text_pair": "a"}, {"text": "a", "more": "b"}]
)
def test_inputs_that_are_no_text_are_that_records_error(task: Callable[..., Task], inputs: Any) -> None:
    first, bad, last = answers(task(), ["a", inputs, "c"])
    assert isinstance(bad, ServiceError)
    assert bad.status == 400
    assert first["label"]
    assert last["label"]


def test_long_text_is_cut_and_counted_or_refused_when_asked(task: Callable[..., Task]) -> None:
    long = "kami " * 500
    cut, refused, short = task().encode([Record(long, 1), Record(long, 2, {"truncation": False}), Record("kami", 3)])
    assert isinstance(cut, Encoded)
    assert (cut.truncated, cut.length) == (True, encoders.LONGEST)
    assert isinstance(refused, ServiceError)
    assert f"longer than the model's {encoders.LONGEST} tokens" in refused.message
    assert isinstance(short, Encoded)
    assert not short.truncated


def test_truncation_can_be_off_by_setting_and_on_by_request(artefact: Find, settings: Make) -> None:
    strict = load("text-classification", artefact("trained"), settings(BYOC_TRUNCATION="false"))
    long = "kami " * 500
    refused, cut = strict.encode([Record(long, 1), Record(long, 2, {"truncation": True})])
    assert isinstance(refused, ServiceError)
    assert isinstance(cut, Encoded)


@pytest.mark.usefixtures("single_threaded")
def test_text_is_cut_on_the_side_that_the_tokeniser_names(settings: Make, tmp_path: Path) -> None:
    from transformers import pipeline

    from models.language import wordpiece

    encoders.save(tmp_path, "bert")
    wordpiece(encoders.LONGEST, truncation_side="left").save_pretrained(tmp_path)
    long = " ".join(sentences(30, seed=12))
    (ours,) = answers(load("text-classification", tmp_path, settings()), [long])
    agree(ours, pipeline("text-classification", str(tmp_path), device="cpu")([long], truncation=True)[0])


def test_softmax_and_sigmoid_hold_at_the_extremes() -> None:
    assert softmax(numpy.array([1e4, 0.0], numpy.float32)).tolist() == [1.0, 0.0]
    assert softmax(numpy.array([-1e4, -1e4], numpy.float32)).tolist() == [0.5, 0.5]
    assert sigmoid(numpy.array([-1e4, 0.0, 1e4], numpy.float32)).tolist() == [0.0, 0.5, 1.0]


def test_samples_can_be_run(task: Callable[..., Task]) -> None:
    assert all(isinstance(record, Encoded) for record in task().encode(task().samples()))
    assert "engine=packed" in task().description
