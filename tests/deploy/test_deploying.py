"""deploy_endpoint.py as a person runs it, against AWS's HTTP interfaces with boto3 as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.account import names, policies, push, targets
from deploy.planning import ASYNC, SERVERLESS
from deploy.stand_in_aws import StandIn
from running import ROOT

Written = Callable[..., Path]
Run = Callable[..., Any]
ROLE = "arn:aws:iam::123456789012:role/somebody"
SCRIPT = "deploy_endpoint.py"

MAKING = ("Create", "Update", "Delete", "Put", "Register", "Deregister")
SCALED = {"scaling": {"max": 4, "per_minute": 600}}


def test_an_endpoint_comes_up_scales_and_answers(aws: StandIn, deploy: Run, written: Written) -> None:
    sample = {"smoke": {"body": '{"inputs": "rain"}'}}
    ran = deploy(written(**SCALED, **sample, data_capture={"output": "s3://bucket/captured/"}))
    there = names(aws)
    assert there["endpoints"] == ["sentences"]
    (model,), (config,) = there["models"], there["configs"]
    client = aws.client("sagemaker")
    described = client.describe_endpoint_config(EndpointConfigName=config)
    assert described["ProductionVariants"][0]["ModelName"] == model
    assert described["DataCaptureConfig"]["DestinationS3Uri"] == "s3://bucket/captured/"
    assert client.describe_model(ModelName=model)["PrimaryContainer"]["ModelDataUrl"] == "s3://bucket/model.tar.gz"
    assert targets(aws) == {"endpoint/sentences/variant/AllTraffic": (1, 4)}
    assert policies(aws) == {"AllTraffic-invocations"}
    assert "sentences answered" in ran.stdout


def test_a_second_run_changes_nothing(aws: StandIn, deploy: Run, written: Written) -> None:
    path = written()
    deploy(path)
    before = names(aws)
    aws.calls.clear()
    ran = deploy(path)
    assert "is as described" in ran.stderr
    assert names(aws) == before
    assert [call for call in aws.calls if call.startswith(MAKING)] == []


def test_a_changed_description_updates_and_leaves_nothing_behind(aws: StandIn, deploy: Run, written: Written) -> None:
    deploy(written())
    before = names(aws)
    deploy(written(environment={"SAGEMAKER_TS_BATCH_SIZE": 8}, tags={"team": "search"}))
    after = names(aws)
    assert [len(after[key]) for key in ("models", "configs", "endpoints")] == [1, 1, 1]
    assert after["models"] != before["models"]
    assert aws.client("sagemaker").describe_endpoint(EndpointName="sentences")["EndpointConfigName"] == after["configs"][0]
    assert [each["EndpointConfigName"] for each in aws.updates] == after["configs"]


def test_an_unchanged_model_stays_through_an_update(aws: StandIn, deploy: Run, written: Written) -> None:
    deploy(written())
    (model,) = names(aws)["models"]
    aws.calls.clear()
    deploy(written(instances={"type": "ml.m5.large"}))
    assert names(aws)["models"] == [model]
    assert "CreateModel" not in aws.calls
    assert "DeleteModel" not in aws.calls


def test_scaling_is_lifted_for_a_new_instance_type_and_put_back(aws: StandIn, deploy: Run, written: Written) -> None:
    deploy(written(**SCALED))
    aws.calls.clear()
    deploy(written(**SCALED, instances={"type": "ml.m5.large"}))
    order = [call for call in aws.calls if call in ("DeregisterScalableTarget", "UpdateEndpoint", "RegisterScalableTarget")]
    assert order == ["DeregisterScalableTarget", "UpdateEndpoint", "RegisterScalableTarget"]
    assert aws.updates[0]["RetainAllVariantProperties"] is True


def test_scaling_that_is_no_longer_described_goes(aws: StandIn, deploy: Run, written: Written) -> None:
    deploy(written(**ASYNC, scaling={"max": 3}))
    assert policies(aws) == {"AllTraffic-backlog", "AllTraffic-from-zero"}
    alarms = aws.client("cloudwatch").describe_alarms()["MetricAlarms"]
    assert [each["MetricName"] for each in alarms if "from-zero" in each["AlarmName"]] == ["HasBacklogWithoutCapacity"]
    (action,) = alarms[0]["AlarmActions"]
    assert action.startswith("arn:aws:autoscaling:")
    deploy(written(**ASYNC, scaling={"min": 1, "max": 3}))
    assert policies(aws) == {"AllTraffic-backlog"}
    assert aws.client("cloudwatch").describe_alarms(AlarmNamePrefix="sentences/")["MetricAlarms"] == []
    deploy(written(**ASYNC))
    assert targets(aws) == {}
    assert policies(aws) == set()


def test_delete_removes_what_was_made_and_nothing_else(aws: StandIn, deploy: Run, written: Written) -> None:
    client = aws.client("sagemaker")
    foreign = ("sentences-0123456789ab", "sentences-old", "other")
    for name in foreign:
        client.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer={"Image": "image"})
    deploy("--name", "sentences-two", written(**SCALED))
    deploy(written(**ASYNC, scaling={"max": 3}))
    deploy("--name", "sentences", "--delete")
    there = names(aws)
    assert there["endpoints"] == ["sentences-two"]
    assert len(there["configs"]) == 1
    assert {each for each in there["models"] if not each.startswith("sentences-two-")} == set(foreign)
    assert targets(aws) == {"endpoint/sentences-two/variant/AllTraffic": (1, 4)}
    assert policies(aws) == {"AllTraffic-invocations"}
    assert aws.client("cloudwatch").describe_alarms(AlarmNamePrefix="sentences/")["MetricAlarms"] == []
    again = deploy("--name", "sentences", "--delete")
    assert "there is nothing of sentences" in again.stderr


def test_a_run_that_finds_an_update_under_way_waits_for_it(aws: StandIn, deploy: Run, written: Written) -> None:
    deploy(written())
    aws.statuses["sentences"] = [{"EndpointStatus": "Updating"}, {"EndpointStatus": "Updating"}, {"EndpointStatus": "InService"}]
    ran = deploy(written())
    assert "endpoint sentences is Updating" in ran.stderr
    assert "is as described" in ran.stderr


def test_a_serverless_endpoint_is_made(aws: StandIn, deploy: Run, written: Written) -> None:
    settings = {**SERVERLESS, "image": push(aws)}
    deploy(written(**settings))
    (config,) = names(aws)["configs"]
    (variant,) = aws.client("sagemaker").describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
    assert variant["ServerlessConfig"] == {"MemorySizeInMB": 3072, "MaxConcurrency": 10}


def test_an_asynchronous_endpoint_is_asked_through_s3_and_cleaned_up(aws: StandIn, deploy: Run, written: Written) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="bucket")
    ran = deploy(written(**ASYNC, smoke={"body": '{"inputs": "rain"}'}))
    assert "sentences answered" in ran.stdout
    assert s3.list_objects_v2(Bucket="bucket")["KeyCount"] == 0


@pytest.mark.parametrize("kind", ["pipeline", "multi-container"])
def test_several_containers_are_asked_as_their_kind_allows(aws: StandIn, deploy: Run, written: Written, kind: str) -> None:
    containers = [{"hostname": "first"}, {"hostname": "second"}]
    ran = deploy(written(kind=kind, image=push(aws), containers=containers, smoke={"body": "{}"}))
    (model,) = names(aws)["models"]
    hosts = [each["ContainerHostname"] for each in aws.client("sagemaker").describe_model(ModelName=model)["Containers"]]
    assert hosts == ["first", "second"]
    answered = [line.split()[0] for line in ran.stdout.splitlines() if " answered " in line]
    assert answered == (["sentences"] if kind == "pipeline" else hosts)


def test_every_variant_is_asked(aws: StandIn, deploy: Run, written: Written) -> None:
    variants = [{"name": "old", "weight": 9}, {"name": "new", "weight": 1, "model": "s3://bucket/new/"}]
    ran = deploy(written(variants=variants, smoke={"body": "{}"}))
    assert [line.split()[0] for line in ran.stdout.splitlines()] == ["old", "new"]
    assert len(names(aws)["models"]) == 2


def test_components_come_change_and_go(aws: StandIn, deploy: Run, written: Written) -> None:
    def described(*components: dict[str, Any]) -> Path:
        return written(kind="components", image=None, model=None, components=list(components))

    first = {"name": "a", "image": "image", "memory_mb": 2048}
    second = {"name": "b", "image": "image", "memory_mb": 1024}
    deploy(described(first, second))
    assert names(aws)["components"] == ["sentences-a", "sentences-b"]
    aws.calls.clear()
    deploy(described(first, second))
    assert [call for call in aws.calls if call.startswith(MAKING)] == []
    deploy(described({**first, "memory_mb": 4096, "copies": 2}))
    assert names(aws)["components"] == ["sentences-a"]
    there = aws.components["sentences-a"]
    assert there["Specification"]["ComputeResourceRequirements"]["MinMemoryRequiredInMb"] == 4096
    assert there["RuntimeConfig"] == {"CopyCount": 2}
    deploy("--name", "sentences", "--delete")
    assert names(aws) == {"models": [], "configs": [], "endpoints": [], "components": []}


def test_a_dry_run_prints_the_calls_and_sends_none(aws: StandIn, run: Run, written: Written) -> None:
    ran = run(SCRIPT, written(**SCALED, smoke={"body": "{}"}), "--dry-run")
    printed = json.loads(ran.stdout)
    assert [each["operation"] for each in printed] == [
        *("CreateModel", "CreateEndpointConfig", "CreateEndpoint"),
        *("RegisterScalableTarget", "PutScalingPolicy", "InvokeEndpoint"),
    ]
    assert printed[5]["parameters"]["Body"] == "{}"
    assert aws.calls == []


def test_the_examples_describe_what_can_be_deployed(aws: StandIn, run: Run) -> None:
    image = push(aws)
    examples = [path for path in sorted((ROOT / "examples").glob("*.yaml")) if not path.stem.endswith("-job")]
    assert len(examples) >= 3
    for path in examples:
        ran = run(SCRIPT, path, "--image", image, "--dry-run")
        assert ran.returncode == 0, ran.stderr
        assert "CreateEndpoint" in ran.stdout
