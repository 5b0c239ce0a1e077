"""The dashboard in CloudWatch: what it shows is what the containers print, and it comes and goes with its endpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cfnlint.api import ManualArgs, lint

from batch_handler.cloudwatch import METRICS, MODEL
from batch_handler.settings import resolve
from deploy.planning import ASYNC, SERVERLESS, image
from deploy.stand_in_aws import REGION, StandIn
from deployment.errors import DeploymentError
from deployment.plan import Plan, plan
from deployment.reading import read
from deployment.templates import template

Written = Callable[..., Path]
Run = Callable[..., Any]
NAME = "torchserve-byoc-sentences"
COMPONENTS = {
    "kind": "components",
    "image": None,
    "model": None,
    "components": [{"name": name, "image": "image", "memory_mb": 1024} for name in ("a", "b")],
}
SHOWN = {"dashboard": True}


def planned(path: Path, region: str | None = REGION) -> Plan:
    return plan(read(path, {}), lambda _: image(), region)


def body(found: Plan) -> dict[str, Any]:
    assert found.dashboard is not None
    parsed: dict[str, Any] = json.loads(found.dashboard.parameters["DashboardBody"])
    return parsed


def searches(found: Plan) -> list[str]:
    metrics = [each for widget in body(found)["widgets"] for each in widget["properties"].get("metrics", ())]
    return [each[0]["expression"] for each in metrics if isinstance(each[0], dict)]


def names(aws: StandIn) -> list[str]:
    return [each["DashboardName"] for each in aws.client("cloudwatch").list_dashboards()["DashboardEntries"]]


@pytest.mark.parametrize("more", [{}, ASYNC, SERVERLESS, COMPONENTS], ids=["real-time", "async", "serverless", "components"])
def test_every_widget_has_a_place_a_region_and_metrics(written: Written, more: dict[str, Any]) -> None:
    widgets = body(planned(written(**more, **SHOWN)))["widgets"]
    taken = [
        (x, y)
        for widget in widgets
        for x in range(widget["x"], widget["x"] + widget["width"])
        for y in range(widget["y"], widget["y"] + widget["height"])
    ]
    assert len(taken) == len(set(taken))
    assert {x for x, _ in taken} == set(range(24))
    graphs = [widget["properties"] for widget in widgets if widget["type"] == "metric"]
    assert len(graphs) == len(widgets) - 1 >= 10
    assert {graph["region"] for graph in graphs} == {REGION}
    assert all(graph["metrics"] and graph["title"] for graph in graphs)


def test_it_searches_for_what_the_containers_are_told_to_print(written: Written) -> None:
    found = planned(written(**SHOWN))
    settings = resolve(found.models[0].parameters["PrimaryContainer"]["Environment"])
    assert settings.emf_dimensions == {"EndpointName": "sentences"}
    shown = set()
    for expression in searches(found):
        parts = re.fullmatch(
            r"""SEARCH\('\{"([^"]+)","EndpointName","(\w+)"\} MetricName="(\w+)" EndpointName="sentences"', '(\w+)', 60\)""",
            expression,
        )
        assert parts, expression
        assert parts[1] == settings.emf_namespace
        assert parts[2] == MODEL
        shown.add(parts[3])
    assert shown == METRICS - {"ForwardPasses"}


def test_ones_own_namespace_and_dimensions_are_searched_for(written: Written) -> None:
    own = {"BYOC_EMF_NAMESPACE": "team", "BYOC_EMF_DIMENSIONS": '{"Stage": "live", "EndpointName": "sentences"}'}
    found = planned(written(**SHOWN, environment=own))
    assert all('{"team","EndpointName","Stage","Model"}' in expression for expression in searches(found))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"environment": {"BYOC_EMF_DIMENSIONS": '{"Stage": "live"}'}}, "finds its metrics by EndpointName"),
        ({"environment": {"BYOC_EMF_DIMENSIONS": "{"}}, "is no JSON object"),
        (
            {"variants": [{"name": "a"}, {"name": "b", "environment": {"BYOC_EMF_NAMESPACE": "other"}}]},
            "give all containers the same",
        ),
    ],
)
def test_what_one_dashboard_cannot_show_is_refused(written: Written, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DeploymentError, match=words):
        planned(written(**SHOWN, **changes))


def test_without_a_region_it_is_refused_and_unasked_nothing_changes(written: Written) -> None:
    with pytest.raises(DeploymentError, match="needs to know the region"):
        planned(written(**SHOWN), None)
    found = planned(written(), None)
    assert found.dashboard is None
    assert "Environment" not in found.models[0].parameters["PrimaryContainer"]


def test_it_comes_changes_and_goes_with_its_endpoint(aws: StandIn, deploy: Run, written: Written) -> None:
    client = aws.client("cloudwatch")
    deploy(written(**SHOWN))
    assert names(aws) == [NAME]
    first = client.get_dashboard(DashboardName=NAME)["DashboardBody"]
    assert "is as described" in deploy(written(**SHOWN)).stderr
    ran = deploy(written(**SHOWN, variants=[{"name": "old"}, {"name": "new"}]))
    assert f"put dashboard {NAME}" in ran.stderr
    assert client.get_dashboard(DashboardName=NAME)["DashboardBody"] != first
    deploy(written())
    assert names(aws) == []
    deploy(written(**SHOWN))
    ran = deploy("--name", "sentences", "--delete")
    assert f"deleted dashboard {NAME}" in ran.stderr
    assert names(aws) == []


def test_a_second_run_puts_it_no_second_time(aws: StandIn, deploy: Run, written: Written) -> None:
    deploy(written(**SHOWN))
    assert "put dashboard" not in deploy(written(**SHOWN)).stderr


def test_somebody_elses_dashboard_of_that_name_stays(aws: StandIn, deploy: Run, run: Run, written: Written) -> None:
    theirs = json.dumps({"widgets": [{"type": "text", "properties": {"markdown": "# ours"}}]})
    aws.client("cloudwatch").put_dashboard(DashboardName=NAME, DashboardBody=theirs)
    refused = run("deploy_endpoint.py", written(**SHOWN), "--pause", "0.05")
    assert refused.returncode == 1
    assert f"a dashboard {NAME} exists that deploy_endpoint.py did not make" in refused.stderr
    deploy(written())
    deploy("--name", "sentences", "--delete")
    assert aws.client("cloudwatch").get_dashboard(DashboardName=NAME)["DashboardBody"] == theirs


def test_the_template_has_it_in_the_region_of_its_stack(written: Written) -> None:
    text = template(planned(written(**SHOWN)))
    assert [each.message for each in lint(text, config=ManualArgs(regions=[REGION]))] == []
    (made,) = [each for each in yaml.safe_load(text)["Resources"].values() if each["Type"] == "AWS::CloudWatch::Dashboard"]
    regions = {
        widget["properties"]["region"]
        for widget in json.loads(made["Properties"]["DashboardBody"]["Fn::Sub"])["widgets"]
        if widget["type"] == "metric"
    }
    assert regions == {"${AWS::Region}"}


def test_a_dry_run_prints_the_call(run: Run, aws: StandIn, written: Written) -> None:
    ran = run("deploy_endpoint.py", written(**SHOWN), "--dry-run")
    assert ran.returncode == 0, ran.stderr
    assert "PutDashboard" in ran.stdout
    assert aws.calls == []
