"""Sizes that take minutes: gigabytes in flat memory, hundreds of thousands of lines with every kind of fault among them."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import sys
import time
from pathlib import Path

import dirty_lines
from runner import LINES, Runner, clean_environment, peak_memory
from stand_in_container import StandIn

from running import RunningServer

sys.path.insert(0, str(Path(__file__).parent))

from endless_s3 import LINE, EndlessS3

GIGABYTES = float(os.environ.get("SCALE_GB", "5"))
MIB = 1024 * 1024


def test_gigabytes_go_from_s3_to_s3_in_memory_that_does_not_grow(run: Runner, tmp_path: Path) -> None:
    size = int(GIGABYTES * 1e9) // LINE * LINE
    peaks = {}
    for part in (size // 10 // LINE * LINE, size):
        with EndlessS3(part) as s3, StandIn(keep=False, answer=lambda body: body[:-1]) as container:
            scaled = dataclasses.replace(run, environment=clean_environment(AWS_ENDPOINT_URL=s3.url))
            process = scaled.start(
                *("--input", "s3://big/in/", "--output", f"s3://big/out-{part}", *LINES, "--local", container.url),
                *("--max-payload-in-mb", 6, "--max-concurrent-transforms", 4),
            )
            began = time.monotonic()
            memory = peak_memory(process)
            assert process.returncode == 0, process.stderr.read() if process.stderr else ""
            assert s3.newlines == part // LINE
            assert len(s3.completed) == 1
        peaks[part] = memory[-1]
        half = len(memory) // 2
        print(
            f"\n{part / 1e9:.2f} GB in {time.monotonic() - began:.0f} s: peak {memory[-1] / MIB:.0f} MiB, "
            f"median of the first half {statistics.median(memory[:half]) / MIB:.0f}, "
            f"of the second {statistics.median(memory[half:-1]) / MIB:.0f}"
        )
    small, large = peaks.values()
    assert large < small * 1.25
    assert large < 300 * MIB


def test_two_hundred_thousand_lines_of_three_files_keep_their_places(run: Runner, server: RunningServer, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    files = [dirty_lines.write(folder / f"{name}.jsonl", count, seed) for seed, (name, count) in enumerate(SIZES.items())]
    done = run(
        *("--input", folder, "--output", tmp_path / "out", *LINES, "--accept", "application/jsonlines"),
        *("--join-source", "Input", "--local", server.base_url),
        limit_s=3_000,
    )
    print("\n" + done.stdout + done.stderr)
    assert done.returncode == 0, done.stderr
    assert f"200,000 records, {sum(len(file.bad) for file in files):,} of them failed" in done.stdout
    for file in files:
        originals = file.path.open("rb")
        joined = (tmp_path / "out" / f"{file.path.name}.out").open("rb")
        count = 0
        for count, (original, row) in enumerate(zip(originals, map(json.loads, joined), strict=True), 1):
            assert ("error" in row["SageMakerOutput"]) == (count in file.bad)
            if original.startswith(b'{"line"'):
                assert row["line"] == json.loads(original)["line"] == row["SageMakerOutput"]["line"] == count
        assert count == file.count
        listed = (tmp_path / "out" / f"{file.path.name}.errors.jsonl").read_text("utf-8").splitlines()
        assert [json.loads(line)["line"] for line in listed] == sorted(file.bad)


SIZES = {"a": 100_000, "b": 70_000, "c": 30_000}
