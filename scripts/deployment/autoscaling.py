"""Scaling by load: a target with its limits, policies, and the alarm that wakes an endpoint from zero.

The rates come from a load test of one instance: max requests a second × 0.5 × 60, by the page on load testing an autoscaling
configuration, whose safety factor leaves room while new instances start.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deployment import names
from deployment.calls import Call
from deployment.description import Component, Description, Kind, Scaling, Variant
from deployment.errors import DeploymentError

SAFETY_FACTOR = 0.5
SECONDS_PER_MINUTE = 60
STEP_COOLDOWN_S = 300
INSTANCES = "sagemaker:variant:DesiredInstanceCount"
PROVISIONED = "sagemaker:variant:DesiredProvisionedConcurrency"
COPIES = "sagemaker:inference-component:DesiredCopyCount"
POLICY_ARN = "arn of the policy "


def scaling(description: Description) -> tuple[Call, ...]:
    """Every call, targets before their policies, policies before their alarms. Raises DeploymentError."""
    calls: list[Call] = []
    for variant in description.variants:
        if variant.scaling:
            calls += of_variant(description, variant, variant.scaling)
    for component in description.components:
        if component.scaling:
            calls += of_component(description, component, component.scaling)
    return tuple(calls)


def of_variant(description: Description, variant: Variant, limits: Scaling) -> list[Call]:
    """A variant's target and policies, by the kind of its endpoint."""
    resource = f"endpoint/{description.name}/variant/{variant.name}"
    if description.kind is Kind.ASYNC:
        return [target(description, resource, INSTANCES, limits), *by_backlog(description, variant, resource, limits)]
    if description.kind is Kind.SERVERLESS:
        if "provisioned_concurrency" not in description.raw["serverless"]:
            raise DeploymentError("scaling of a serverless endpoint needs serverless: provisioned_concurrency")
        policy = tracking(
            f"{variant.name}-utilization", "SageMakerVariantProvisionedConcurrencyUtilization", limits.utilization, limits
        )
        return [target(description, resource, PROVISIONED, limits), put_policy(resource, PROVISIONED, policy)]
    policy = tracking(f"{variant.name}-invocations", "SageMakerVariantInvocationsPerInstance", rate(limits), limits)
    return [target(description, resource, INSTANCES, limits), put_policy(resource, INSTANCES, policy)]


def of_component(description: Description, component: Component, limits: Scaling) -> list[Call]:
    """A component's copies follow the invocations of each; from zero they need one more look, like asynchronous ones."""
    resource = f"inference-component/{component.name}"
    policy = tracking(f"{component.name}-invocations", "SageMakerInferenceComponentInvocationsPerCopy", rate(limits), limits)
    calls = [target(description, resource, COPIES, limits), put_policy(resource, COPIES, policy)]
    if limits.minimum == 0:
        dimension = {"Name": "InferenceComponentName", "Value": component.name}
        calls += from_zero(description, resource, COPIES, component.name, "NoCapacityInvocationFailures", dimension)
    return calls


def rate(limits: Scaling) -> float:
    """Invocations per instance and minute to aim at. Raises DeploymentError."""
    if limits.per_minute is not None:
        return limits.per_minute
    if limits.load_test is None:
        raise DeploymentError("scaling: needs load_test: (a file that load_test.py wrote) or per_minute:")
    return round(measured_maximum(limits.load_test) * SAFETY_FACTOR * SECONDS_PER_MINUTE, 1)


