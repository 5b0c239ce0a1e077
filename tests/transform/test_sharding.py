"""Cutting inputs into balanced files: at records, in order, with the arithmetic printed."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from runner import LINES, Moto, Runner


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    generator = random.Random(4)
    (tmp_path / "in").mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        rows = [b"%d %s" % (number, b"x" * generator.randint(0, 300)) for number in range(5_000)]
        (tmp_path / "in" / name).write_bytes(b"\n".join(rows))  # no newline at the end
    return tmp_path / "in"


@pytest.mark.parametrize("count", [1, 3, 8])
def test_shards_are_balanced_and_together_are_the_input(run: Runner, folder: Path, tmp_path: Path, count: int) -> None:
    done = run("--input", folder, "--output", "s3://bucket/out", *LINES, "--shard", count, "--shard-to", tmp_path / "cut")
    assert done.returncode == 0, done.stderr
    shards = sorted((tmp_path / "cut").iterdir())
    assert [path.name for path in shards] == [f"part-{number}-of-{count}.jsonl" for number in range(1, count + 1)]
    whole = b"\n".join(path.read_bytes() for path in sorted(folder.iterdir()))
    assert b"".join(path.read_bytes() for path in shards) == whole
    assert all(path.read_bytes().endswith(b"\n") for path in shards[:-1])
    sizes = [path.stat().st_size for path in shards]
    assert max(sizes) - min(sizes) <= 2 * 310
    assert f"InstanceCount: {count}" in done.stdout


def test_auto_takes_as_many_as_the_time_needs_and_prints_what_they_cost(run: Runner, folder: Path) -> None:
    done = run(
        *("--input", folder, "--output", "s3://bucket/out", *LINES, "--shard", "auto"),
        *("--records-per-second", 1, "--within-hours", 1, "--price-per-hour", 0.5),
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    found = re.fullmatch(r"about ([\d,]+) records at 1 a second and instance, 6 minutes to start each:", lines[0])
    assert found
    assert int(found[1].replace(",", "")) == pytest.approx(10_000, rel=0.01)
    assert "→    4 × 0.79 h, 1.59 in all" in lines


def test_shards_go_to_s3_and_need_records_to_cut_at(run_s3: Runner, aws: Moto) -> None:
    aws.put("shards", in__a_csv=b"1\n2\n3\n4\n")
    job = ("--input", "s3://shards/in/", "--output", "s3://shards/out", "--shard", 2, "--shard-to", "s3://shards/cut/")
    done = run_s3(*job, "--split-type", "Line")
    assert done.returncode == 0, done.stderr
    assert aws.keys("shards", "cut/") == ["cut/a-1-of-2.csv", "cut/a-2-of-2.csv"]
    assert aws.get("shards", "cut/a-2-of-2.csv") == b"3\n4\n"
    done = run_s3(*job)
    assert done.returncode == 1
    assert "SplitType None has no records to cut at" in done.stderr
