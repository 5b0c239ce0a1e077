"""All bombs against the image in a small cgroup: each is refused or done, the container lives, a neighbour notices nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from bombs import ARRAYS, BODIES, HEADERS, PICTURES, Bomb
from canary import Canary
from containers import WORKER, Container, readable
from models import vision

PATIENT = {"SAGEMAKER_TS_RESPONSE_TIMEOUT": "300"}
"""Bounded all the same; the tests' machine has other things to do."""
SMALL = ("--memory", "1500m", "--memory-swap", "1500m", "--cpus", "2")
NOT_READ = 415
"""The encoder's answer to arrays, which its task takes none of."""


def throw(container: Container, bombs: Mapping[str, Bomb], *others: int) -> None:
    """Each bomb gets one of its statuses, or of the others."""
    for name, bomb in bombs.items():
        headers = {header.replace("-", "_"): value for header, value in bomb.headers.items()}
        answer = container.invoke(bomb.body(), bomb.content_type, **headers)
        assert answer.status_code in (*bomb.statuses, *others), f"{name}: {answer.status_code} {answer.text[:200]}"


@pytest.mark.timeout(900)
def test_bodies_and_headers_go_off_harmlessly_in_a_small_container(image: str, encoder: Path) -> None:
    with Container(encoder, PATIENT, SMALL) as container:
        workers = container.processes(WORKER)
        with Canary(container) as canary:
            throw(container, BODIES)
            throw(container, ARRAYS, NOT_READ)
            for name, value in HEADERS.items():
                for header in ("Content-Type", "Accept"):
                    answer = container.http.post("/invocations", content=b'"a"', headers={header: value})
                    assert answer.status_code in (200, 400, 406, 415, 431), f"{name}: {answer.status_code}"
        canary.assert_well()
        assert container.processes(WORKER) == workers, "a worker died"
        assert container.state()["OOMKilled"] is False


@pytest.mark.timeout(900)
def test_pictures_go_off_harmlessly_in_a_small_container(image: str, tmp_path: Path) -> None:
    model = readable(vision.save(tmp_path / "vit"))
    with Container(model, options=SMALL) as container:
        workers = container.processes(WORKER)
        throw(container, PICTURES)
        good = container.invoke(vision.encoded(vision.pixels(1)), "image/png")
        assert good.status_code == 200
        assert container.processes(WORKER) == workers, "a worker died"
        assert container.state()["OOMKilled"] is False
