"""Makes a plan real, whatever of it is there already: creates, updates, and removes what an earlier run left behind.

Content-hashed names make this simple: a model or configuration of that name is that content, and is never changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from deployment import existing
from deployment.autoscaling import POLICY_ARN
from deployment.calls import Call, send
from deployment.components import update_component
from deployment.dashboard import is_ours
from deployment.deleting import (
    delete_component,
    delete_configs_and_models,
    delete_dashboard,
    delete_endpoint,
    delete_policy,
    deregister,
)
from deployment.errors import DeploymentError
from deployment.following import BUSY, Follower, failure
from deployment.plan import Plan

IN_SERVICE = "InService"
ENDPOINT_LOGS = "/aws/sagemaker/Endpoints/"
COMPONENT_LOGS = "/aws/sagemaker/InferenceComponents/"


def apply(session: Any, plan: Plan, follower: Follower) -> None:
    """From whatever is there to what the plan says. Raises DeploymentError and botocore's ClientError."""
    name = plan.description.name
    there = settled(session, plan, follower)
    make(session, plan.models, existing.models(session, name), "ModelName", follower)
    make(session, (plan.config,), existing.configs(session, name), "EndpointConfigName", follower)
    if there is None:
        send(session, plan.endpoint)
        follower.say(f"endpoint {name} is being created")
        arrived(session, plan, follower)
    elif there["EndpointConfigName"] != plan.config.parameters["EndpointConfigName"]:
        release_changed(session, plan, there, follower)
        send(session, plan.update)
        follower.say(f"endpoint {name} is being updated")
        arrived(session, plan, follower)
    else:
        follower.say(f"endpoint {name} is as described")
    apply_components(session, plan, existing.components(session, name) if there or plan.components else [], follower)
    apply_scaling(session, plan, follower)
    apply_dashboard(session, plan, follower)
    kept = {call.parameters["ModelName"] for call in plan.models}
    delete_configs_and_models(session, name, follower, {plan.config.parameters["EndpointConfigName"]}, kept)


def settled(session: Any, plan: Plan, follower: Follower) -> Mapping[str, Any] | None:
    """The endpoint as it is once nothing moves; one that never came up is removed. Raises DeploymentError if not ours."""
    name = plan.description.name
    there = existing.endpoint(session, name)
    if there is None:
        return None
    if not existing.is_ours(session, there["EndpointArn"], name):
        raise DeploymentError(f"an endpoint {name} exists that deploy_endpoint.py did not make: choose another name")
    found: Mapping[str, Any] | None = there
    if there["EndpointStatus"] in BUSY:
        found = follower.wait(f"endpoint {name}", lambda: existing.endpoint(session, name), "EndpointStatus", BUSY)
    if found and found["EndpointStatus"] == "Failed":
        follower.say(f"endpoint {name} had failed and is made anew")
        delete_endpoint(session, name, follower)
        return None
    return found


def make(session: Any, calls: tuple[Call, ...], there: list[str], key: str, follower: Follower) -> None:
    """Send the calls whose names are not there."""
    for call in calls:
        if call.parameters[key] not in there:
            send(session, call)
            follower.say(f"{call.method.replace('_', ' ')} {call.parameters[key]}")


def arrived(session: Any, plan: Plan, follower: Follower) -> None:
    """Wait for the endpoint to serve the plan's configuration. Raises DeploymentError with reason and log."""
    name = plan.description.name
    found = follower.wait(f"endpoint {name}", lambda: existing.endpoint(session, name), "EndpointStatus", BUSY)
    if found is None or found["EndpointStatus"] != IN_SERVICE:
        raise failure(session, f"endpoint {name} failed", found, ENDPOINT_LOGS + name)
    if found["EndpointConfigName"] != plan.config.parameters["EndpointConfigName"]:
        raise failure(session, f"endpoint {name} was rolled back to what it served before", found, ENDPOINT_LOGS + name)


def release_changed(session: Any, plan: Plan, there: Mapping[str, Any], follower: Follower) -> None:
    """Take variants whose instances change or that go away off scaling: SageMaker refuses such updates otherwise."""
    old = session.client("sagemaker").describe_endpoint_config(EndpointConfigName=there["EndpointConfigName"])
    types = {each["VariantName"]: each.get("InstanceType") for each in old["ProductionVariants"]}
    wanted = {each["VariantName"]: each.get("InstanceType") for each in plan.config.parameters["ProductionVariants"]}
    for target in existing.targets(session, plan.description.name, ()):
        variant = target["ResourceId"].rpartition("/")[2]
        if types.get(variant) != wanted.get(variant):
            deregister(session, target, follower)


