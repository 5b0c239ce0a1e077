"""CloudWatch's side of the embedded metric format: takes printed lines as CloudWatch Logs does, by others' rules.

The form is judged by the schema beside this file, which says what AWS's specification of the format says; limits and units by
AWS's own library for it; and what comes of a line by botocore's model of PutMetricData and moto's CloudWatch.
A distribution (Values and Counts) is what the specification leaves out and AWS's exporter for OpenTelemetry writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
from aws_embedded_metrics import constants, validator
from aws_embedded_metrics.storage_resolution import StorageResolution
from jsonschema import Draft202012Validator
from moto import mock_aws

SCHEMA = json.loads(Path(__file__).with_name("embedded_metric_format.schema.json").read_text("utf-8"))
OLDER_MOST_DIMENSIONS = 9
LONGEST_LINE = 256 * 1024


def lines(printed: Iterable[str]) -> list[dict[str, Any]]:
    """The metric lines among those that a container printed; each must be valid."""
    found = []
    for line in printed:
        if '"CloudWatchMetrics"' not in line:
            continue
        assert len(line.encode()) < LONGEST_LINE
        document = json.loads(line)
        Draft202012Validator(SCHEMA).validate(document)
        for directive in document["_aws"]["CloudWatchMetrics"]:
            check(document, directive)
        found.append(document)
    return found


def check(document: dict[str, Any], directive: dict[str, Any]) -> None:
    """Raises what AWS's library raises, or an assertion."""
    validator.validate_namespace(directive["Namespace"])
    validator.validate_timestamp(datetime.fromtimestamp(document["_aws"]["Timestamp"] / 1000))
    for names in directive["Dimensions"]:
        assert len(names) <= OLDER_MOST_DIMENSIONS
        validator.validate_dimension_set({name: document[name] for name in names})
    assert len(directive["Metrics"]) <= constants.MAX_METRICS_PER_EVENT
    seen: dict[str, StorageResolution] = {}
    for metric in directive["Metrics"]:
        values, counts = occurrences(document[metric["Name"]])
        assert 0 < len(values) == len(counts) <= constants.MAX_DATAPOINTS_PER_METRIC
        assert min(counts) > 0
        for value in values:
            validator.validate_metric(metric["Name"], value, metric["Unit"], StorageResolution.STANDARD, seen)


def occurrences(target: Any) -> tuple[list[float], list[float]]:
    """The values of a metric, and how often each of them occurred."""
    if isinstance(target, dict):
        return target["Values"], target["Counts"]
    values = target if isinstance(target, list) else [target]
    return values, [1.0] * len(values)


def data(document: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """What CloudWatch makes of a line: namespaces with their data, in the words of PutMetricData."""
    for directive in document["_aws"]["CloudWatchMetrics"]:
        made = []
        for names in directive["Dimensions"]:
            dimensions = [{"Name": name, "Value": document[name]} for name in names]
            for metric in directive["Metrics"]:
                values, counts = occurrences(document[metric["Name"]])
                made.append(
                    {
                        "MetricName": metric["Name"],
                        "Unit": metric["Unit"],
                        "Dimensions": dimensions,
                        "Timestamp": datetime.fromtimestamp(document["_aws"]["Timestamp"] / 1000, UTC),
                        "Values": values,
                        "Counts": counts,
                    }
                )
        yield directive["Namespace"], made


def statistics(documents: Iterable[dict[str, Any]], name: str) -> dict[str, float]:
    """Sum, SampleCount, Minimum and Maximum of a metric, as CloudWatch tells them once it has taken the lines."""
    documents = list(documents)
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    with mock_aws():
        client = boto3.client("cloudwatch", region_name="eu-west-1", **keys)
        for document in documents:
            for namespace, made in data(document):
                client.put_metric_data(Namespace=namespace, MetricData=made)
        (namespace, made), *_ = data(documents[-1])
        now = datetime.now(UTC)
        found = client.get_metric_statistics(
            Namespace=namespace,
            MetricName=name,
            Dimensions=made[0]["Dimensions"],
            StartTime=now - timedelta(hours=1),
            EndTime=now + timedelta(hours=1),
            Period=86_400,
            Statistics=["Sum", "SampleCount", "Minimum", "Maximum"],
        )
    points = found["Datapoints"]
    return {
        "Sum": sum(point["Sum"] for point in points),
        "SampleCount": sum(point["SampleCount"] for point in points),
        "Minimum": min(point["Minimum"] for point in points),
        "Maximum": max(point["Maximum"] for point in points),
    }
