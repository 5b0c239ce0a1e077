"""Removes exactly what deployments of one endpoint made: scaling, alarms, components, endpoint, configurations, models."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from botocore.exceptions import ClientError

from deployment import existing
from deployment.dashboard import dashboard_name, is_ours
from deployment.errors import DeploymentError
from deployment.following import BUSY, Follower

GOING = ("Deleting", "InService", "Creating", "Updating", "Failed", "OutOfService", "UpdateRollbackFailed")


def delete(session: Any, name: str, follower: Follower) -> None:
    """Everything that carries this endpoint's tag, in the order that AWS accepts. Raises DeploymentError if it is not ours."""
    there: Mapping[str, Any] | None = existing.endpoint(session, name)
    if there and not existing.is_ours(session, there["EndpointArn"], name):
        raise DeploymentError(f"the endpoint {name} was not made by deploy_endpoint.py: nothing is deleted")
    if there and there["EndpointStatus"] in BUSY:  # SageMaker deletes nothing that is on its way
        there = follower.wait(f"endpoint {name}", lambda: existing.endpoint(session, name), "EndpointStatus", BUSY)
    if there:
        components = existing.components(session, name)
        for target in existing.targets(session, name, components):
            deregister(session, target, follower)
        for component in components:
            delete_component(session, name, component, follower)
    alarms = existing.alarms(session, name)
    if alarms:
        session.client("cloudwatch").delete_alarms(AlarmNames=alarms)
        follower.say(f"deleted alarm {', '.join(alarms)}")
    if there:
        delete_endpoint(session, name, follower)
    removed = delete_configs_and_models(session, name, follower) + delete_dashboard(session, name, follower)
    if not (there or alarms or removed):
        follower.say(f"there is nothing of {name}")


def delete_endpoint(session: Any, name: str, follower: Follower) -> None:
    """The endpoint, waiting until it is gone."""
    session.client("sagemaker").delete_endpoint(EndpointName=name)
    follower.wait(f"endpoint {name}", lambda: existing.endpoint(session, name), "EndpointStatus", GOING)


def delete_component(session: Any, name: str, component: str, follower: Follower) -> None:
    """One inference component with its scaling, waiting until it is gone."""
    resource = f"inference-component/{component}"
    for target in existing.targets(session, name, [component]):
        if target["ResourceId"] == resource:
            deregister(session, target, follower)
    session.client("sagemaker").delete_inference_component(InferenceComponentName=component)
    follower.wait(f"component {component}", lambda: existing.component(session, component), "InferenceComponentStatus", GOING)


def deregister(session: Any, target: Mapping[str, str], follower: Follower) -> None:
    """A scalable target with its policies, which AWS would remove as well; their alarms go with them."""
    for policy in existing.policies(session, target):
        delete_policy(session, target, policy, follower)
    ignoring_missing(session.client("application-autoscaling").deregister_scalable_target, ServiceNamespace="sagemaker", **target)
    follower.say(f"{target['ResourceId']} no longer scales")


def delete_policy(session: Any, target: Mapping[str, str], policy: str, follower: Follower) -> None:
    """One scaling policy."""
    client = session.client("application-autoscaling")
    ignoring_missing(client.delete_scaling_policy, PolicyName=policy, ServiceNamespace="sagemaker", **target)
    follower.say(f"deleted scaling policy {policy}")


def delete_configs_and_models(
    session: Any, name: str, follower: Follower, keep_configs: Collection[str] = (), keep_models: Collection[str] = ()
) -> int:
    """Those of this endpoint that are not kept; configurations first, as they refer to models. Returns how many."""
    client = session.client("sagemaker")
    removed = 0
    for config in existing.configs(session, name):
        if config not in keep_configs:
            ignoring_missing(client.delete_endpoint_config, EndpointConfigName=config)
            follower.say(f"deleted endpoint config {config}")
            removed += 1
    for model in existing.models(session, name):
        if model not in keep_models:
            ignoring_missing(client.delete_model, ModelName=model)
            follower.say(f"deleted model {model}")
            removed += 1
    return removed


def delete_dashboard(session: Any, name: str, follower: Follower) -> int:
    """The endpoint's dashboard, if it has one. Returns how many."""
    there = existing.dashboard(session, name)
    if there is None or not is_ours(there, name):
        return 0
    session.client("cloudwatch").delete_dashboards(DashboardNames=[dashboard_name(name)])
    follower.say(f"deleted dashboard {dashboard_name(name)}")
    return 1


def ignoring_missing(call: Any, **parameters: Any) -> None:
    """Deleting what is gone already is no fault."""
    try:
        call(**parameters)
    except ClientError as error:
        if not existing.is_missing(error):
            raise
