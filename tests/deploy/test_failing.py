"""How deploy_endpoint.py ends when AWS, the description or the person at the keyboard says no: always with a sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.account import log, names, push
from deploy.planning import ASYNC, SERVERLESS
from deploy.stand_in_aws import StandIn
from running import ROOT

Written = Callable[..., Path]
Run = Callable[..., Any]
SCRIPT = "deploy_endpoint.py"
FAST = ("--pause", "0.05")
ROLE = "arn:aws:iam::123456789012:role/somebody"


def test_an_endpoint_of_somebody_else_is_neither_changed_nor_deleted(aws: StandIn, run: Run, written: Written) -> None:
    client = aws.client("sagemaker")
    client.create_model(ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": "image"})
    variant = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.c5.xlarge", "InitialInstanceCount": 1}
    client.create_endpoint_config(EndpointConfigName="theirs", ProductionVariants=[variant])
    client.create_endpoint(EndpointName="sentences", EndpointConfigName="theirs")
    for arguments in ((written(),), ("--name", "sentences", "--delete")):
        ran = run(SCRIPT, *arguments, *FAST)
        assert ran.returncode == 1
        assert "deploy_endpoint.py did not make" in ran.stderr or "was not made by deploy_endpoint.py" in ran.stderr
    assert names(aws) == {"models": ["m"], "configs": ["theirs"], "endpoints": ["sentences"], "components": []}


def test_a_failure_shows_the_reason_and_the_last_lines_of_the_log(aws: StandIn, run: Run, written: Written) -> None:
    log(aws, "/aws/sagemaker/Endpoints/sentences", "starting", "config.json is not valid JSON")
    aws.statuses["sentences"] = [
        {"EndpointStatus": "Creating"},
        {"EndpointStatus": "Creating"},
        {"EndpointStatus": "Failed", "FailureReason": "The container did not pass the ping health check"},
    ]
    ran = run(SCRIPT, written(), *FAST)
    assert ran.returncode == 1
    assert "endpoint sentences is Creating" in ran.stderr
    assert "did not pass the ping health check" in ran.stderr
    assert "  config.json is not valid JSON" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_one_that_failed_is_made_anew(aws: StandIn, run: Run, deploy: Run, written: Written) -> None:
    aws.statuses["sentences"] = [{"EndpointStatus": "Failed", "FailureReason": "no"}]
    assert run(SCRIPT, written(), *FAST).returncode == 1
    aws.calls.clear()
    deploying = written()
    aws.statuses["sentences"] = [{"EndpointStatus": "Failed"}, {"EndpointStatus": "InService"}]
    ran = deploy(deploying)
    assert "had failed and is made anew" in ran.stderr
    assert [call for call in aws.calls if call in ("DeleteEndpoint", "CreateEndpoint")] == ["DeleteEndpoint", "CreateEndpoint"]


def test_a_rolled_back_update_is_a_failure_and_keeps_what_serves(aws: StandIn, run: Run, deploy: Run, written: Written) -> None:
    deploy(written())
    (old,) = names(aws)["configs"]
    aws.statuses["sentences"] = [
        {"EndpointStatus": "InService", "EndpointConfigName": old},
        {"EndpointStatus": "RollingBack", "EndpointConfigName": old},
        {"EndpointStatus": "InService", "EndpointConfigName": old, "FailureReason": "the alarm went off"},
    ]
    ran = run(SCRIPT, written(environment={"A": 1}), *FAST)
    assert ran.returncode == 1
    assert "rolled back to what it served before: the alarm went off" in ran.stderr
    assert old in names(aws)["configs"]


def test_ctrl_c_leaves_a_sentence_and_the_next_run_takes_it_up(aws: StandIn, deploy: Run, written: Written) -> None:
    aws.statuses["sentences"] = [{"EndpointStatus": "Creating"}]
    process = subprocess.Popen(
        [str(ROOT / "scripts" / SCRIPT), str(written()), *FAST],
        env={**os.environ, **aws.environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while aws.calls[-1:] != ["DescribeEndpoint"] or "CreateEndpoint" not in aws.calls:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.splitlines()[-1].startswith("deploy_endpoint: stopped; ")
    aws.statuses["sentences"] = [{"EndpointStatus": "Creating"}, {"EndpointStatus": "InService"}]
    assert "is as described" in deploy(written()).stderr


def test_what_is_on_its_way_is_deleted_once_it_has_arrived(aws: StandIn, deploy: Run, written: Written) -> None:
    deploy(written())
    aws.calls.clear()
    aws.statuses["sentences"] = [{"EndpointStatus": "Updating"}] * 3 + [{"EndpointStatus": "InService"}]
    deploy("--name", "sentences", "--delete")
    assert aws.calls[: aws.calls.index("DeleteEndpoint")].count("DescribeEndpoint") == 4
    assert names(aws)["endpoints"] == []


def test_the_script_gives_up_after_its_limit(aws: StandIn, run: Run, written: Written) -> None:
    aws.statuses["sentences"] = [{"EndpointStatus": "Creating"}]
    ran = run(SCRIPT, written(), *FAST, "--limit", "0.01")
    assert ran.returncode == 1
    assert "still Creating" in ran.stderr


def test_a_faulty_description_ends_with_a_sentence_and_sends_nothing(aws: StandIn, run: Run, written: Written) -> None:
    ran = run(SCRIPT, written(instances={"type": "ml.c5.xlrage"}), *FAST)
    assert ran.returncode == 1
    assert ran.stderr.startswith("deploy_endpoint: CreateEndpointConfig would be refused: ")
    assert ran.stderr.count("\n") == 1
    assert aws.calls == []


def test_a_refusal_of_aws_is_one_sentence(aws: StandIn, run: Run, written: Written) -> None:
    settings = {**ASYNC, "async": {"output": "s3://absent-bucket/out/"}, "smoke": {"body": "{}"}}
    ran = run(SCRIPT, written(**settings), *FAST)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("deploy_endpoint: ")
    assert "NoSuchBucket" in ran.stderr or "does not exist" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ({"environment": ("NVIDIA_VISIBLE_DEVICES=all",)}, "needs a GPU and serverless endpoints have none"),
        ({"bound": False}, "no label accept-bind-to-port=true"),
    ],
)
def test_an_image_in_ecr_is_read_before_anything_is_made(
    aws: StandIn, run: Run, written: Written, image: dict[str, Any], words: str
) -> None:
    uri = push(aws, **image)
    chain = {"kind": "pipeline", "image": uri, "containers": [{"hostname": "first"}, {"hostname": "second"}]}
    ran = run(SCRIPT, written(**({**SERVERLESS, "image": uri} if "environment" in image else chain)), *FAST)
    assert ran.returncode == 1
    assert words in ran.stderr
    assert names(aws)["models"] == []


def test_an_image_that_is_nowhere_is_named(aws: StandIn, run: Run, written: Written) -> None:
    aws.client("ecr").create_repository(repositoryName="byoc-stand-in")
    uri = "123456789012.dkr.ecr.us-east-1.amazonaws.com/byoc-stand-in:absent"
    ran = run(SCRIPT, written(**SERVERLESS, image=uri), *FAST)
    assert ran.returncode == 1
    assert f"{uri} is not in ECR" in ran.stderr
