"""What a campaign tells of targets that did not run to the end of their time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fuzz import __main__ as program
from fuzz import campaign

HELD = "#12\tDONE   cov: 34 ft: 50 corp: 5/56b\nstat::number_of_executed_units: 1200\n"
BROKE = " === Uncaught Python exception: ===\nAssertionError: a fault\nTest unit written to found/text-broken-crash-0\n"


def ends(monkeypatch: pytest.MonkeyPatch, code: int, said: str) -> None:
    """Let every engine end so."""

    def engine(*_: str) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], code, "", said)

    monkeypatch.setattr(campaign, "_engine", engine)
    monkeypatch.setattr("sys.argv", ["fuzz", "text", "--found", "found"])


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_target_that_held_has_its_numbers_in_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends(monkeypatch, 0, HELD)
    assert program.main() == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-2].split() == ["text", "1,200", "34", "5", "0", "held"]
    assert told[-1] == "1,200 executions of 1 targets, 0 broken"
    assert len(told[-2]) - len("held") - 2 == len(campaign.HEADING)


def test_an_input_that_breaks_a_target_fails_the_campaign_and_can_be_run_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends(monkeypatch, 77, BROKE)
    assert program.main() == 1
    told = capsys.readouterr()
    assert "1 broken" in told.out
    assert "AssertionError: a fault" in told.err
    assert told.err.splitlines()[-1].endswith("python -m fuzz.engine text found/text-broken-crash-0")


def test_an_engine_that_is_killed_without_a_word_is_no_target_that_held(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends(monkeypatch, -9, "#4096\tpulse  cov: 3 corp: 2/2b\n")
    assert program.main() == 1
    told = capsys.readouterr()
    assert "BROKEN" in told.out
    assert "the engine was ended by SIGKILL" in told.err
