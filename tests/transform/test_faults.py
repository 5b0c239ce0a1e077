"""What goes wrong between the runner and its containers: which requests are repeated, which are not, and what is written."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from runner import LINES, Runner
from stand_in_container import StandIn, answer_lines

QUICK = ("--invocations-max-retries", 3)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Lines of all lengths from 0, so that every answer tells which line it is for."""
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"".join(b"x" * number + b"\n" for number in range(2_000)))
    return path


def job(lines: Path, tmp_path: Path, *more: object) -> tuple[object, ...]:
    return ("--input", lines, "--output", tmp_path / "out", *LINES, *QUICK, *more)


def expected(lines: Path) -> bytes:
    return answer_lines(lines.read_bytes()) + b"\n"


def written(tmp_path: Path) -> bytes:
    return (tmp_path / "out" / "lines.jsonl.out").read_bytes()


def dies_after(container: StandIn, answers: int) -> threading.Thread:
    """A thread that ends a container once it has answered so often."""

    def wait() -> None:
        while len(container.bodies) < answers:
            time.sleep(0.01)
        container.die()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def spread(parts: int) -> tuple[object, ...]:
    """Records one by one make many requests of few lines."""
    return ("--batch-strategy", "SingleRecord", "--max-concurrent-transforms", parts)


@pytest.mark.parametrize("fault", [(500, {}), (503, {"Retry-After": "0"}), (429, {}), "cut"])
def test_a_passing_fault_is_met_by_repeating_the_request(run: Runner, lines: Path, tmp_path: Path, fault: object) -> None:
    lines.write_bytes(b"".join(b"x" * number + b"\n" for number in range(50)))
    with StandIn(fault=lambda number, body: fault if number in (3, 9, 20) else None) as container:  # type: ignore[arg-type,return-value]
        done = run(*job(lines, tmp_path, *spread(4), "--local", container.url))
    assert done.returncode == 0, done.stderr
    assert "3 requests repeated" in done.stdout
    assert written(tmp_path) == expected(lines)


@pytest.mark.parametrize("status", [400, 404, 413, 415])
def test_any_other_refusal_is_final_and_costs_one_file(run: Runner, lines: Path, tmp_path: Path, status: int) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "bad.jsonl").write_bytes(b"a\n" * 10 + b"poison\n")
    (folder / "good.jsonl").write_bytes(b"a\n" * 10)
    with StandIn(fault=lambda number, body: (status, {}) if b"poison" in body else None) as container:
        done = run("--input", folder, "--output", tmp_path / "out", *LINES, *QUICK, "--local", container.url)
        assert container.asked == 2
    assert done.returncode == 1
    assert f"bad.jsonl: the container refused a request with status {status}: made up, with status {status}" in done.stderr
    assert sorted(path.name for path in (tmp_path / "out").glob("[!.]*")) == ["good.jsonl.out"]


