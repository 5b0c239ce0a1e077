"""Whole local jobs against the real server: counts, order, bad lines, joins, every split and type of content."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import dirty_lines
import pytest
from faulty_proxy import AFTER, BEFORE, CUT, FaultyProxy
from runner import LINES, Runner
from stand_in_container import StandIn

from running import RunningServer

ONE_BY_ONE = ("--batch-strategy", "SingleRecord", "--max-concurrent-transforms", 8, "--invocations-max-retries", 3)


def read(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def test_every_line_of_three_files_with_bad_ones_has_its_line_and_every_failure_its_number(
    run: Runner, server: RunningServer, folder: Path, tmp_path: Path
) -> None:
    files = [dirty_lines.write(folder / f"{name}.jsonl", 4_000, seed) for seed, name in enumerate("abc")]
    done = run("--input", folder, "--output", tmp_path / "out", *LINES, "--local", server.base_url)
    assert done.returncode == 0, done.stderr
    for file in files:
        answers = read(tmp_path / "out" / f"{file.path.name}.out")
        assert len(answers) == file.count
        assert {number for number, answer in enumerate(answers, 1) if "error" in answer} == file.bad
        assert [answer["line"] for answer in answers if "line" in answer] == [
            json.loads(line)["line"] for line in file.path.read_bytes().split(b"\n") if line.startswith(b'{"line"')
        ]
        errors = read(tmp_path / "out" / f"{file.path.name}.errors.jsonl")
        assert [error["line"] for error in errors] == sorted(file.bad)
        assert all(error["type"] == "InvalidRecord" and error["message"] for error in errors)
    assert f"12,000 records, {sum(len(file.bad) for file in files)} of them failed" in done.stdout


def test_joined_output_stands_beside_its_own_input_line_by_line(
    run: Runner, server: RunningServer, folder: Path, tmp_path: Path
) -> None:
    file = dirty_lines.write(folder / "a.jsonl", 3_000, 7)
    job = (
        "--input",
        folder,
        "--output",
        tmp_path / "out",
        *LINES,
        "--accept",
        "application/jsonlines",
        "--local",
        server.base_url,
    )
    done = run(*job, "--join-source", "Input", "--output-filter", "$['line','SageMakerOutput']")
    assert done.returncode == 1
    assert "OutputFilter selects nothing" in done.stderr  # the odd lines carry no number
    done = run(*job, "--join-source", "Input")
    assert done.returncode == 0, done.stderr
    originals = file.path.read_bytes().split(b"\n")[:-1]
    joined = read(tmp_path / "out" / "a.jsonl.out")
    assert len(joined) == file.count
    for number, (line, row) in enumerate(zip(originals, joined, strict=True), 1):
        output = row.pop("SageMakerOutput")
        assert ("error" in output) == (number in file.bad)
        try:
            original = json.loads(line)
        except ValueError:
            assert row == {"SageMakerInput": line.decode("utf-8", "replace")}
            continue
        assert row == original
        assert output.get("line") == original.get("line") or number in file.bad


@pytest.mark.parametrize("strategy", ["MultiRecord", "SingleRecord"])
def test_a_filtered_record_is_sent_without_what_the_filter_leaves_and_joined_with_it(
    run: Runner, server: RunningServer, folder: Path, tmp_path: Path, strategy: str
) -> None:
    rows = [{"id": number, "features": f"ka ro {number}", "note": "kept"} for number in range(30)]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + '\n{"id": 30, "note": "no features"}')
    done = run(
        *("--input", folder / "a.jsonl", "--output", tmp_path / "out", *LINES, "--accept", "application/jsonlines"),
        *("--input-filter", "$.features", "--join-source", "Input", "--output-filter", "$['id','SageMakerOutput']"),
        *("--batch-strategy", strategy, "--local", server.base_url),
    )
    assert done.returncode == 0, done.stderr
    found = read(tmp_path / "out" / "a.jsonl.out")
    assert [row["id"] for row in found] == list(range(31))
    assert all(set(row) == {"id", "SageMakerOutput"} for row in found)
    assert all({"label", "score"} == set(row["SageMakerOutput"]) for row in found[:30])
    assert "InputFilter $.features selects nothing in it" in found[30]["SageMakerOutput"]["error"]["message"]
    assert read(tmp_path / "out" / "a.jsonl.errors.jsonl") == [
        {"line": 31, "type": "InvalidRecord", "message": "InputFilter $.features selects nothing in it"}
    ]


def test_csv_rows_are_filtered_and_joined_by_column(run: Runner, server: RunningServer, folder: Path, tmp_path: Path) -> None:
    rows = [[str(number), f'ka "{number}", ro', "x"] for number in range(50)]
    with (folder / "a.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    done = run(
        *("--input", folder, "--output", tmp_path / "out", "--content-type", "text/csv", "--accept", "text/csv"),
        *("--split-type", "Line", "--assemble-with", "Line", "--local", server.base_url),
        *("--input-filter", "$[1]", "--join-source", "Input", "--output-filter", "$[0,3:]"),
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "out" / "a.csv.out").open(newline="") as file:
        found = list(csv.reader(file))
    assert [row[0] for row in found] == [row[0] for row in rows]
    assert all(len(row) == 3 and row[1].startswith("LABEL_") and 0 < float(row[2]) < 1 for row in found)


@pytest.mark.parametrize(("split", "assemble"), [("None", "None"), ("Line", "Line")])
def test_bad_rows_of_csv_are_listed_with_their_lines(
    run: Runner, server: RunningServer, folder: Path, tmp_path: Path, split: str, assemble: str
) -> None:
    (folder / "a.csv").write_text('ka ro\n\n"mi, ten"\nsol,two columns\n"never closed\nka\n')
    done = run(
        *("--input", folder, "--output", tmp_path / "out", "--content-type", "text/csv"),
        *("--split-type", split, "--assemble-with", assemble, "--local", server.base_url),
    )
    assert done.returncode == 0, done.stderr
    assert [error["line"] for error in read(tmp_path / "out" / "a.csv.errors.jsonl")] == [2, 4, 5]
    assert len((tmp_path / "out" / "a.csv.out").read_text().splitlines()) == 6


def test_json_documents_go_whole_and_their_failed_records_are_listed_by_number(
    run: Runner, server: RunningServer, folder: Path, tmp_path: Path
) -> None:
    (folder / "a.json").write_text(json.dumps({"instances": ["ka ro", 17, "mi"]}))
    (folder / "b.json").write_text(json.dumps({"id": 5, "inputs": "ka"}))
    job = ("--input", folder, "--content-type", "application/json", "--accept", "application/json", "--local", server.base_url)
    done = run(*job, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert len(json.loads((tmp_path / "out" / "a.json.out").read_text())) in (1, 3)
    assert [error["record"] for error in read(tmp_path / "out" / "a.json.errors.jsonl")] == [2]
    assert not (tmp_path / "out" / "b.json.errors.jsonl").exists()
    done = run(*job, "--output", tmp_path / "joined", "--join-source", "Input")
    assert done.returncode == 0, done.stderr
    assert [error["record"] for error in read(tmp_path / "joined" / "a.json.errors.jsonl")] == [2]
    joined = json.loads((tmp_path / "joined" / "b.json.out").read_text())
    assert (joined["id"], joined["inputs"]) == (5, "ka")
    assert "score" in joined["SageMakerOutput"]


def test_a_document_that_cannot_be_read_costs_its_file_and_no_other(
    run: Runner, server: RunningServer, folder: Path, tmp_path: Path
) -> None:
    (folder / "bad.json").write_text('{"inputs": ')
    (folder / "good.json").write_text('{"inputs": "ka"}')
    done = run("--input", folder, "--output", tmp_path / "out", "--content-type", "application/json", "--local", server.base_url)
    assert done.returncode == 1
    assert "bad.json: the container refused a request with status 400" in done.stderr
    assert [path.name for path in (tmp_path / "out").glob("[!.]*")] == ["good.json.out"]


def test_a_compressed_input_gives_what_it_gives_inflated(
    run: Runner, server: RunningServer, folder: Path, tmp_path: Path
) -> None:
    file = dirty_lines.write(folder / "a.jsonl", 2_000, 3)
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "a.jsonl").write_bytes(gzip.compress(file.path.read_bytes()))
    plain = run("--input", folder, "--output", tmp_path / "out", *LINES, "--local", server.base_url)
    packed = run(
        *("--input", tmp_path / "packed", "--output", tmp_path / "out2", *LINES, "--local", server.base_url),
        *("--compression-type", "Gzip"),
    )
    assert plain.returncode == packed.returncode == 0, packed.stderr
    assert (tmp_path / "out" / "a.jsonl.out").read_bytes() == (tmp_path / "out2" / "a.jsonl.out").read_bytes()


def test_what_only_sagemaker_carries_out_is_said_to_be_left_undone(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('"a line"\n')
    description = {
        "TransformInput": {"DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": str(tmp_path / "in.jsonl")}}},
        "TransformOutput": {"S3OutputPath": str(tmp_path / "out")},
        "DataCaptureConfig": {"DestinationS3Uri": "s3://bucket/captured"},
    }
    job = tmp_path / "job.yaml"
    job.write_text(json.dumps(description))
    with StandIn() as container:
        done = run(job, "--local", container.url)
    assert done.returncode == 0
    assert "note: DataCaptureConfig is for SageMaker alone" in done.stderr
    assert "ExperimentConfig" not in done.stderr


@pytest.mark.parametrize("how", [BEFORE, AFTER, CUT])
def test_nothing_is_lost_or_doubled_behind_a_proxy_that_spoils_every_fifth_answer(
    run: Runner, server: RunningServer, tmp_path: Path, how: str
) -> None:
    rows = [{"id": number, "inputs": f"ka {number}"} for number in range(120)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def rule(number: int, method: str, target: str) -> str | None:
        return how if target == "/invocations" and number % 5 == 0 else None

    with FaultyProxy(server.base_url, rule) as proxy:
        done = run("--input", path, "--output", tmp_path / "out", *LINES, *ONE_BY_ONE, "--local", proxy.url)
        assert proxy.spoilt >= 20
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in (tmp_path / "out" / "rows.jsonl.out").read_text().splitlines()]
    assert [row["id"] for row in found] == list(range(120))
