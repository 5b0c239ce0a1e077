"""The benchmarks' arithmetic: texts and payloads, medians and ratios, goals, plans, tables and the page."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from benchmark_results import two_rounds
from benchmarks import answers, artefacts, report, summary, texts
from benchmarks.environments import PEERS, locked
from benchmarks.limits import SEVERAL_THREADS
from benchmarks.load import percentile
from benchmarks.models import MODELS
from benchmarks.plan import FULL, QUICK_PLAN, STANDARD_PLAN
from benchmarks.systems import PRODUCT, SYSTEMS
from benchmarks.workloads.servers import LARGE, SCRIPT, TRIVIAL, artefact

PLANS = {"full": FULL, "standard": STANDARD_PLAN, "quick": QUICK_PLAN}


def pieces(words: Any) -> list[int]:
    """A made-up tokeniser: a piece per four letters."""
    return [-(-len(word) // 4) for word in words]


@pytest.fixture
def seen() -> dict[str, Any]:
    return two_rounds()


def test_lengths_are_lognormal_and_cut() -> None:
    drawn = texts.lengths(2_048, seed=1)
    assert statistics.median(drawn) == pytest.approx(20, abs=1)
    assert statistics.mean(drawn) == pytest.approx(32, abs=1)
    assert (min(drawn), max(drawn)) == (3, 400)


def test_every_block_of_lengths_carries_the_same_work() -> None:
    drawn = texts.lengths(1_024, seed=2)
    work = [statistics.mean(drawn[start : start + texts.BLOCK]) for start in range(0, len(drawn), texts.BLOCK)]
    assert max(work) < 1.25 * min(work)
    assert drawn[:64] != sorted(drawn[:64])


def test_a_seed_gives_the_same_texts_and_another_seed_others() -> None:
    wanted = texts.lengths(64, seed=3)
    assert texts.texts(wanted, pieces, seed=3) == texts.texts(wanted, pieces, seed=3)
    assert texts.texts(wanted, pieces, seed=3) != texts.texts(wanted, pieces, seed=4)


def test_texts_are_exactly_as_long_as_wanted() -> None:
    wanted = texts.lengths(128, seed=5)
    made = texts.texts(wanted, pieces, seed=5)
    assert [sum(pieces(text.split())) + texts.FRAME for text in made] == wanted


def test_prose_holds_no_headings_and_no_grammar() -> None:
    words = texts.prose()
    assert len(words) > 10_000
    assert not {"::=", "**********"} & set(words)


@pytest.mark.parametrize("size", [16, 256])
def test_lines_and_lists_carry_the_same_texts(size: int) -> None:
    records = [f"text {number}" for number in range(600)]
    lines = [[json.loads(line)["inputs"] for line in body.splitlines()] for body in texts.lines_per_request(records, size)]
    lists = [json.loads(body)["inputs"] for body in texts.list_per_request(records, size)]
    assert lines == lists
    assert all(len(part) == size for part in lines)
    assert [text for part in lines for text in part] == records[: 600 // size * size]


def test_a_request_larger_than_the_list_goes_round_it() -> None:
    (body,) = texts.lines_per_request(["a", "b", "c"], 5)
    assert [json.loads(line)["inputs"] for line in body.splitlines()] == ["a", "b", "c", "a", "b"]


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("lines", [1, 2])
def test_every_system_gets_every_text(name: str, lines: int) -> None:
    records = ["one", "two", "three", "four"]
    sent, _ = answers.bodies(SYSTEMS[name], records, lines)
    assert len(sent) == len(records) // lines
    assert all(any(json.dumps(text).encode() in body for body in sent) for text in records)


def test_answers_agree_within_the_tolerance_only() -> None:
    assert answers.agree([0.1, 0.2], [0.10005, 0.2])
    assert not answers.agree([0.1, 0.2], [0.1003, 0.2])
    assert not answers.agree([0.1], [0.1, 0.2])
    assert not answers.agree({"label": "a", "score": 0.5}, {"label": "b", "score": 0.5})
    with pytest.raises(answers.WrongAnswerError, match="1 results for 2 records"):
        answers.check("it", [[1.0]], [[1.0], [2.0]])


def test_percentiles_are_the_nearest_rank() -> None:
    assert percentile(range(1, 101), 0.99) == 100
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([], 0.5) == 0.0


def test_ratios_are_taken_within_a_round(seen: dict[str, Any]) -> None:
    ratio = summary.to_best_peer(seen, 1, 8)
    assert ratio is not None
    assert (ratio.low, ratio.high) == pytest.approx((2.0, 2.2))
    limit = summary.to_limit(seen, 1, 8)
    assert limit is not None
    assert (limit.low, limit.high) == pytest.approx((1.0, 1.0))


def test_drift_is_that_of_the_limit_from_start_to_end(seen: dict[str, Any]) -> None:
    assert summary.drift(seen, 0) == pytest.approx(180 / 220 - 1)
    assert "NOISY" in report.drift(seen, 0)
    assert "steady" in report.drift(seen, 1)


def test_a_figure_is_the_median_with_its_spread(seen: dict[str, Any]) -> None:
    assert summary.figure(seen, PRODUCT, 1, 8, "records_per_s") == summary.Spread(155.0, 110.0, 200.0)
    assert summary.figure(seen, PRODUCT, 256, 1, "records_per_s") is None
    assert report.spread(summary.figure(seen, PRODUCT, 1, 8, "records_per_s")) == "155 (110–200)"


def test_the_report_names_what_is_missing_and_why(seen: dict[str, Any]) -> None:
    written = report.markdown(seen)
    assert "- Ray Serve, batch 32: could not be installed: no such version" in written
    assert f"**{PRODUCT}**" in written


def test_table_columns_are_aligned() -> None:
    lines = report.table(["", "records/s"], [["a", "1,000"], ["a longer name", "2"]]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].startswith("|---")
    assert lines[1].endswith("-:|")


def test_the_quick_plan_is_a_part_of_the_full_one() -> None:
    assert set(QUICK_PLAN.systems) <= set(FULL.systems)
    assert set(QUICK_PLAN.points) <= set(FULL.points)


def test_lanes_of_single_threads_are_measured_with_single_threads() -> None:
    for name in ("packed", "openvino int8", "one"):
        assert name not in SEVERAL_THREADS


def test_rounded_answers_are_judged_by_their_direction_and_labels() -> None:
    assert answers.close("it", [[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 3.0]]) == pytest.approx(1.0)
    assert answers.close("it", [[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]) == pytest.approx(0.5)
    labels = [{"label": "a", "score": 0.5}, {"label": "b", "score": 0.9}]
    assert answers.close("it", labels, [{"label": "a", "score": 0.4}, {"label": "a", "score": 0.9}]) == 0.5
    with pytest.raises(answers.WrongAnswerError, match="instead of"):
        answers.close("it", [[1.0]], [[1.0, 2.0]])


def test_an_export_has_a_directory_of_its_own() -> None:
    model = MODELS["minilm"]
    places = {artefacts.directory(system, model) for system in SYSTEMS.values() if system.product}
    assert len(places) == 1 + sum(system.precision is not None for system in SYSTEMS.values())


def test_every_peer_has_a_lock_with_hashes() -> None:
    named = {system.environment for system in (*SYSTEMS.values(), *TRIVIAL.values(), *LARGE.values()) if system.environment}
    for name in named:
        lines = (PEERS / name / "requirements.txt").read_text("utf-8").splitlines()
        pinned = [line for line in lines if "==" in line]
        assert pinned
        assert len(pinned) == sum("--hash=sha256:" in line for line in lines)


def test_a_lock_is_sorted_by_name() -> None:
    files = [("b", "2", "22"), ("A", "1", "11")]
    report = {
        "install": [
            {"metadata": {"name": name, "version": version}, "download_info": {"archive_info": {"hashes": {"sha256": digest}}}}
            for name, version, digest in files
        ]
    }
    assert locked(report) == "A==1 \\\n    --hash=sha256:11\nb==2 \\\n    --hash=sha256:22\n"


def test_archive_and_script_hold_the_handler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.workloads.servers.BENCH", tmp_path)
    assert [path.name for path in artefact(TRIVIAL[PRODUCT], "nothing.py").iterdir()] == ["model.mar"]
    assert (artefact(LARGE[SCRIPT], "large.py") / "code" / "inference.py").is_file()