def test_a_fault_that_stays_costs_its_file_after_all_attempts_and_the_other_files_go_on(run: Runner, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.jsonl").write_bytes(name.encode() * 5 + b"\n")
    with StandIn(fault=lambda number, body: (500, {}) if b"b" in body else None) as container:
        done = run(
            *("--input", folder, "--output", tmp_path / "out", *LINES, "--invocations-max-retries", 2, "--local", container.url)
        )
        assert container.asked == 5
    assert done.returncode == 1
    assert "b.jsonl: record 1: status 500: made up, with status 500 after 3 attempts" in done.stderr
    assert sorted(path.name for path in (tmp_path / "out").glob("[!.]*")) == ["a.jsonl.out", "c.jsonl.out"]


def test_a_request_that_takes_too_long_is_repeated_and_then_the_timeout_is_named(
    run: Runner, lines: Path, tmp_path: Path
) -> None:
    with StandIn(fault=lambda number, body: 3.0) as container:
        done = run(
            *("--input", lines, "--output", tmp_path / "out", *LINES, "--local", container.url),
            *("--invocations-timeout-in-seconds", 1, "--invocations-max-retries", 1),
        )
    assert done.returncode == 1
    assert "no answer within 1 s after 2 attempts: allow more time (InvocationsTimeoutInSeconds)" in done.stderr


def test_answers_that_overtake_each_other_are_written_in_the_order_of_their_records(
    run: Runner, lines: Path, tmp_path: Path
) -> None:
    with StandIn(fault=lambda number, body: 0.02 * (number % 7)) as container:
        lines.write_bytes(b"".join(b"x" * number + b"\n" for number in range(200)))
        done = run(*job(lines, tmp_path, *spread(8), "--local", container.url))
        assert 2 <= container.most_in_flight <= 8
    assert done.returncode == 0, done.stderr
    assert written(tmp_path) == expected(lines)


def test_several_containers_share_a_job_and_one_that_dies_leaves_its_requests_to_the_others(
    run: Runner, lines: Path, tmp_path: Path
) -> None:
    with StandIn(fault=lambda number, body: 0.01) as one, StandIn(fault=lambda number, body: 0.01) as other:
        dead = dies_after(other, 100)
        done = run(*job(lines, tmp_path, *spread(4), "--local", one.url, other.url))
        dead.join()
        assert other.bodies
        assert len(one.bodies) > len(other.bodies)
    assert done.returncode == 0, done.stderr
    assert written(tmp_path) == expected(lines)


def test_when_no_container_is_left_the_job_ends_with_a_sentence_and_can_be_resumed(
    run: Runner, lines: Path, tmp_path: Path
) -> None:
    with StandIn(fault=lambda number, body: 0.005) as container:
        dead = dies_after(container, 200)
        done = run(*job(lines, tmp_path, *spread(2), "--local", container.url))
        dead.join()
        first = list(container.bodies)
    assert done.returncode == 1
    assert "no container answers any more" in done.stderr
    assert "start the job again to go on" in done.stderr
    assert "Traceback" not in done.stderr
    with StandIn() as container:
        done = run(*job(lines, tmp_path, *spread(2), "--local", container.url))
        assert done.returncode == 0, done.stderr
        assert len(first) + len(container.bodies) <= 2_000 + 200  # half a second's work and what was in flight
    assert written(tmp_path) == expected(lines)


def test_what_the_container_asks_for_counts_unless_the_job_says_otherwise(run: Runner, lines: Path, tmp_path: Path) -> None:
    asks = {"MaxConcurrentTransforms": 3, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 2}
    with StandIn(parameters=asks) as container:
        done = run(*job(lines, tmp_path, "--local", container.url))
        assert len(container.bodies) == 2_000
        assert set(container.bodies) == set(lines.read_bytes().splitlines(keepends=True))
    assert "3 in flight" in done.stderr
    with StandIn(parameters=asks) as container:
        done = run(
            *job(lines, tmp_path, "--local", container.url, "--restart"),
            *("--batch-strategy", "MultiRecord", "--max-payload-in-mb", 1, "--max-concurrent-transforms", 5),
        )
        assert 2 <= len(container.bodies) <= 6
        assert all(len(body) <= 1024 * 1024 and body.endswith(b"\n") for body in container.bodies)
    assert "5 in flight" in done.stderr
    assert written(tmp_path) == expected(lines)


def test_a_slow_answer_makes_requests_smaller_and_says_so_before_anything_times_out(
    run: Runner, lines: Path, tmp_path: Path
) -> None:
    def slow(number: int, body: bytes) -> float:
        return len(body) / 100_000

    with StandIn(fault=slow, parameters={"MaxConcurrentTransforms": 4, "MaxPayloadInMB": 6}) as container:
        done = run(*job(lines, tmp_path, "--local", container.url, "--invocations-timeout-in-seconds", 6))
        assert done.returncode == 0, done.stderr
        assert max(map(len, container.bodies)) < 100_000
    assert "measured: " in done.stderr
    assert "requests are cut at" in done.stderr
    assert written(tmp_path) == expected(lines)
    with StandIn(fault=slow, parameters={"MaxConcurrentTransforms": 4}) as container:
        done = run(
            *job(lines, tmp_path, "--local", container.url, "--invocations-timeout-in-seconds", 6, "--restart"),
            *("--max-payload-in-mb", 6, "--invocations-max-retries", 0),
        )
    assert "and the timeout is 6 s" in done.stderr
    assert "say MaxPayloadInMB: " in done.stderr


def test_payload_0_streams_a_whole_object_in_chunks(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"abc\n" * 1_000_000)
    with StandIn(fault=lambda number, body: (500, {}) if number == 1 else None) as container:
        done = run(
            *("--input", path, "--output", tmp_path / "out", "--content-type", "application/jsonlines"),
            *("--max-payload-in-mb", 0, "--local", container.url),
        )
        assert container.headers[0]["transfer-encoding"] == "chunked"
        assert container.bodies == [path.read_bytes()]
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "lines.jsonl.out").read_bytes() == answer_lines(path.read_bytes())


def test_a_record_over_the_limit_costs_its_file_and_names_its_place(run: Runner, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"small\n" + b"x" * (1024 * 1024) + b"\n")
    (folder / "b.jsonl").write_bytes(b"small\n" + b"x" * (1024 * 1024 - 1) + b"\n")
    with StandIn() as container:
        done = run(*("--input", folder, "--output", tmp_path / "out", *LINES, "--max-payload-in-mb", 1, "--local", container.url))
    assert done.returncode == 1
    assert "a.jsonl: after record 1: the next record is over the limit of 1 MiB" in done.stderr
    assert [path.name for path in (tmp_path / "out").glob("[!.]*")] == ["b.jsonl.out"]
