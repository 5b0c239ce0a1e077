"""feature-extraction equals the Hugging Face pipeline: one vector per token, special tokens included."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from batch_handler.errors import ServiceError
from batch_handler.request import Record
from batch_handler.settings import Settings
from batch_handler.tasks import Encoded, load
from models.language import sentences


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra", "modernbert"])
def test_vectors_equal_the_pipelines(artefact: Callable[..., Path], settings: Callable[..., Settings], architecture: str) -> None:
    from transformers import pipeline

    directory = artefact(architecture, head=False)
    task = load("feature-extraction", directory, settings())
    texts = [*sentences(30, seed=41, longest=60), "", " kami "]
    encoded = [record for record in task.encode([Record(text, 1) for text in texts]) if isinstance(record, Encoded)]
    ours = [task.decode(output, record) for output, record in zip(task.run(encoded), encoded, strict=True)]
    theirs = pipeline("feature-extraction", str(directory), device="cpu")(texts, truncation=True)
    for one, other in zip(ours, theirs, strict=True):
        expected = numpy.array(other[0])
        assert one.shape == expected.shape
        assert numpy.abs(one - expected).max() < 1e-5


@pytest.mark.parametrize("record", [Record(5, 1), Record({"text": "a"}, 1), Record("a", 1, {"pooling": "mean"})])
def test_what_cannot_be_used_is_that_records_error(
    artefact: Callable[..., Path], settings: Callable[..., Settings], record: Record
) -> None:
    task = load("feature-extraction", artefact("bert", head=False), settings())
    (bad,) = task.encode([record])
    assert isinstance(bad, ServiceError)
    assert bad.status == 400


def test_a_task_that_does_not_exist_names_those_that_do(settings: Callable[..., Settings], tmp_path: Path) -> None:
    from batch_handler.settings import SettingError

    with pytest.raises(SettingError, match=r"HF_TASK=poetry is not a task of this image: use one of .*text-classification"):
        load("poetry", tmp_path, settings())


def test_cuda_that_is_not_there_is_told(artefact: Callable[..., Path], settings: Callable[..., Any]) -> None:
    import torch

    from batch_handler.settings import SettingError

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(SettingError, match="BYOC_DEVICE=cuda, but no CUDA device"):
        load("feature-extraction", artefact("bert", head=False), settings(BYOC_DEVICE="cuda"))
