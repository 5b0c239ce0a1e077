"""Many callers at once: each gets exactly its own answer, and few forward passes serve them all."""

from __future__ import annotations

import pydoc_data.topics
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy
import orjson
import pytest
from sentence_transformers import SentenceTransformer

from running import HOME, RunningServer

TOLERANCE = 1e-5
CLIENTS = 32
CALLS_EACH = 4


@pytest.fixture(scope="session")
def reference(encoder: Path) -> SentenceTransformer:
    """The library that the weights come from, run directly."""
    return SentenceTransformer(str(encoder), device="cpu")


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """A thousand real pieces of English text of very different lengths, from the Python documentation."""
    paragraphs = [part.strip() for topic in pydoc_data.topics.topics.values() for part in topic.split("\n\n")]
    return [paragraph for paragraph in paragraphs if paragraph][:1_000]


@pytest.fixture(scope="session")
def vectors(reference: SentenceTransformer, sentences: list[str]) -> numpy.ndarray:
    """What the library makes of them."""
    return reference.encode(sentences)


@dataclass(frozen=True)
class Question:
    """One call and the judgement of its answer."""

    body: bytes
    content_type: str
    accept: str
    fits: Callable[[httpx.Response], bool]


def test_a_thousand_sentences_in_one_request_equal_the_library(
    server: RunningServer, vectors: numpy.ndarray, sentences: list[str]
) -> None:
    body = b"\n".join(orjson.dumps({"id": number, "inputs": text}) for number, text in enumerate(sentences))
    answer = server.invoke(body, "application/jsonlines")
    rows = [orjson.loads(line) for line in answer.content.split(b"\n")]
    assert [row["id"] for row in rows] == list(range(1_000))
    assert numpy.abs(numpy.array([row["output"] for row in rows]) - vectors).max() < TOLERANCE


@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_concurrent_callers_each_get_exactly_their_own_answer(
    encoder: Path, vectors: numpy.ndarray, sentences: list[str], batch_size: int
) -> None:
    settings = {"SAGEMAKER_TS_BATCH_SIZE": str(batch_size), "SAGEMAKER_TS_MAX_BATCH_DELAY": "5"}
    chooser = random.Random(batch_size)
    plans = [[question(chooser, sentences, vectors) for _ in range(CALLS_EACH)] for _ in range(CLIENTS)]
    with RunningServer(encoder, settings) as server:
        start = threading.Barrier(CLIENTS)

        def client(questions: list[Question]) -> list[bool]:
            start.wait()
            return [each.fits(ask(server, each)) for each in questions]

        with ThreadPoolExecutor(CLIENTS) as pool:
            verdicts = list(pool.map(client, plans))
        metrics = server.metrics()
    assert all(all(answers) for answers in verdicts)
    assert metrics["byoc_batch_requests_count"] >= CLIENTS * CALLS_EACH / batch_size
    largest = metrics[f'byoc_batch_requests_bucket{{le="{batch_size}.0"}}']
    assert largest == metrics["byoc_batch_requests_count"], "a batch held more requests than batch_size allows"


def test_thirty_two_calls_at_once_take_at_most_four_forward_passes(encoder: Path) -> None:
    with RunningServer(encoder, {"SAGEMAKER_TS_MAX_BATCH_DELAY": "2000"}) as server:
        before = server.metrics()["byoc_forward_passes_total"]
        start = threading.Barrier(CLIENTS)

        def client(number: int) -> int:
            start.wait()
            return server.invoke({"inputs": f"caller number {number}"}).status_code

        with ThreadPoolExecutor(CLIENTS) as pool:
            statuses = list(pool.map(client, range(CLIENTS)))
        after = server.metrics()
    assert statuses == [200] * CLIENTS
    assert 1 <= after["byoc_forward_passes_total"] - before <= 4
    assert after["byoc_padding_tokens_total"] == 0


