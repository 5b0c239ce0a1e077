"""What the benchmarks judge and show: goals, plans, the page, the README's figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark_results import PEER, complete, entry, two_rounds
from benchmarks import page, report, summary
from benchmarks.goals import Goal, goals
from benchmarks.limits import RUNS
from benchmarks.plan import FULL, QUICK_PLAN, STANDARD_PLAN, Plan, for_model
from benchmarks.summary import Spread
from benchmarks.systems import FLASK, INT8, ONE_CORE, PRODUCT, SYSTEMS

PLANS = {"full": FULL, "standard": STANDARD_PLAN, "quick": QUICK_PLAN}


@pytest.fixture
def seen() -> dict[str, Any]:
    return two_rounds()


@pytest.fixture
def measured() -> dict[str, Any]:
    return complete()


def goal(seen: dict[str, Any], title: str) -> Goal:
    """The one goal whose title begins so."""
    (found,) = [one for one in goals(seen) if one.title.startswith(title)]
    return found


def test_another_setting_of_the_product_is_no_peer(measured: dict[str, Any]) -> None:
    assert summary.best_peer(measured, 1, 32) == PEER
    ratio = summary.to_best_peer(measured, 1, 32)
    assert ratio is not None
    assert ratio.high == pytest.approx(2.3)
    rounded = summary.to_best_peer(measured, 1, 32, INT8)
    assert rounded is not None
    assert rounded.high == pytest.approx(5.0)


def test_the_goal_over_pytorch_peers_does_not_count_the_others(measured: dict[str, Any]) -> None:
    of_all = summary.to_best_peer(measured, 1, 32)
    assert of_all is not None
    assert of_all.low == pytest.approx(2.0)
    judged = goal(measured, "fp32, W1, 32 clients ÷ best PyTorch peer")
    assert judged.value == Spread(2.3, 2.3, 2.3)
    assert judged.met


def test_a_product_is_a_share_of_its_own_limit_or_of_none(measured: dict[str, Any]) -> None:
    assert summary.to_limit(measured, 1, 32, INT8) is None
    assert goal(measured, "int8, W1, 32 clients ÷ own offline limit").met is None
    measured["limits"].append({"round": 1, "kind": "openvino int8", "when": "start", "records_per_s": 625.0})
    share = summary.to_limit(measured, 1, 32, INT8)
    assert share is not None
    assert share.median == pytest.approx(0.8)
    assert goal(measured, "int8, W1, 32 clients ÷ own offline limit").met is False


def test_a_lone_caller_is_compared_with_the_faster_bare_run_of_its_round(seen: dict[str, Any]) -> None:
    seen["points"].append({**entry(0, PRODUCT, 60.0, clients=1), "p50_ms": 10.0, "p99_ms": 35.0})
    for kind, p50 in (("one", 9.0), ("one-threaded", 8.0)):
        seen["limits"].append({"round": 0, "kind": kind, "when": "once", "records_per_s": 99.0, "p50_ms": p50, "p99_ms": 4 * p50})
    over = goal(seen, "one client: p50")
    assert over.value == Spread(2.0, 2.0, 2.0)
    assert over.met is False
    slowest = goal(seen, "one client: p99")
    assert (slowest.met, slowest.note) == (False, "bare, the same texts: 4.0 ×")


def test_a_goal_without_figures_is_neither_met_nor_missed(seen: dict[str, Any]) -> None:
    assert goal(seen, "a 25 MB answer").met is None
    assert "not measured" in report.markdown(seen)


@pytest.mark.parametrize(("stock", "rate", "met"), [(1.0, 9_000.0, True), (0.7, 9_000.0, False), (0.7, 12_500.0, True)])
def test_the_trivial_handler_may_be_cheap_or_fast(measured: dict[str, Any], stock: float, rate: float, met: bool) -> None:
    own, other = measured["trivial"]
    own["requests_per_s"], other["cpu_s_per_1000"] = rate, stock
    assert goal(measured, "trivial handler").met is met


def test_memory_and_start_are_those_of_the_same_round(measured: dict[str, Any]) -> None:
    assert goal(measured, "memory at rest").value == Spread(70.0, 70.0, 70.0)
    assert goal(measured, "the entrypoint (no container)").value == Spread(1.0, 1.0, 1.0)
    measured["bare"][0]["container_s"] = 6.0
    started = goal(measured, "`docker run` to the first answer")
    assert started.value == Spread(3.0, 3.0, 3.0)
    assert started.met is False


def test_cost_per_record_is_judged_per_doubling_in_both_directions(measured: dict[str, Any]) -> None:
    cores = goal(measured, "cost per record, per doubling: cores 1 → 2, W1")
    assert cores.value is not None
    assert cores.value.median == pytest.approx(25.0)
    assert cores.met is False
    for one in measured["points"]:
        if one["system"] == PRODUCT and one["clients"] == 32:
            one["cpu_s_per_1000"] = 5.0 * 0.96**2
    fewer = goal(measured, "cost per record, per doubling: clients 8 → 32")
    assert fewer.value is not None
    assert fewer.value.median == pytest.approx(-4.0)
    assert fewer.met


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_names_what_there_is(name: str) -> None:
    plan = PLANS[name]
    assert set(plan.systems) <= set(SYSTEMS)
    assert set(plan.special) <= set(plan.systems)
    assert {*plan.limits, *plan.own_limits} <= set(RUNS)
    assert plan.points_of(PRODUCT)


def test_the_standard_plan_can_judge_every_goal() -> None:
    judged = {(1, 8), (1, 32), (1, 128), (1, 512), (1, 1), (256, 1), (256, 4), (5_000, 1)}
    asked = {
        system: {(point.lines, point.clients) for point in STANDARD_PLAN.points_of(system)} for system in STANDARD_PLAN.systems
    }
    assert judged <= asked[PRODUCT]
    assert judged - {(5_000, 1)} <= asked[FLASK]
    assert asked[ONE_CORE] == {(1, 32), (256, 1)}
    assert STANDARD_PLAN.own_limits == ["packed", "packed bf16", "openvino int8"]
    assert set(STANDARD_PLAN.workloads) == {"trivial", "large", "sizes"}


@pytest.mark.parametrize("model", ["bert-base", "translation"])
@pytest.mark.parametrize("name", PLANS)
def test_another_model_takes_fewer_loads(model: str, name: str) -> None:
    plan: Plan = for_model(PLANS[name], model)
    assert len(plan.points) <= len(PLANS[name].points)
    assert not plan.workloads
    assert {PRODUCT, FLASK} <= set(plan.systems)
    assert all(point.lines <= 256 for point in plan.points)


def test_the_page_holds_tables_plots_and_verdicts_and_nothing_outside(measured: dict[str, Any], tmp_path: Path) -> None:
    measured["absent"]["a <peer>"] = "has **no** package"
    (tmp_path / "results.json").write_text(json.dumps(measured), "utf-8")
    (tmp_path / "cost.svg").write_text("<svg/>", "utf-8")
    written = page.write(tmp_path).read_text("utf-8")
    assert 'class="met"' in written
    assert 'class="missed"' in written
    assert "a &lt;peer&gt;: has <strong>no</strong> package" in written
    assert "data:image/svg+xml;base64,PHN2Zy8+" in written
    assert "http" not in written


def test_the_readme_gets_the_product_and_the_leading_peers(measured: dict[str, Any]) -> None:
    lines = report.for_readme(measured).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:4]] == [f"**{PRODUCT}**", PEER]
    assert any(line.startswith(f"| × best peer, {PRODUCT}") for line in lines)
