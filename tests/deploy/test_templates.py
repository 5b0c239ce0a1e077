"""The same plan as a CloudFormation template: accepted by cfn-lint, and nothing of the plan lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cfnlint.api import ManualArgs, lint

from deploy.planning import ASYNC, CHAIN, SERVERLESS, image, planned
from deploy.stand_in_aws import REGION, StandIn
from deployment.templates import NAMES, TYPES, template

Written = Callable[..., Path]
CASES: dict[str, dict[str, Any]] = {
    "real-time": {
        "data_capture": {"output": "s3://bucket/captured/"},
        "scaling": {"max": 4, "per_minute": 600},
        "timeouts": {"model_download_s": 600, "health_check_s": 120},
        "routing": "LEAST_OUTSTANDING_REQUESTS",
    },
    "weights": {
        "variants": [
            {"name": "old", "weight": 9, "scaling": {"max": 4, "per_minute": 600}},
            {"name": "new", "weight": 1, "model": "s3://bucket/new/", "scaling": {"max": 2, "per_minute": 600}},
        ]
    },
    "gpu": {"instances": {"type": "ml.g5.xlarge"}},
    "serverless": SERVERLESS,
    "async": {**ASYNC, "scaling": {"max": 3}},
    "pipeline": {"kind": "pipeline", **CHAIN},
    "multi-container": {"kind": "multi-container", **CHAIN, "scaling": {"max": 3, "per_minute": 60}},
    "components": {
        "kind": "components",
        "image": None,
        "model": None,
        "components": [
            {"name": "a", "image": "image", "memory_mb": 2048, "cpus": 1},
            {"name": "b", "image": "image", "memory_mb": 1024, "scaling": {"min": 0, "max": 4, "per_minute": 300}},
        ],
    },
}


def faults_of(text: str) -> list[str]:
    """cfn-lint's errors and warnings, as for a stack in one region."""
    return [f"{each.rule.id} {each.message} at {each.path}" for each in lint(text, config=ManualArgs(regions=[REGION]))]


@pytest.mark.parametrize("case", CASES)
def test_every_kind_becomes_a_template_without_a_fault(written: Written, case: str) -> None:
    found = planned(written(**CASES[case]), image(environment=("CUDA_VERSION=12.8.0",) if case == "gpu" else ()))
    text = template(found)
    assert not faults_of(text)
    resources = yaml.safe_load(text)["Resources"]
    assert sorted(each["Type"] for each in resources.values()) == sorted(TYPES[call.operation] for call in found.resources)


def test_a_wrong_template_is_found_out(written: Written) -> None:
    broken = template(planned(written())).replace("InitialInstanceCount: 1", "InitialInstanceCounts: 1")
    assert faults_of(broken)


def test_resources_hang_together_by_reference(written: Written) -> None:
    found = planned(written(**CASES["async"]))
    resources = yaml.safe_load(template(found))["Resources"]
    by_type: dict[str, list[dict[str, Any]]] = {}
    for each in resources.values():
        by_type.setdefault(each["Type"].rpartition("::")[2], []).append(each["Properties"])
    (config,) = by_type["EndpointConfig"]
    (endpoint,) = by_type["Endpoint"]
    (target,) = by_type["ScalableTarget"]
    (alarm,) = by_type["Alarm"]
    model, name = config["ProductionVariants"][0]["ModelName"]["Fn::GetAtt"]
    assert (resources[model]["Type"], name) == ("AWS::SageMaker::Model", "ModelName")
    assert resources[endpoint["EndpointConfigName"]["Fn::GetAtt"][0]]["Type"] == "AWS::SageMaker::EndpointConfig"
    assert target["ResourceId"] == {"Fn::Sub": "endpoint/${EndpointSentences.EndpointName}/variant/AllTraffic"}
    assert resources[alarm["AlarmActions"][0]["Ref"]]["Properties"]["PolicyType"] == "StepScaling"
    assert all(resources[each["ScalingTargetId"]["Ref"]]["Properties"] == target for each in by_type["ScalingPolicy"])


def test_what_is_neither_tied_nor_reworded_is_what_the_calls_say(written: Written) -> None:
    found = planned(written(**CASES["real-time"]))
    resources = yaml.safe_load(template(found))["Resources"]
    for call in (found.models[0], found.config):
        name = call.parameters[NAMES[call.operation]]
        (properties,) = (
            each["Properties"] for each in resources.values() if each["Properties"].get(NAMES[call.operation]) == name
        )
        for key, value in call.parameters.items():
            if key != "ProductionVariants":
                assert properties[key] == value


def test_the_command_prints_the_template_and_sends_nothing(aws: Any, run: Callable[..., Any], written: Written) -> None:
    ran = run("deploy_endpoint.py", written(), "--emit", "cloudformation")
    assert ran.returncode == 0, ran.stderr
    assert not faults_of(ran.stdout)
    assert aws.calls == []


def test_cloudformation_makes_of_the_template_what_the_calls_would_have_made(aws: StandIn, written: Written) -> None:
    found = planned(written(**CASES["weights"], scaling=None))
    stacks = aws.client("cloudformation")
    stacks.create_stack(StackName="sentences", TemplateBody=template(found))
    outputs = stacks.describe_stacks(StackName="sentences")["Stacks"][0]["Outputs"]
    assert [each["OutputKey"] for each in outputs] == ["EndpointName"]
    client = aws.client("sagemaker")
    (config,) = client.list_endpoint_configs()["EndpointConfigs"]
    variants = client.describe_endpoint_config(EndpointConfigName=config["EndpointConfigName"])["ProductionVariants"]
    assert [(each["VariantName"], each["InitialVariantWeight"]) for each in variants] == [("old", 9.0), ("new", 1.0)]
    served = [client.describe_model(ModelName=each["ModelName"])["PrimaryContainer"]["ModelDataUrl"] for each in variants[:1]]
    assert served == ["s3://bucket/model.tar.gz"]
    assert len({each["ModelName"] for each in variants}) == 2