def test_two_lines_in_config_properties_decide_how_requests_are_batched(encoder: Path, tmp_path: Path) -> None:
    sizes = {}
    for batch_size, delay in ((3, 400), (8, 400)):
        home = edited_home(tmp_path / str(batch_size), {"batch_size": batch_size, "max_batch_delay": delay})
        with RunningServer(encoder, home=home) as server, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: server.invoke({"inputs": f"text {number}"}), range(24)))
            metrics = server.metrics()
            assert f"batch_size={batch_size}" in server.output
        batches = metrics["byoc_batch_requests_count"]
        sizes[batch_size] = (metrics["byoc_batch_requests_sum"] / batches, metrics)
    assert 2.0 <= sizes[3][0] <= 3.0
    assert 5.0 <= sizes[8][0] <= 8.0


def edited_home(home: Path, lines: dict[str, int]) -> Path:
    """The checkout's runtime directory with other values on some lines of config.properties."""
    (home / "config").mkdir(parents=True)
    for entry in HOME.iterdir():
        if entry.name != "config":
            (home / entry.name).symlink_to(entry.resolve() if entry.is_symlink() else entry)
    for file in (HOME / "config").iterdir():
        (home / "config" / file.name).write_bytes(file.read_bytes())
    properties = home / "config" / "config.properties"
    kept = [line for line in properties.read_text("utf-8").splitlines() if line.partition("=")[0].strip() not in lines]
    properties.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in lines.items())]) + "\n", "utf-8")
    return home


def ask(server: RunningServer, question: Question) -> httpx.Response:
    """Send one call."""
    return server.invoke(question.body, question.content_type, accept=question.accept)


def question(chooser: random.Random, sentences: list[str], vectors: numpy.ndarray) -> Question:
    """A call of one of many kinds, good and bad, that can have come from nobody else."""
    picked = [chooser.randrange(len(vectors)) for _ in range(chooser.choice([1, 1, 2, 5]))]
    tag = chooser.randrange(10**9)

    def close(rows: object) -> bool:
        return bool(numpy.abs(numpy.array(rows) - vectors[picked]).max() < TOLERANCE)

    def json_list() -> Question:
        body = orjson.dumps({"inputs": [sentences[index] for index in picked], "tag": tag})
        return Question(
            body,
            "application/json",
            "application/json",
            lambda got: (document := got.json())["tag"] == tag and close(document["output"]),
        )

    def json_lines() -> Question:
        body = b"\n".join(orjson.dumps(sentences[index]) for index in picked)
        return Question(
            body,
            "application/jsonlines",
            "application/jsonlines",
            lambda got: close([orjson.loads(line) for line in got.content.splitlines()]),
        )

    def numbers(got: httpx.Response) -> list[list[float]]:
        return [[float(cell) for cell in line.split(",")] for line in got.text.splitlines()]

    def csv_rows() -> Question:
        body = "\n".join('"' + " ".join(sentences[index].split()).replace('"', '""') + '"' for index in picked)
        return Question(body.encode(), "text/csv", "text/csv", lambda got: close(numbers(got)))

    def bad_json() -> Question:
        return Question(
            b'{"inputs": ', "application/json", "application/json", lambda got: got.status_code == 400 and "JSON" in got.text
        )

    def bad_record() -> Question:
        body = orjson.dumps({"inputs": [sentences[picked[0]], tag]})
        return Question(
            body,
            "application/json",
            "application/json",
            lambda got: got.status_code == 400 and str(tag) in got.text and got.json()["error"]["record"] == 2,
        )

    def bad_type() -> Question:
        return Question(b"PAR1", "application/x-parquet", "*/*", lambda got: got.status_code == 415)

    def bad_accept() -> Question:
        return Question(b'"x"', "application/json", "application/pdf", lambda got: got.status_code == 406)

    return chooser.choice([json_list, json_list, json_lines, json_lines, csv_rows, bad_json, bad_record, bad_type, bad_accept])()