def measured_maximum(path: Path) -> float:
    """The requests a second that one instance answered at most. Raises DeploymentError."""
    try:
        found = json.loads(path.read_text("utf-8"))
        maximum = float(found["max_requests_per_s"])
    except OSError as error:
        raise DeploymentError(f"scaling: {path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError):
        raise DeploymentError(f"scaling: {path} holds no max_requests_per_s: name a file that load_test.py wrote") from None
    if not maximum > 0:
        raise DeploymentError(f"scaling: {path} measured {maximum:g} requests a second: there is nothing to scale by")
    return maximum


def target(description: Description, resource: str, dimension: str, limits: Scaling) -> Call:
    """RegisterScalableTarget; a second one for the same resource changes its limits."""
    return Call(
        "application-autoscaling",
        "RegisterScalableTarget",
        {
            "ServiceNamespace": "sagemaker",
            "ResourceId": resource,
            "ScalableDimension": dimension,
            "MinCapacity": limits.minimum,
            "MaxCapacity": limits.maximum,
            "Tags": {tag["Key"]: tag["Value"] for tag in names.tags(description.name, description.tags)},
        },
    )


def put_policy(resource: str, dimension: str, policy: dict[str, Any]) -> Call:
    """PutScalingPolicy; a second one of the same name replaces the first."""
    where = {"ServiceNamespace": "sagemaker", "ResourceId": resource, "ScalableDimension": dimension}
    return Call("application-autoscaling", "PutScalingPolicy", {**where, **policy})


def tracking(name: str, metric: str, aim: float, limits: Scaling) -> dict[str, Any]:
    """A target-tracking policy on one of SageMaker's own metrics."""
    return {
        "PolicyName": name,
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": {
            "TargetValue": aim,
            "PredefinedMetricSpecification": {"PredefinedMetricType": metric},
            "ScaleOutCooldown": limits.out_s,
            "ScaleInCooldown": limits.in_s,
        },
    }


def by_backlog(description: Description, variant: Variant, resource: str, limits: Scaling) -> list[Call]:
    """An asynchronous endpoint follows its queue.

    The backlog per instance cannot be tracked while there is no instance, so that the first one comes by a step.
    """
    dimension = {"Name": "EndpointName", "Value": description.name}
    policy = {
        "PolicyName": f"{variant.name}-backlog",
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": {
            "TargetValue": limits.backlog_per_instance,
            "CustomizedMetricSpecification": {
                "MetricName": "ApproximateBacklogSizePerInstance",
                "Namespace": "AWS/SageMaker",
                "Dimensions": [dimension],
                "Statistic": "Average",
            },
            "ScaleOutCooldown": limits.out_s,
            "ScaleInCooldown": limits.in_s,
        },
    }
    calls = [put_policy(resource, INSTANCES, policy)]
    if limits.minimum == 0:
        calls += from_zero(description, resource, INSTANCES, variant.name, "HasBacklogWithoutCapacity", dimension)
    return calls


def from_zero(
    description: Description, resource: str, scaled: str, owner: str, metric: str, dimension: dict[str, str]
) -> list[Call]:
    """A step of one while the metric says that somebody waits and nobody serves, and the alarm that takes it."""
    name = f"{owner}-from-zero"
    policy = {
        "PolicyName": name,
        "PolicyType": "StepScaling",
        "StepScalingPolicyConfiguration": {
            "AdjustmentType": "ChangeInCapacity",
            "MetricAggregationType": "Average" if scaled == INSTANCES else "Maximum",
            "Cooldown": STEP_COOLDOWN_S,
            "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
        },
    }
    alarm = {
        "AlarmName": alarm_name(description.name, owner),
        "AlarmDescription": f"{description.name} has work and no instance",
        "Namespace": "AWS/SageMaker",
        "MetricName": metric,
        "Dimensions": [dimension],
        "Statistic": "Average" if scaled == INSTANCES else "Maximum",
        "Period": SECONDS_PER_MINUTE,
        "EvaluationPeriods": 1,
        "DatapointsToAlarm": 1,
        "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "TreatMissingData": "missing",
        "AlarmActions": [POLICY_ARN + name],
        "Tags": names.tags(description.name, description.tags),
    }
    return [put_policy(resource, scaled, policy), Call("cloudwatch", "PutMetricAlarm", alarm)]


def alarm_name(endpoint: str, owner: str) -> str:
    """Begins with the endpoint's name, by which deleting finds it."""
    return f"{alarm_prefix(endpoint)}{owner}"


def alarm_prefix(endpoint: str) -> str:
    """What every alarm of this endpoint begins with."""
    return f"{endpoint}/from-zero/"
