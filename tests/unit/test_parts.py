"""Records of several passes through the whole pipeline: planned pass by pass, answered record by record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from batch_handler.pipeline import Pipeline
from batch_handler.request import Headers, Request
from batch_handler.settings import Settings
from batch_handler.tasks import load
from models import heads
from models.language import sentences, words

Make = Callable[..., Settings]
TOLERANCE = 1e-5

pytestmark = pytest.mark.usefixtures("single_threaded")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of natural language inference with random weights."""
    path = tmp_path_factory.mktemp("nli") / "model"
    return heads.save(path, "bert", "SequenceClassification", **heads.NATURAL_LANGUAGE_INFERENCE)


def request(inputs: Any, labels: Sequence[str]) -> Request:
    body = orjson.dumps({"inputs": inputs, "parameters": {"candidate_labels": labels}})
    return Request("id", Headers([("content-type", "application/json")]), body)


def test_a_record_of_many_labels_is_no_giant_pass(directory: Path, settings: Make) -> None:
    made = settings(BYOC_TOKEN_BUDGET="256")
    pipeline = Pipeline(load("zero-shot-classification", directory, made), made)
    answers = pipeline([request("kami solten", words(50))])
    assert len(orjson.loads(answers.responses[0].body)["labels"]) == 50
    assert sum(answers.report.microbatches) == 50
    assert len(answers.report.microbatches) >= answers.report.tokens / 256


@pytest.mark.parametrize("lanes", ["1", "2"])
def test_requests_of_different_labels_share_passes_and_keep_their_own(directory: Path, settings: Make, lanes: str) -> None:
    made = settings(BYOC_THREADS=lanes)
    pipeline = Pipeline(load("zero-shot-classification", directory, made), made)
    requests = [
        request(sentences(2, seed=seed, longest=8) if seed % 2 else sentences(1, seed=seed)[0], words(seed + 2, seed=seed))
        for seed in range(8)
    ]
    together = pipeline(requests)
    assert len(together.report.microbatches) < 8
    for one, response in zip(requests, together.responses, strict=True):
        alone, shared = (orjson.loads(answer.body) for answer in (pipeline([one]).responses[0], response))
        alone, shared = ([answer] if isinstance(answer, dict) else answer for answer in (alone, shared))
        assert [answer["labels"] for answer in alone] == [answer["labels"] for answer in shared]
        for left, right in zip(alone, shared, strict=True):
            assert left["scores"] == pytest.approx(right["scores"], abs=TOLERANCE)


def test_a_pass_that_fails_costs_its_record_and_spares_the_neighbours(
    directory: Path, settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings(SAGEMAKER_BATCH="true")
    pipeline = Pipeline(load("zero-shot-classification", directory, made), made)
    honest = pipeline.task.run
    poison = pipeline.task.encode([_record("splendid")])[0].passes[0].model_input  # type: ignore[union-attr]

    def run(records: Sequence[Any]) -> Any:
        if any(record.model_input == poison for record in records):
            raise ZeroDivisionError
        return honest(records)

    monkeypatch.setattr(pipeline.task, "run", run)
    (response,) = pipeline([request(["kami", "solten"], ["sour", "stale"])]).responses
    assert response.status == 200
    (response,) = pipeline([request(["kami", "solten"], ["sour", "splendid"])]).responses
    bad, good = orjson.loads(response.body)
    assert bad["error"]["type"] == "ModelError"
    assert good["labels"]


def test_warming_up_runs_records_of_several_passes(directory: Path, settings: Make) -> None:
    Pipeline(load("zero-shot-classification", directory, settings()), settings()).warm_up()


def _record(label: str) -> Any:
    from batch_handler.request import Record

    return Record("kami", 1, {"candidate_labels": [label]})
