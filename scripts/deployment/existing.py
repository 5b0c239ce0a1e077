"""What of an endpoint is there already, and which of it this project made, by name and by tag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from deployment import names
from deployment.autoscaling import alarm_prefix
from deployment.dashboard import dashboard_name

MISSING = ("Could not find", "does not exist", "not found")
MISSING_CODES = ("ResourceNotFound", "ResourceNotFoundException", "ObjectNotFoundException")


def is_missing(error: ClientError) -> bool:
    """Whether AWS says that the thing is not there; SageMaker does so by its words alone."""
    said = error.response["Error"]
    return said["Code"] in MISSING_CODES or any(words in said.get("Message", "") for words in MISSING)


def endpoint(session: Any, name: str) -> dict[str, Any] | None:
    """DescribeEndpoint's answer, or None."""
    try:
        found: dict[str, Any] = session.client("sagemaker").describe_endpoint(EndpointName=name)
    except ClientError as error:
        if is_missing(error):
            return None
        raise
    return found


def component(session: Any, name: str) -> dict[str, Any] | None:
    """DescribeInferenceComponent's answer, or None."""
    try:
        found: dict[str, Any] = session.client("sagemaker").describe_inference_component(InferenceComponentName=name)
    except ClientError as error:
        if is_missing(error):
            return None
        raise
    return found


def is_ours(session: Any, arn: str, name: str) -> bool:
    """Whether the resource has this endpoint's tag."""
    try:
        pages = session.client("sagemaker").get_paginator("list_tags").paginate(ResourceArn=arn)
        tags = [tag for page in pages for tag in page["Tags"]]
    except ClientError as error:
        if is_missing(error):
            return False
        raise
    return {"Key": names.TAG, "Value": name} in tags


def models(session: Any, name: str) -> list[str]:
    """The models made for this endpoint, whatever their content."""
    listed = pages(session, "list_models", "Models", NameContains=shared_prefix(name))
    return owned(session, name, listed, "ModelName", "ModelArn")


def configs(session: Any, name: str) -> list[str]:
    """The endpoint configurations made for it."""
    listed = pages(session, "list_endpoint_configs", "EndpointConfigs", NameContains=shared_prefix(name))
    return owned(session, name, listed, "EndpointConfigName", "EndpointConfigArn")


def components(session: Any, name: str) -> list[str]:
    """The inference components made for it."""
    listed = pages(session, "list_inference_components", "InferenceComponents", EndpointNameEquals=name)
    return [each["InferenceComponentName"] for each in listed if is_ours(session, each["InferenceComponentArn"], name)]


def targets(session: Any, name: str, of_components: Iterable[str]) -> list[dict[str, str]]:
    """The scalable targets of its variants and of these components, by resource and dimension."""
    resources = {f"inference-component/{each}" for each in of_components}
    client = session.client("application-autoscaling")
    found = client.get_paginator("describe_scalable_targets").paginate(ServiceNamespace="sagemaker")
    return [
        {"ResourceId": each["ResourceId"], "ScalableDimension": each["ScalableDimension"]}
        for page in found
        for each in page["ScalableTargets"]
        if each["ResourceId"].startswith(f"endpoint/{name}/variant/") or each["ResourceId"] in resources
    ]


def policies(session: Any, target: Mapping[str, str]) -> list[str]:
    """The names of a target's policies."""
    client = session.client("application-autoscaling")
    found = client.get_paginator("describe_scaling_policies").paginate(ServiceNamespace="sagemaker", **target)
    return [each["PolicyName"] for page in found for each in page["ScalingPolicies"]]


def alarms(session: Any, name: str) -> list[str]:
    """The alarms that wake it from zero; Application Auto Scaling keeps its own."""
    found = session.client("cloudwatch").get_paginator("describe_alarms").paginate(AlarmNamePrefix=alarm_prefix(name))
    return [alarm["AlarmName"] for page in found for alarm in page["MetricAlarms"]]


def dashboard(session: Any, name: str) -> str | None:
    """The body of the dashboard of that endpoint's name, whoever made it, or None."""
    try:
        body: str = session.client("cloudwatch").get_dashboard(DashboardName=dashboard_name(name))["DashboardBody"]
    except ClientError as error:
        if is_missing(error):
            return None
        raise
    return body


def pages(session: Any, operation: str, key: str, **parameters: str) -> list[dict[str, Any]]:
    """All pages of one of SageMaker's lists."""
    found = session.client("sagemaker").get_paginator(operation).paginate(**parameters)
    return [each for page in found for each in page[key]]


def shared_prefix(name: str) -> str:
    """What every name by content begins with."""
    return names.by_content(name, {})[: -names.DIGEST_LENGTH]


def owned(session: Any, name: str, listed: Iterable[Mapping[str, Any]], key: str, arn: str) -> list[str]:
    """Those with a name of ours and the tag: a name alone proves nothing."""
    return [each[key] for each in listed if names.is_by_content(name, each[key]) and is_ours(session, each[arn], name)]
