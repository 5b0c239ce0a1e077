"""What an account of the stand-in holds, and what a test puts into it."""

from __future__ import annotations

import json
import time

from deploy.planning import LABEL, MULTI_MODELS
from deploy.registry import digest_of
from deploy.stand_in_aws import StandIn


def names(aws: StandIn) -> dict[str, list[str]]:
    """Everything of SageMaker's that the account holds."""
    client = aws.client("sagemaker")
    return {
        "models": [each["ModelName"] for each in client.list_models()["Models"]],
        "configs": [each["EndpointConfigName"] for each in client.list_endpoint_configs()["EndpointConfigs"]],
        "endpoints": [each["EndpointName"] for each in client.list_endpoints()["Endpoints"]],
        "components": list(aws.components),
    }


def targets(aws: StandIn) -> dict[str, tuple[int, int]]:
    """What scales, and within which limits."""
    found = aws.client("application-autoscaling").describe_scalable_targets(ServiceNamespace="sagemaker")
    return {each["ResourceId"]: (each["MinCapacity"], each["MaxCapacity"]) for each in found["ScalableTargets"]}


def policies(aws: StandIn) -> set[str]:
    """The names of all scaling policies."""
    found = aws.client("application-autoscaling").describe_scaling_policies(ServiceNamespace="sagemaker")
    return {each["PolicyName"] for each in found["ScalingPolicies"]}


def log(aws: StandIn, group: str, *lines: str) -> None:
    """What a container had logged before it failed."""
    client = aws.client("logs")
    client.create_log_group(logGroupName=group)
    client.create_log_stream(logGroupName=group, logStreamName="AllTraffic/i-1")
    now = int(time.time() * 1000)
    events = [{"timestamp": now + number, "message": line} for number, line in enumerate(lines)]
    client.put_log_events(logGroupName=group, logStreamName="AllTraffic/i-1", logEvents=events)


def push(aws: StandIn, environment: tuple[str, ...] = (), bound: bool = True) -> str:
    """An image that only ECR knows, without layers; its URI."""
    labels = {MULTI_MODELS: "true", **({LABEL: "true"} if bound else {})}
    config = json.dumps({"architecture": "amd64", "config": {"Labels": labels, "Env": list(environment)}}).encode()
    aws.registry.blobs[digest_of(config)] = config
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    manifest = {
        "schemaVersion": 2,
        "mediaType": kind,
        "config": {
            "mediaType": "application/vnd.docker.container.image.v1+json",
            "size": len(config),
            "digest": digest_of(config),
        },
        "layers": [],
    }
    client = aws.client("ecr")
    client.create_repository(repositoryName="byoc-stand-in")
    client.put_image(
        repositoryName="byoc-stand-in", imageManifest=json.dumps(manifest), imageManifestMediaType=kind, imageTag="1"
    )
    return "123456789012.dkr.ecr.us-east-1.amazonaws.com/byoc-stand-in:1"
