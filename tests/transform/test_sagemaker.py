"""The same description on SageMaker: requests that botocore's model accepts, the job followed, its failure explained."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from faulty_proxy import FaultyProxy
from runner import Moto, Runner, clean_environment

from running import ROOT

EXAMPLE = ROOT / "examples" / "translation-job.yaml"


def client(service: str, url: str) -> Any:
    return boto3.client(service, endpoint_url=url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")


def described(tmp_path: Path, **changes: Any) -> Path:
    """The example's description with other values at its top."""
    request = {**yaml.safe_load(EXAMPLE.read_text()), **changes}
    path = tmp_path / "job.json"
    path.write_text(json.dumps({key: value for key, value in request.items() if value is not None}))
    return path


def test_a_dry_run_prints_the_exact_requests_and_asks_nobody(run: Runner) -> None:
    silent = dataclasses.replace(run, environment=clean_environment(AWS_ENDPOINT_URL="http://127.0.0.1:9"))
    done = silent(EXAMPLE, "--instance-count", 4, "--env", "BYOC_THREADS=8", "--dry-run")
    assert done.returncode == 0, done.stderr
    model, job = json.loads(done.stdout)
    request = yaml.safe_load(EXAMPLE.read_text())
    assert model == {"CreateModel": {"ModelName": "m2m100", **request.pop("Model")}}
    request["TransformResources"]["InstanceCount"] = 4
    request["Environment"] = {"BYOC_THREADS": "8"}
    assert job == {"CreateTransformJob": request}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"TransformResources": {"InstanceType": "ml.c6i.4xlarge"}},
            'Missing required parameter in TransformResources: "InstanceCount"',
        ),
        ({"MaxPayload": 6}, 'Unknown parameter in input: "MaxPayload"'),
        ({"BatchStrategy": "Multi"}, "BatchStrategy is 'Multi' and must be one of MultiRecord, SingleRecord"),
        ({"TransformJobName": "two words"}, "TransformJobName is 'two words' and does not match"),
        ({"ModelClientConfig": {"InvocationsTimeoutInSeconds": 7200}}, "is 7200 and over its limit of 3600"),
        ({"MaxPayloadInMB": 60}, "MaxPayloadInMB × MaxConcurrentTransforms is 60 × 2 = 120 and may be 100 at most"),
        ({"MaxPayloadInMB": 0}, "MaxPayloadInMB 0 streams whole objects"),
        ({"DataProcessing": {"InputFilter": "features"}}, "InputFilter 'features' is no JSONPath"),
        ({"Model": {"Primary": {}}}, 'Model: Unknown parameter in input: "Primary"'),
        ({"ModelName": None}, 'Missing required parameter in input: "ModelName"'),
    ],
)
def test_what_the_service_would_refuse_is_refused_before_anything_is_sent(
    run: Runner, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    done = run(described(tmp_path, **changes), "--dry-run")
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_joins_need_equal_types_and_lines(run: Runner, tmp_path: Path) -> None:
    request = yaml.safe_load(EXAMPLE.read_text())
    request["TransformOutput"]["Accept"] = "text/csv"
    done = run(described(tmp_path, TransformOutput=request["TransformOutput"]), "--dry-run")
    assert "DataProcessing needs the same ContentType and Accept" in done.stderr
    request["TransformOutput"] |= {"Accept": "application/jsonlines", "AssembleWith": "None"}
    done = run(described(tmp_path, TransformOutput=request["TransformOutput"]), "--dry-run")
    assert "DataProcessing on lines needs SplitType Line and AssembleWith Line" in done.stderr


@pytest.mark.parametrize("content", ["a: [", "- a list", ""])
def test_a_file_that_is_no_description_is_refused_in_a_sentence(run: Runner, tmp_path: Path, content: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(content)
    done = run(path, "--dry-run")
    assert done.returncode == 1
    assert done.stderr.startswith("batch_transform: ")
    assert len(done.stderr.splitlines()) == 1


def test_the_job_is_created_with_its_model_and_followed_to_its_end(run_s3: Runner, aws: Moto) -> None:
    done = run_s3(EXAMPLE, "--job-name", "followed", "--transform-ami-version", "al2-ami-sagemaker-batch-gpu-535")
    assert done.returncode == 0, done.stderr
    assert "created transform job followed" in done.stdout
    assert "Completed after " in done.stdout
    sagemaker = client("sagemaker", aws.url)
    made = sagemaker.describe_transform_job(TransformJobName="followed")
    assert made["TransformResources"]["TransformAmiVersion"] == "al2-ami-sagemaker-batch-gpu-535"
    assert made["DataProcessing"]["OutputFilter"] == "$['id','SageMakerOutput']"
    assert sagemaker.describe_model(ModelName="m2m100")["PrimaryContainer"]["ModelDataUrl"] == "s3://translations/model.tar.gz"
    again = run_s3(EXAMPLE, "--job-name", "followed-again")
    assert again.returncode == 0, again.stderr


def test_a_failed_job_shows_its_reason_and_the_last_lines_of_its_log(run_s3: Runner, aws: Moto) -> None:
    logs = client("logs", aws.url)
    group, stream = "/aws/sagemaker/TransformJobs", "failing/i-0123"
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName=stream)
    now = int(time.time() * 1000)
    events = [{"timestamp": now + number, "message": f"line {number}"} for number in range(50)]
    logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)

    def rewrite(headers: dict[str, str], body: bytes) -> bytes:
        if headers.get("X-Amz-Target") != "SageMaker.DescribeTransformJob":
            return body
        return json.dumps(json.loads(body) | {"TransformJobStatus": "Failed", "FailureReason": "made up"}).encode()

    with FaultyProxy(aws.url, lambda *call: None, rewrite=rewrite) as proxy:
        failing = dataclasses.replace(run_s3, environment=clean_environment(AWS_ENDPOINT_URL=proxy.url))
        done = failing(EXAMPLE, "--job-name", "failing")
    assert done.returncode == 1
    assert "Failed after " in done.stdout
    assert done.stderr.splitlines() == ["reason: made up", *(f"line {number}" for number in range(30, 50))]


def test_what_the_service_refuses_is_told_in_a_sentence(run_s3: Runner, aws: Moto) -> None:
    assert run_s3(EXAMPLE, "--job-name", "once", "--no-wait").returncode == 0

    def rule(number: int, method: str, path: str) -> str | None:
        return "before"

    with FaultyProxy(aws.url, rule, status=400) as proxy:
        refused = dataclasses.replace(run_s3, environment=clean_environment(AWS_ENDPOINT_URL=proxy.url))
        done = refused(EXAMPLE, "--job-name", "refused")
    assert done.returncode == 1
    assert done.stderr.startswith("batch_transform: CreateModel was refused: ")
    assert len(done.stderr.splitlines()) == 1
