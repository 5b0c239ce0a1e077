"""How much work the pictures of one request may be, when it ends, and that nobody waits for it."""

from __future__ import annotations

import base64
import json
import math
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from batch_handler.pipeline import Pipeline
from batch_handler.request import Headers, Request
from batch_handler.settings import Settings
from batch_handler.tasks import Task, load, pictures
from models import vision

Make = Callable[..., Settings]

pytestmark = pytest.mark.usefixtures("single_threaded")


@pytest.fixture(scope="module")
def classification(tmp_path_factory: pytest.TempPathFactory, settings: Make) -> Task:
    """A small model with random weights."""
    return load("image-classification", vision.save(tmp_path_factory.mktemp("vit") / "model"), settings())


def request_of(*files: bytes) -> Request:
    body = json.dumps([base64.b64encode(file).decode() for file in files]).encode()
    return Request("id", Headers([("Content-Type", "application/json")]), body)


def test_pictures_that_are_too_large_together_are_refused_before_any_is_decoded(
    classification: Task, settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(classification, settings(BYOC_MAX_MEGAPIXELS="1"))
    file = vision.encoded(vision.pixels(1, 600, 400))
    (fits,) = pipeline([request_of(*[file] * 4)]).responses
    assert fits.status == 200
    begun: list[Any] = []
    monkeypatch.setattr(pictures, "decoded", begun.append)
    (refused,) = pipeline([request_of(b"no picture", *[file] * 6)]).responses
    assert (refused.status, begun) == (413, [])
    error = orjson.loads(refused.body)["error"]
    assert (error["type"], error["record"]) == ("PayloadTooLarge", 6)
    assert "more than 1 megapixels together" in error["message"]
    assert "BYOC_MAX_MEGAPIXELS" in error["message"]


def test_thirty_two_photos_of_twelve_megapixels_are_one_request(classification: Task, settings: Make) -> None:
    photo = vision.encoded(vision.pixels(3, 4_032, 3_024), "JPEG", quality=50)
    (response,) = Pipeline(classification, settings())([request_of(*[photo] * 32)]).responses
    assert response.status == 200
    assert len(orjson.loads(response.body)) == 32


def test_a_transform_jobs_pictures_are_bounded_only_by_its_own_setting(settings: Make) -> None:
    assert settings().pixel_limit == 500_000_000
    assert settings(SAGEMAKER_BATCH="true").pixel_limit == math.inf
    assert settings(SAGEMAKER_BATCH="true", BYOC_MAX_MEGAPIXELS="2").pixel_limit == 2_000_000


def test_decoding_ends_when_the_requests_time_is_over(
    classification: Task, settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, times = pictures.decoded, []

    def slowly(file: Any) -> Any:
        times.append(time.monotonic())
        time.sleep(0.5)
        return decoded(file)

    monkeypatch.setattr(pictures, "decoded", slowly)
    pipeline = Pipeline(classification, settings(SAGEMAKER_TS_RESPONSE_TIMEOUT="1"))
    (response,) = pipeline([request_of(*[vision.encoded(vision.pixels(1))] * 20)]).responses
    assert response.status == 504
    assert 1 <= len(times) <= 2


def test_a_neighbour_does_not_wait_for_large_pictures(
    classification: Task, settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, answered = pictures.decoded, threading.Event()

    def large_ones_last(file: Any) -> Any:
        assert file.width < 1_000 or answered.wait(60)
        return decoded(file)

    monkeypatch.setattr(pictures, "decoded", large_ones_last)
    pipeline = Pipeline(classification, settings())
    large, small = request_of(vision.encoded(vision.pixels(1, 5_000, 4_000))), request_of(vision.encoded(vision.pixels(2)))
    order: queue.Queue[tuple[int, int]] = queue.Queue()

    def reply(answers: Any, report: Any) -> None:
        for index, response in answers:
            order.put((index, response.status))
            answered.set()

    pipeline.serve([large, small], reply)
    assert [order.get(timeout=60), order.get(timeout=60)] == [(1, 200), (0, 200)]
