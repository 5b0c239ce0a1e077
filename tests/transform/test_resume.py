"""Jobs that end before they are done, by SIGINT and by kill -9, and what the same command does then."""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from runner import LINES, Moto, Runner, peak_memory
from stand_in_container import StandIn, answer_lines

COUNT = 3_000
ONE_BY_ONE = ("--batch-strategy", "SingleRecord", "--max-concurrent-transforms", 4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files in which every line is another, so that a line done twice is seen."""
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / "in" / name).write_bytes(b"".join(f"{name}{number}\n".encode() * 1 for number in range(COUNT)))
    return tmp_path / "in"


def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def digest(body: bytes) -> bytes:
    """An answer that tells which line it is for."""
    return b"\n".join(hashlib.sha1(line).hexdigest().encode() for line in body.splitlines())


def expected(path: Path) -> bytes:
    return digest(path.read_bytes()) + b"\n"


def interrupted(run: Runner, arguments: tuple[object, ...], container: StandIn, answers: int, number: signal.Signals) -> int:
    process = run.start(*arguments)
    until(lambda: len(container.bodies) >= answers)
    process.send_signal(number)
    process.communicate(timeout=60)
    return process.returncode


def test_ctrl_c_lets_requests_in_flight_finish_and_the_next_run_asks_only_for_the_rest(
    run: Runner, folder: Path, tmp_path: Path
) -> None:
    with StandIn(answer=digest, fault=lambda number, body: 0.002) as container:
        job = ("--input", folder, "--output", tmp_path / "out", *LINES, *ONE_BY_ONE, "--local", container.url)
        assert interrupted(run, job, container, 700, signal.SIGINT) == 130
        assert not list((tmp_path / "out").glob("[!.]*"))
        assert interrupted(run, job, container, 3_700, signal.SIGTERM) == 130
        assert [path.name for path in (tmp_path / "out").glob("[!.]*")] == ["a.out"]
        done = run(*job)
        assert done.returncode == 0, done.stderr
        assert Counter(container.bodies) == Counter(
            line + b"\n" for name in "ab" for line in (folder / name).read_bytes().split()
        )
    for name in "ab":
        assert (tmp_path / "out" / f"{name}.out").read_bytes() == expected(folder / name)
    assert not list((tmp_path / "out").glob(".*"))


def test_after_kill_9_again_and_again_the_output_is_what_one_run_would_have_written(
    run: Runner, folder: Path, tmp_path: Path
) -> None:
    with StandIn(answer=digest, fault=lambda number, body: 0.002) as container:
        job = ("--input", folder, "--output", tmp_path / "out", *LINES, *ONE_BY_ONE, "--local", container.url)
        for answers in (500, 1_500, 2_900, 3_300, 4_500):
            assert interrupted(run, job, container, answers, signal.SIGKILL) == -signal.SIGKILL
        done = run(*job)
        assert done.returncode == 0, done.stderr
        repeated = len(container.bodies) - 2 * COUNT
    for name in "ab":
        assert (tmp_path / "out" / f"{name}.out").read_bytes() == expected(folder / name)
    assert repeated < 0.35 * 2 * COUNT  # five kills, each at the cost of half a second's work and what was in flight


def test_an_input_that_has_changed_is_done_again_and_only_that(run: Runner, folder: Path, tmp_path: Path) -> None:
    with StandIn(answer=digest) as container:
        job = ("--input", folder, "--output", tmp_path / "out", *LINES, "--local", container.url)
        assert run(*job).returncode == 0
        (folder / "b").write_bytes(b"other\n")
        asked = container.asked
        assert run(*job).returncode == 0
        assert container.bodies[asked:] == [b"other\n"]
        assert run(*job).returncode == 0
        assert container.asked == asked + 1
        (tmp_path / "out" / "a.out").unlink()
        assert run(*job).returncode == 0
        assert container.asked > asked + 1
    assert (tmp_path / "out" / "a.out").read_bytes() == expected(folder / "a")
    assert (tmp_path / "out" / "b.out").read_bytes() == digest(b"other\n") + b"\n"


def test_a_torn_journal_line_and_bytes_behind_the_last_safe_place_are_dropped(run: Runner, folder: Path, tmp_path: Path) -> None:
    with StandIn(answer=digest, fault=lambda number, body: 0.002) as container:
        job = ("--input", folder, "--output", tmp_path / "out", *LINES, *ONE_BY_ONE, "--local", container.url)
        assert interrupted(run, job, container, 1_500, signal.SIGKILL) == -signal.SIGKILL
        (journal,) = [path for path in run.state.glob("*/*/journal.jsonl") if b'"a"' in path.read_bytes()]
        with journal.open("ab") as file:
            file.write(b'{"progress": {"place": {"offset": 99')
        with (tmp_path / "out" / ".a.out.part").open("ab") as file:
            file.write(b"bytes that nobody vouches for")
        done = run(*job)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "a.out").read_bytes() == expected(folder / "a")


def test_a_part_that_somebody_removed_is_written_anew(run: Runner, folder: Path, tmp_path: Path) -> None:
    with StandIn(answer=digest, fault=lambda number, body: 0.002) as container:
        job = ("--input", folder, "--output", tmp_path / "out", *LINES, *ONE_BY_ONE, "--local", container.url)
        assert interrupted(run, job, container, 1_000, signal.SIGKILL) == -signal.SIGKILL
        (tmp_path / "out" / ".a.out.part").unlink()
        assert run(*job).returncode == 0
    assert (tmp_path / "out" / "a.out").read_bytes() == expected(folder / "a")


def test_the_same_job_does_not_run_twice_at_once(run: Runner, folder: Path, tmp_path: Path) -> None:
    with StandIn(fault=lambda number, body: 0.05) as container:
        job = ("--input", folder, "--output", tmp_path / "out", *LINES, *ONE_BY_ONE, "--local", container.url)
        first = run.start(*job)
        until(lambda: container.asked > 0)
        second = run(*job)
        first.kill()
        first.communicate()
    assert second.returncode == 1
    assert "the same job is running already" in second.stderr


def test_failed_records_are_listed_once_after_an_interruption(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"bad\n" if number % 10 == 0 else b"good\n" for number in range(2_000)))

    def answer(body: bytes) -> bytes:
        return b'{"error":{"type":"InvalidRecord","message":"made up","record":1}}' if body == b"bad\n" else b"{}"

    with StandIn(answer=answer, fault=lambda number, body: 0.002) as container:
        job = ("--input", path, "--output", tmp_path / "out", *LINES, *ONE_BY_ONE, "--local", container.url)
        assert interrupted(run, job, container, 800, signal.SIGKILL) == -signal.SIGKILL
        done = run(*job)
    assert done.returncode == 0, done.stderr
    errors = [json.loads(line) for line in (tmp_path / "out" / "lines.errors.jsonl").read_text().splitlines()]
    assert [error["line"] for error in errors] == list(range(1, 2_000, 10))
    assert "2,000 records, 200 of them failed" in done.stdout


def test_an_output_in_s3_goes_on_where_it_was_after_kill_9(run_s3: Runner, aws: Moto, tmp_path: Path) -> None:
    rows = b"".join(b"%d %s\n" % (number, b"x" * 20_000) for number in range(2_000))
    aws.put("killed", a=rows)

    def answer(body: bytes) -> bytes:
        return body.rstrip(b"\n")

    with StandIn(answer=answer, fault=lambda number, body: 0.002, media_type="text/plain") as container:
        job = (
            *(
                "--input",
                "s3://killed/a",
                "--output",
                "s3://killed/out/",
                "--content-type",
                "text/plain",
                "--local",
                container.url,
            ),
            *("--split-type", "Line", "--assemble-with", "Line", *ONE_BY_ONE),
        )
        for answers in (300, 900, 1_700):
            assert interrupted(run_s3, job, container, answers, signal.SIGKILL) == -signal.SIGKILL
            assert aws.keys("killed", "out/") == []
        done = run_s3(*job)
    assert done.returncode == 0, done.stderr
    assert aws.get("killed", "out/a.out") == rows
    assert aws.unfinished("killed") == []
    assert not list(run_s3.state.glob("*/*/part-*"))


def test_memory_of_the_script_does_not_hold_what_waits(run: Runner, tmp_path: Path) -> None:
    """A first look at memory; test_scale in long/ does it with gigabytes."""
    path = tmp_path / "lines"
    path.write_bytes((b"x" * 999 + b"\n") * 200_000)
    with StandIn(keep=False) as container:
        process = run.start(
            "--input", path, "--output", tmp_path / "out", *LINES, "--max-payload-in-mb", 2, "--local", container.url
        )
        memory = peak_memory(process)
    assert process.returncode == 0
    assert memory[-1] < 150_000_000
    assert (tmp_path / "out" / "lines.out").stat().st_size == len(answer_lines(b"x" * 999)) * 200_000 + 200_000
