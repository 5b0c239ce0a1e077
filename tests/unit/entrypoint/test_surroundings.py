"""The work directory, the user, and what the machine tells after a failure."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

import pytest

from entrypoint import diagnosis, log, privileges
from entrypoint.diagnosis import Circumstances, explain, oom_kills
from entrypoint.failure import StartError
from entrypoint.serve import unexpected
from entrypoint.supervise import Ending
from entrypoint.workdir import StartTurn, work_directory


def test_a_work_directory_is_private_and_goes(tmp_path: Path) -> None:
    with work_directory(tmp_path) as work:
        assert stat.S_IMODE(work.stat().st_mode) == 0o700
        (work / "file").write_text("x")
    assert list(tmp_path.iterdir()) == []


def test_an_abandoned_directory_is_removed_and_a_living_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "byoc-killed").mkdir()
    (tmp_path / "byoc-killed" / "lock").touch()
    (tmp_path / "byoc-in-the-making").mkdir()
    with work_directory(tmp_path) as first, work_directory(tmp_path) as second:
        assert first.exists()
        assert second.exists()
        assert not (tmp_path / "byoc-killed").exists()
        assert (tmp_path / "byoc-in-the-making").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"cannot be written .* mount one there"), work_directory(tmp_path / "missing"):
        pass


def test_a_full_tmp_is_told_with_what_is_needed() -> None:
    sentence = str(unexpected(OSError(errno.ENOSPC, "No space left on device")))
    assert sentence.startswith("/tmp is too small (No space left on device): give it 64 MB")


def test_a_turn_can_be_given_twice_and_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        turn = StartTurn(tmp_path)
        turn.take()
        turn.give()
        turn.give()


@pytest.mark.parametrize(
    ("capabilities", "possible"),
    [("000001ffffffffff", True), ("0000000000000000", False), ("0000000000000080", False), ("00000000000000c0", True)],
)
def test_changing_the_user_needs_both_capabilities(tmp_path: Path, capabilities: str, possible: bool) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tpython\nCapPrm:\t000001ffffffffff\nCapEff:\t{capabilities}\n")
    assert privileges.can_change_user(status) is possible


def test_without_the_account_the_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges, "ACCOUNT", "nobody-has-this-name")
    before = os.getuid()
    assert privileges.drop(tmp_path) is None
    assert os.getuid() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_artefact_is_readable_only_when_all_of_it_is(tmp_path: Path) -> None:
    for directory in (tmp_path, *tmp_path.parents[:3]):
        if directory.stat().st_uid == os.getuid() and directory != Path("/tmp"):
            directory.chmod(0o755)
    (tmp_path / "deep").mkdir()
    secret = tmp_path / "deep" / "weights.bin"
    secret.write_text("x")
    assert privileges.readable_by(12_345, 12_345, tmp_path)
    secret.chmod(0o600)
    assert not privileges.readable_by(12_345, 12_345, tmp_path)
    assert not privileges.readable_by(12_345, 12_345, secret)
    (tmp_path / "deep").chmod(0o700)
    assert not privileges.readable_by(12_345, 12_345, tmp_path)


@pytest.mark.parametrize("name", ["memory.events", "memory/memory.oom_control"])
def test_kills_for_memory_are_counted_in_both_cgroup_versions(tmp_path: Path, name: str) -> None:
    assert oom_kills(tmp_path) == 0
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("low 0\noom 4\noom_kill 3\n")
    assert oom_kills(tmp_path) == 3


@pytest.fixture
def circumstances(tmp_path: Path) -> Circumstances:
    return Circumstances(
        failure_file=tmp_path / "failure",
        handler="batch_handler.service:handle",
        ours=True,
        python=Path("/nowhere/python"),
        environment={"PYTHONPATH": ""},
        model_directory=tmp_path,
        memory_bytes=1_500 << 20,
        heap_mb=300,
        oom_kills_before=0,
    )


def test_a_kill_for_memory_names_the_limit(circumstances: Circumstances, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "oom_kills", lambda: 2)
    sentence = explain(Ending(137, took_s=None, was_ready=True), circumstances)
    assert sentence is not None
    assert sentence.startswith("out of memory: the limit is 1,500 MiB and the kernel killed 2 process(es)")


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (Ending(3, took_s=None, was_ready=False), "the model could not be loaded"),
        (Ending(3, took_s=None, was_ready=True), "heap of 300 MiB"),
        (Ending(4, took_s=None, was_ready=True), "died again and again"),
        (Ending(137, took_s=None, was_ready=True), "java was killed"),
        (Ending(9, took_s=None, was_ready=True), "code 9"),
        (Ending(5, took_s=1.0, was_ready=True), "still unanswered"),
        (Ending(137, took_s=1.0, was_ready=True), "before it had drained"),
    ],
)
def test_every_other_end_has_its_sentence(
    circumstances: Circumstances, monkeypatch: pytest.MonkeyPatch, ending: Ending, said: str
) -> None:
    monkeypatch.setattr(diagnosis, "oom_kills", lambda: 0)
    assert said in (explain(ending, circumstances) or "")


@pytest.mark.parametrize("ending", [Ending(0, 1.0, True), Ending(0, None, True), Ending(143, 1.0, False)])
def test_an_end_in_order_needs_no_sentence(circumstances: Circumstances, ending: Ending) -> None:
    assert ending.exit_code == 0
    assert explain(ending, circumstances) is None


def test_log_lines_look_like_the_frontends(capsys: pytest.CaptureFixture[str]) -> None:
    log.Log().info("hello")
    log.Log(level="ERROR").info("not written")
    log.Log(level="FATAL").error("always written")
    out, err = capsys.readouterr()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO hello\n", out)
    assert err.endswith("Z ERROR always written\n")
