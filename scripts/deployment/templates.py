"""The same plan as a CloudFormation template: one resource a call, tied together by references."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from deployment.autoscaling import POLICY_ARN
from deployment.calls import Call
from deployment.plan import Plan

TYPES = {
    "CreateModel": "AWS::SageMaker::Model",
    "CreateEndpointConfig": "AWS::SageMaker::EndpointConfig",
    "CreateEndpoint": "AWS::SageMaker::Endpoint",
    "CreateInferenceComponent": "AWS::SageMaker::InferenceComponent",
    "RegisterScalableTarget": "AWS::ApplicationAutoScaling::ScalableTarget",
    "PutScalingPolicy": "AWS::ApplicationAutoScaling::ScalingPolicy",
    "PutMetricAlarm": "AWS::CloudWatch::Alarm",
    "PutDashboard": "AWS::CloudWatch::Dashboard",
}
NAMES = {
    "CreateModel": "ModelName",
    "CreateEndpointConfig": "EndpointConfigName",
    "CreateEndpoint": "EndpointName",
    "CreateInferenceComponent": "InferenceComponentName",
    "PutScalingPolicy": "PolicyName",
    "PutMetricAlarm": "AlarmName",
    "PutDashboard": "DashboardName",
}
REFERRED = ("ModelName", "EndpointConfigName", "EndpointName")  # a component's reference gives its ARN, not its name
RESOURCE = re.compile(r"(endpoint|inference-component)/([^/]+)(.*)")


def template(plan: Plan) -> str:
    """YAML in the order of the calls. What the smoke call needs is no resource and stays out."""
    resources: dict[str, Any] = {}
    logical = {(call.operation, name_of(call)): identifier(call) for call in plan.resources}
    for call in plan.resources:
        properties = {key: tied(key, value, call, logical) for key, value in call.parameters.items()}
        resources[identifier(call)] = {
            "Type": TYPES[call.operation],
            **waiting(call, logical),
            "Properties": adapted(call, properties, plan, logical),
        }
    outputs = {"EndpointName": {"Value": {"Fn::GetAtt": [identifier(plan.endpoint), "EndpointName"]}}}
    document = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"{plan.description.kind} endpoint {plan.description.name}, written by deploy_endpoint.py",
        "Resources": resources,
        "Outputs": outputs,
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def name_of(call: Call) -> str:
    """What AWS knows it by: a policy's name is only its target's, and a target has none but its resource."""
    own = str(call.parameters[NAMES[call.operation]]) if call.operation in NAMES else ""
    return own or str(call.parameters["ResourceId"])


def identifier(call: Call) -> str:
    """A logical id: the kind of the resource and its own name, in letters and digits."""
    kind = TYPES[call.operation].rpartition("::")[2]
    words = re.split(r"[^a-zA-Z0-9]+", name_of(call))
    return kind + "".join(word[:1].upper() + word[1:] for word in words)


def tied(key: str, value: Any, owner: Call, logical: Mapping[tuple[str, str], str]) -> Any:
    """The value with names of other resources as references to them, so that CloudFormation knows the order."""
    if isinstance(value, Mapping):
        inner = {name: tied(name, member, owner, logical) for name, member in value.items()}
        if "Name" in value and value.get("Name") in REFERRED:  # a metric's dimension
            inner["Value"] = tied(str(value["Name"]), value["Value"], owner, logical)
        return inner
    if isinstance(value, list):
        return [tied(key, member, owner, logical) for member in value]
    if isinstance(value, str) and value.startswith(POLICY_ARN):
        return {"Ref": logical["PutScalingPolicy", value.removeprefix(POLICY_ARN)]}
    operation = next((name for name, own in NAMES.items() if own == key and key in REFERRED), None)
    if operation and operation != owner.operation and (operation, value) in logical:
        return {"Fn::GetAtt": [logical[operation, value], key]}
    return value


def adapted(call: Call, properties: dict[str, Any], plan: Plan, logical: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """Where CloudFormation's words differ from the API's."""
    if call.operation == "CreateEndpoint":
        update = plan.update.parameters
        kept = ("RetainAllVariantProperties", "ExcludeRetainedVariantProperties")
        return properties | {key: update[key] for key in kept if key in update}
    if call.operation == "RegisterScalableTarget":
        properties["Tags"] = [{"Key": key, "Value": value} for key, value in call.parameters["Tags"].items()]
        properties["ResourceId"] = resource_id(call.parameters["ResourceId"], logical)
    if call.operation == "PutDashboard":
        region = json.dumps(json.loads(call.parameters["DashboardBody"])["widgets"][-1]["properties"]["region"])
        body = call.parameters["DashboardBody"].replace(f'"region":{region}', '"region":"${AWS::Region}"')
        return properties | {"DashboardBody": {"Fn::Sub": body}}
    if call.operation == "PutScalingPolicy":
        target = logical["RegisterScalableTarget", call.parameters["ResourceId"]]
        rest = {key: value for key, value in properties.items() if key in ("PolicyName", "PolicyType") or "Configuration" in key}
        return {"ScalingTargetId": {"Ref": target}, **rest}
    return properties


def waiting(call: Call, logical: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """DependsOn where a name without a reference hides that another resource comes first."""
    found = RESOURCE.fullmatch(str(call.parameters.get("ResourceId", "")))
    if call.operation == "RegisterScalableTarget" and found and found[1] == "inference-component":
        return {"DependsOn": logical["CreateInferenceComponent", found[2]]}
    return {}


def resource_id(literal: str, logical: Mapping[tuple[str, str], str]) -> Any:
    """The resource that scales, by reference to its endpoint."""
    found = RESOURCE.fullmatch(literal)
    if not found or found[1] != "endpoint":
        return literal
    return {"Fn::Sub": f"endpoint/${{{logical['CreateEndpoint', found[2]]}.EndpointName}}{found[3]}"}
