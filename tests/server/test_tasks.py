"""A few tasks over real TorchServe: trained models answer as they were trained, alone and in a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from models import decoders, heads, vision
from models.language import Story, stories
from running import RunningServer

CALLERS = 16
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def told() -> list[Story]:
    """Stories that the models have not seen."""
    return stories(64, seed=99)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., RunningServer]]:
    """A server over a model that is built on the spot."""
    running: list[RunningServer] = []

    def start(build: Callable[..., Path], *options: Any, **settings: str) -> RunningServer:
        running.append(RunningServer(build(tmp_path / "model", *options), {"SAGEMAKER_TS_MAX_BATCH_DELAY": "5", **settings}))
        return running[-1]

    yield start
    for server in running:
        server.stop()


def together(server: RunningServer, bodies: list[Any]) -> list[Any]:
    """All bodies at once, each by its own caller."""
    with ThreadPoolExecutor(CALLERS) as pool:
        responses = list(pool.map(server.invoke, bodies))
    assert {response.status_code for response in responses} == {200}
    return [response.json() for response in responses]


def test_entities_are_found_by_the_architectures_own_task(serve: Callable[..., RunningServer], told: list[Story]) -> None:
    server = serve(heads.save_tagger)
    parameters = {"aggregation_strategy": "first"}
    found = together(server, [{"inputs": story.text, "parameters": parameters} for story in told])
    right = sum(
        {entity["word"] for entity in answer} == {story.named("PER"), story.named("LOC")}
        for answer, story in zip(found, told, strict=True)
    )
    assert right >= 0.95 * len(told)
    for answer, story in zip(found, told, strict=True):
        assert all(story.text[entity["start"] : entity["end"]] == entity["word"] for entity in answer)
    bad = server.invoke({"inputs": "kami", "parameters": {"strategy": "first"}})
    assert bad.status_code == 400
    assert "the parameter 'strategy' is unknown" in bad.json()["error"]["message"]


def test_questions_are_answered_from_short_and_long_contexts(serve: Callable[..., RunningServer], told: list[Story]) -> None:
    server = serve(heads.save_reader)
    asked = [
        (story, kind, {"id": f"{number}-{kind}", "inputs": {"question": question, "context": story.text}})
        for number, story in enumerate(told)
        for kind, question in heads.QUESTIONS.items()
    ]
    found = together(server, [body for _, _, body in asked])
    assert [answer["id"] for answer in found] == [body["id"] for _, _, body in asked]
    right = sum(answer["answer"] == story.named(kind) for answer, (story, kind, _) in zip(found, asked, strict=True))
    assert right >= 0.95 * len(asked)
    long = stories(1, seed=5, shortest=150, longest=150)[0].text
    one = server.invoke({"inputs": {"question": "who travels", "context": long}, "parameters": {"top_k": 3}})
    assert [long[answer["start"] : answer["end"]] for answer in one.json()] == [answer["answer"] for answer in one.json()]


def test_labels_are_the_callers_with_a_named_task(serve: Callable[..., RunningServer]) -> None:
    def build(directory: Path) -> Path:
        return heads.save(directory, "bert", "SequenceClassification", **heads.NATURAL_LANGUAGE_INFERENCE)

    server = serve(build, HF_TASK="zero-shot-classification")
    bodies = [
        {"inputs": f"kami {'solten ' * number}", "parameters": {"candidate_labels": ["sour", "fresh", "kami"][: number % 3 + 1]}}
        for number in range(CALLERS)
    ]
    alone = [server.invoke(body).json() for body in bodies]
    for answer, one in zip(together(server, bodies), alone, strict=True):
        assert answer["labels"] == one["labels"]
        assert answer["scores"] == pytest.approx(one["scores"], abs=TOLERANCE)
    assert server.invoke({"inputs": "kami"}).status_code == 400


def test_texts_and_conversations_are_continued(serve: Callable[..., RunningServer]) -> None:
    server = serve(decoders.save, "llama", True)
    parameters = {"max_new_tokens": 6, "do_sample": True, "seed": 3}
    bodies: list[Any] = [{"inputs": "kami " * (number + 1), "parameters": parameters} for number in range(CALLERS)]
    bodies.append({"inputs": [{"role": "user", "content": "kami"}], "parameters": parameters})
    alone = [server.invoke(body).json() for body in bodies]
    assert together(server, bodies) == alone
    assert all(answer["generated_text"].startswith("kami") for answer in alone[:-1])
    assert [message["role"] for message in alone[-1]["generated_text"]] == ["user", "assistant"]


def test_pictures_come_as_bodies_and_as_base64(serve: Callable[..., RunningServer]) -> None:
    server = serve(vision.save)
    files = [vision.encoded(vision.pixels(seed)) for seed in range(CALLERS)]
    alone = [server.invoke(file, "image/png") for file in files]
    assert {answer.status_code for answer in alone} == {200}
    with ThreadPoolExecutor(CALLERS) as pool:
        batched = list(pool.map(lambda file: server.invoke(file, "image/png"), files))
    for one, other in zip(alone, batched, strict=True):
        assert [entry["label"] for entry in one.json()] == [entry["label"] for entry in other.json()]
    broken = server.invoke(files[0][:100], "image/png")
    assert (broken.status_code, broken.json()["error"]["type"]) == (400, "InvalidRecord")
