"""CloudWatch's side of an endpoint: what makes its containers print metrics, and the dashboard that shows them.

The container's own metrics are searched for by endpoint, so that every model of it has a line, whichever come and go; beside
them stand those that SageMaker measures from outside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from deployment.calls import Call
from deployment.description import Container, Description, Kind, Variant
from deployment.errors import DeploymentError

NAMESPACE = "BYOC_EMF_NAMESPACE"
DIMENSIONS = "BYOC_EMF_DIMENSIONS"
DEFAULT_NAMESPACE = "torchserve-byoc"
PREFIX = "torchserve-byoc-"
WIDTH = 8
HEIGHT = 6
COLUMNS = 3
PERIOD_S = 60
MICROSECONDS = "Microseconds"
PLATFORM = "AWS/SageMaker"
MACHINE = "/aws/sagemaker/Endpoints"

Metric = list[Any]
# Title, what is searched for with its statistic, and the label of the axis.
OWN: tuple[tuple[str, tuple[tuple[str, str], ...], str], ...] = (
    ("Calls", (("Requests", "Sum"), ("ClientErrors", "Sum"), ("ServerErrors", "Sum")), "per minute"),
    ("Time of a call", (("RequestTime", "p50"), ("RequestTime", "p95"), ("RequestTime", "p99")), "seconds"),
    ("In flight and queued", (("InflightRequests", "Maximum"), ("QueuedRequests", "Maximum")), "requests"),
    ("Records", (("Records", "Sum"), ("FailedRecords", "Sum"), ("TruncatedRecords", "Sum")), "per minute"),
    ("Requests per batch", (("BatchRequests", "Average"), ("BatchRequests", "p95")), "requests"),
    ("Records per forward pass", (("MicrobatchRecords", "Average"), ("MicrobatchRecords", "p95")), "records"),
    ("Tokens", (("Tokens", "Sum"), ("PaddingTokens", "Sum")), "per minute"),
    ("Where the time goes", (("QueueTime", "p95"), ("HandlerTime", "p95"), ("ForwardTime", "p95")), "seconds"),
    ("Worker starts", (("WorkerStarts", "Sum"),), "per minute"),
)


def telling(raw: Mapping[str, Any]) -> dict[str, str]:
    """The settings with which a container prints what the dashboard shows; none where no dashboard is asked for."""
    if not raw.get("dashboard"):
        return {}
    return {NAMESPACE: DEFAULT_NAMESPACE, DIMENSIONS: json.dumps({"EndpointName": raw["name"]})}


def dashboard(description: Description, region: str | None) -> Call | None:
    """PutDashboard, if one is asked for. Raises DeploymentError where a widget would not know its region."""
    if not description.raw.get("dashboard"):
        return None
    region = description.region or region
    if region is None:
        raise DeploymentError("dashboard: needs to know the region: write region: or give --region")
    shown = [*platform(description), *own(description)]
    body = {"start": "-PT3H", "widgets": [mark(description.name), *(placed(*each, region) for each in enumerate(shown))]}
    return Call(
        "cloudwatch",
        "PutDashboard",
        {"DashboardName": dashboard_name(description.name), "DashboardBody": json.dumps(body, separators=(",", ":"))},
    )


def dashboard_name(endpoint: str) -> str:
    """One for each endpoint."""
    return f"{PREFIX}{endpoint}"


def mark(endpoint: str) -> dict[str, Any]:
    """The heading, which also tells our dashboards from others of that name: its tags do not come with a dashboard."""
    text = f"# {endpoint}\nWritten by deploy_endpoint.py, and removed with the endpoint."
    return {"type": "text", "x": 0, "y": 0, "width": WIDTH * COLUMNS, "height": 2, "properties": {"markdown": text}}


def is_ours(body: str, endpoint: str) -> bool:
    """Whether a dashboard's body has this endpoint's heading."""
    return mark(endpoint)["properties"]["markdown"] in [
        widget.get("properties", {}).get("markdown") for widget in json.loads(body).get("widgets", ())
    ]


def placed(number: int, properties: dict[str, Any], region: str) -> dict[str, Any]:
    """A widget in its place of the grid, three in a row below the heading."""
    row, column = divmod(number, COLUMNS)
    drawn = {"view": "timeSeries", "stacked": False, "region": region, "period": PERIOD_S, **properties}
    place = {"x": WIDTH * column, "y": 2 + HEIGHT * row, "width": WIDTH, "height": HEIGHT}
    return {"type": "metric", **place, "properties": drawn}


def platform(description: Description) -> list[dict[str, Any]]:
    """What SageMaker measures, by variant or by component."""
    measured = [("Invocations", "Sum"), ("Invocation4XXErrors", "Sum"), ("Invocation5XXErrors", "Sum")]
    if description.kind is Kind.COMPONENTS:
        subjects = [(["InferenceComponentName", each.name], each.name) for each in description.components]
        return [widget("SageMaker: calls", [*lines(PLATFORM, subjects, measured)], "per minute")]
    subjects = [(of_variant(description, each), each.name) for each in description.variants]
    latencies = [(name, statistic) for name in ("ModelLatency", "OverheadLatency") for statistic in ("p50", "p99")]
    if description.kind is Kind.SERVERLESS:
        latencies.append(("ModelSetupTime", "Maximum"))
        machine = [("MemoryUtilization", "Maximum")]
    else:
        machine = [(f"{what}Utilization", "Average") for what in ("CPU", "Memory", "Disk", "GPU", "GPUMemory")]
    shown = [
        widget("SageMaker: calls", [*lines(PLATFORM, subjects, measured)], "per minute"),
        widget("SageMaker: latency", [*lines(PLATFORM, subjects, latencies)], MICROSECONDS.lower()),
        widget("Instances", [*lines(MACHINE, subjects, machine)], "percent"),
    ]
    if description.kind is Kind.ASYNC:
        endpoint: list[tuple[list[str], str]] = [(["EndpointName", description.name], description.name)]
        backlog = [("ApproximateBacklogSize", "Maximum"), ("ApproximateAgeOfOldestRequest", "Maximum")]
        shown.append(widget("Backlog", [*lines(PLATFORM, endpoint, backlog)], "requests, seconds"))
    return shown


def of_variant(description: Description, variant: Variant) -> list[str]:
    """A variant's dimensions, as a widget writes them."""
    return ["EndpointName", description.name, "VariantName", variant.name]