def apply_components(session: Any, plan: Plan, there: list[str], follower: Follower) -> None:
    """Create, update and remove inference components, of which `there` are some. Raises DeploymentError."""
    name = plan.description.name
    wanted = {call.parameters["InferenceComponentName"]: call for call in plan.components}
    scaled = {component.name for component in plan.description.components if component.scaling}
    for component, call in wanted.items():
        if component not in there:
            send(session, call)
            follower.say(f"component {component} is being created")
        elif differs(existing.component(session, component) or {}, call, component in scaled):
            send(session, update_component(call, component in scaled))
            follower.say(f"component {component} is being updated")
        found = follower.wait(
            f"component {component}",
            lambda component=component: existing.component(session, component),  # type: ignore[misc]
            "InferenceComponentStatus",
            BUSY,
        )
        if found is None or found["InferenceComponentStatus"] != IN_SERVICE:
            raise failure(session, f"component {component} failed", found, COMPONENT_LOGS + component)
    for component in there:
        if component not in wanted:
            delete_component(session, name, component, follower)


def differs(there: Mapping[str, Any], call: Call, scaled: bool) -> bool:
    """Whether a component is not as the call says; what AWS added to it does not count."""
    if not holds(there.get("Specification", {}), call.parameters["Specification"]):
        return True
    copies = call.parameters["RuntimeConfig"]["CopyCount"]
    return not scaled and there.get("RuntimeConfig", {}).get("DesiredCopyCount", copies) != copies


def holds(there: Any, wanted: Any) -> bool:
    """Whether everything that is wanted is there."""
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        return all(holds(there.get(key), value) for key, value in wanted.items())
    return bool(there == wanted)


def apply_scaling(session: Any, plan: Plan, follower: Follower) -> None:
    """Targets, policies and alarms as planned, and no others."""
    arns: dict[str, str] = {}
    for call in plan.scaling:
        if call.operation == "PutMetricAlarm":
            actions = [arns[action.removeprefix(POLICY_ARN)] for action in call.parameters["AlarmActions"]]
            send(session, Call(call.service, call.operation, {**call.parameters, "AlarmActions": actions}))
            continue
        answer = send(session, call)
        if call.operation == "PutScalingPolicy":
            arns[call.parameters["PolicyName"]] = answer["PolicyARN"]
        else:
            limits = f"{call.parameters['MinCapacity']} to {call.parameters['MaxCapacity']}"
            follower.say(f"{call.parameters['ResourceId']} scales from {limits}")
    remove_other_scaling(session, plan, follower)


def apply_dashboard(session: Any, plan: Plan, follower: Follower) -> None:
    """The dashboard as planned, or none."""
    if plan.dashboard is None:
        delete_dashboard(session, plan.description.name, follower)
        return
    name = plan.dashboard.parameters["DashboardName"]
    there = existing.dashboard(session, plan.description.name)
    if there is not None and not is_ours(there, plan.description.name):
        raise DeploymentError(f"a dashboard {name} exists that deploy_endpoint.py did not make: rename or remove it")
    if there is None or json.loads(there) != json.loads(plan.dashboard.parameters["DashboardBody"]):
        send(session, plan.dashboard)
        follower.say(f"put dashboard {name}")


def remove_other_scaling(session: Any, plan: Plan, follower: Follower) -> None:
    """What an earlier description asked for and this one does not."""
    name = plan.description.name
    wanted: dict[str, set[str]] = {}
    for call in plan.scaling:
        if call.operation != "PutMetricAlarm":
            wanted.setdefault(call.parameters["ResourceId"], set()).add(call.parameters.get("PolicyName", ""))
    components = [component.name for component in plan.description.components]
    for target in existing.targets(session, name, components):
        if target["ResourceId"] not in wanted:
            deregister(session, target, follower)
            continue
        for policy in existing.policies(session, target):
            if policy not in wanted[target["ResourceId"]]:
                delete_policy(session, target, policy, follower)
    alarms = {call.parameters["AlarmName"] for call in plan.scaling if call.operation == "PutMetricAlarm"}
    unwanted = [alarm for alarm in existing.alarms(session, name) if alarm not in alarms]
    if unwanted:
        session.client("cloudwatch").delete_alarms(AlarmNames=unwanted)
        follower.say(f"deleted alarm {', '.join(unwanted)}")
