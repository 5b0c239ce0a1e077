"""The frontend's metrics without a server: models that come and go, and distributions as CloudWatch gets them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

import embedded
from running import HOME, ROOT

PROBE = ROOT / "tests" / "frontend" / "MetricsProbe.java"
ODD, ODD_IN_CLOUDWATCH = 'a/b:ü "1"', 'a/b:%C3%BC%20"1"'
ANSWERED_S = (0.0001, 0.003, 0.2, 7, 90, 200, 0.001)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the probe prints."""
    if shutil.which("javac") is None or not HOME.exists():
        pytest.skip("no JDK or no build/home: run `make build/.home`")
    classes = tmp_path_factory.mktemp("classes")
    (server,) = HOME.glob("venv/lib/python3*/site-packages/ts/frontend/model-server.jar")
    path = f"{HOME / 'lib' / 'byoc-endpoints.jar'}:{server}"
    subprocess.run(["javac", "-cp", path, "-d", str(classes), str(PROBE)], check=True, timeout=120)
    logged = f"-Dlog4j2.configurationFile={ROOT / 'config' / 'log4j2.xml'}"
    command = ["java", logged, "-cp", f"{classes}:{path}", "byoc.endpoints.MetricsProbe"]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    return ran.stdout.splitlines()


def test_a_model_that_goes_takes_all_its_series_along_and_may_come_back(printed: list[str]) -> None:
    at = printed.index("left as at first: true")
    families = list(text_string_to_metric_families("\n".join(printed[at + 1 :]) + "\n"))
    models = {sample.labels["model"] for family in families for sample in family.samples if sample.labels}
    assert models == {"second"}
    told = {(sample.name, sample.labels.get("status")): sample.value for family in families for sample in family.samples}
    assert told["byoc_requests_total", "404"] == 1
    assert told["byoc_requests_total", "200"] == 0
    assert told["byoc_queue_requests", None] == len("second")


def test_a_model_that_goes_leaves_its_last_numbers_behind(printed: list[str]) -> None:
    found = [line for line in embedded.lines(printed) if line["Model"] == ODD_IN_CLOUDWATCH]
    assert [line["Requests"] for line in found] == [len(ANSWERED_S), 1]
    assert found[1]["ServerErrors"] == 1
    assert "RequestTime" in found[1]
    assert "QueueTime" not in found[1], "a distribution of nothing is no value"


def test_a_distribution_keeps_count_and_sum_and_stays_within_its_buckets(printed: list[str]) -> None:
    line = embedded.lines(printed)[0]
    times = line["RequestTime"]
    assert sum(times["Counts"]) == times["Count"] == len(ANSWERED_S)
    total = sum(value * count for value, count in zip(times["Values"], times["Counts"], strict=True))
    assert total == pytest.approx(sum(ANSWERED_S)) == pytest.approx(times["Sum"])
    within = [(0, 0.0005), (0.0005, 0.001), (0.0025, 0.005), (0.1, 0.25), (5, 10), (60, 300)]
    assert all(low <= value <= high for value, (low, high) in zip(times["Values"], within, strict=True))
    assert times["Values"] == sorted(times["Values"])
    batches = line["BatchRequests"]
    assert batches["Counts"] == [1, 1]
    assert batches["Values"][0] in (3, 4), "3 requests share a bucket with 4"
    assert sum(batches["Values"]) == pytest.approx(203)
    assert line["MicrobatchRecords"]["Sum"] == 2305


def test_the_line_is_one_json_object_and_ascii_in_its_dimensions(printed: list[str]) -> None:
    (first, *_) = [line for line in printed if "CloudWatchMetrics" in line]
    assert json.loads(first)["Model"].isascii()
    assert json.loads(first)["Model"] != ODD