def lines(namespace: str, subjects: list[tuple[list[str], str]], measured: list[tuple[str, str]]) -> list[Metric]:
    """Each metric of each subject, with its statistic."""
    return [
        [namespace, metric, *dimensions, {"stat": statistic, "label": f"{subject} {metric} {statistic}"}]
        for dimensions, subject in subjects
        for metric, statistic in measured
    ]


def own(description: Description) -> list[dict[str, Any]]:
    """What the containers print: one line for every model of the endpoint."""
    namespace, names = printed(description.containers)
    found = []
    for title, searched, axis in OWN:
        metrics: list[Metric] = [
            [{"expression": search(namespace, names, metric, statistic, description.name), "id": f"m{number}"}]
            for number, (metric, statistic) in enumerate(searched)
        ]
        found.append(widget(title, metrics, axis))
    return found


def printed(containers: tuple[Container, ...]) -> tuple[str, list[str]]:
    """Namespace and dimensions of what the containers print, which must be one. Raises DeploymentError."""
    ways = {(each.environment.get(NAMESPACE, ""), each.environment.get(DIMENSIONS, "{}")) for each in containers}
    if len(ways) != 1:
        raise DeploymentError(f"dashboard: shows one {NAMESPACE} with one {DIMENSIONS}: give all containers the same")
    ((namespace, written),) = ways
    try:
        dimensions = json.loads(written)
        names = sorted(dimensions)
    except (ValueError, TypeError):
        raise DeploymentError(f"dashboard: {DIMENSIONS}={written} is no JSON object") from None
    if "EndpointName" not in names:
        raise DeploymentError(f"dashboard: finds its metrics by EndpointName: add it to {DIMENSIONS}")
    return namespace, [*names, "Model"]


def search(namespace: str, names: list[str], metric: str, statistic: str, endpoint: str) -> str:
    """A search expression of metric maths, by the page on its syntax."""
    schema = ",".join(f'"{word}"' for word in (namespace, *names))
    words = f'{{{schema}}} MetricName="{metric}" EndpointName="{endpoint}"'
    return f"SEARCH('{words}', '{statistic}', {PERIOD_S})"


def widget(title: str, metrics: list[Metric], axis: str) -> dict[str, Any]:
    """Properties of a graph whose axis begins at zero."""
    return {"title": title, "metrics": metrics, "yAxis": {"left": {"min": 0, "label": axis, "showUnits": False}}}
