"""What is refused before java starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from batch_handler.artefact import detect
from batch_handler.settings import SettingError, resolve
from batch_handler.tasks import MODULES
from entrypoint import foresight
from entrypoint.model import Source, open_artefact

MakeModel = Callable[..., Path]


def opened(directory: Path) -> Source:
    return open_artefact(detect(directory), directory.parent)


def test_the_names_of_tasks_are_those_of_the_handlers_table() -> None:
    assert foresight.task_names() == list(MODULES)


def test_every_task_and_translations_with_their_languages_pass(make_model: MakeModel) -> None:
    source = opened(make_model())
    for task in (*MODULES, "translation_en_to_de"):
        foresight.check_task(resolve({"HF_TASK": task}), source)


def test_a_wrong_task_in_the_artefacts_configuration_is_told_with_its_place(make_model: MakeModel) -> None:
    source = opened(make_model())
    with pytest.raises(SettingError, match=r"model-config\.yaml task=telepathy is not a task"):
        foresight.check_task(resolve({}, {"task": "telepathy"}), source)


def test_a_script_may_mean_anything_by_its_task(make_model: MakeModel) -> None:
    directory = make_model()
    (directory / "code").mkdir()
    (directory / "code" / "inference.py").touch()
    foresight.check_task(resolve({"HF_TASK": "telepathy"}), opened(directory))
