"""The benchmarks' arithmetic: texts and payloads, medians and ratios, tables."""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest

from benchmarks import answers, report, summary, texts
from benchmarks.load import percentile
from benchmarks.plan import FULL, QUICK_PLAN
from benchmarks.systems import PRODUCT, SYSTEMS

PEER = "gunicorn+flask, 2 × 1 thread"


def pieces(words: Any) -> list[int]:
    """A made-up tokeniser: a piece per four letters."""
    return [-(-len(word) // 4) for word in words]


def entry(number: int, system: str, pace: float, lines: int = 1, clients: int = 8) -> dict[str, Any]:
    seen = {"records_per_s": pace, "p50_ms": 1_000 / pace, "p99_ms": 3_000 / pace, "failed": 0}
    return {
        "round": number,
        "system": system,
        "lines": lines,
        "clients": clients,
        **seen,
        "cpu_s_per_1000": 5.0,
        "peak_mb": 800.0,
    }


@pytest.fixture
def seen() -> dict[str, Any]:
    """Two rounds; in the second the machine has half its speed."""
    return {
        "model": {"name": "minilm", "title": "A model"},
        "machine": {"cores": 2, "cpu": "a CPU"},
        "plan": {"rounds": 2, "seconds": 2.0, "systems": [PRODUCT, PEER]},
        "points": [entry(0, PRODUCT, 200.0), entry(0, PEER, 100.0), entry(1, PRODUCT, 110.0), entry(1, PEER, 50.0)],
        "starts": [{"round": 0, "system": PRODUCT, "cold_start_s": 4.0, "rest_mb": 500.0, "after_mb": 510.0}],
        "limits": [
            {"round": number, "kind": "packed", "when": when, "records_per_s": pace}
            for number, when, pace in ((0, "start", 220.0), (0, "end", 180.0), (1, "start", 110.0), (1, "end", 110.0))
        ],
        "absent": {"Ray Serve, batch 32": "could not be installed: no such version"},
    }


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
