"""What a description becomes: calls in AWS's words, every one of them checked against its service's model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.conftest import IMAGE
from deploy.planning import ASYNC, CHAIN, CPU, SERVERLESS, image, operations, planned, variant
from deployment.errors import DeploymentError
from deployment.plan import Plan, plan
from deployment.reading import read

Written = Callable[..., Path]
GPU = {"type": "ml.g5.xlarge"}


def call(found: Plan, operation: str) -> dict[str, Any]:
    """The parameters of the one call of that name."""
    (chosen,) = (each for each in found.calls if each.operation == operation)
    return dict(chosen.parameters)


def test_a_real_time_endpoint_has_everything_that_was_asked_for(written: Written) -> None:
    found = planned(
        written(
            environment={"SAGEMAKER_TS_BATCH_SIZE": 8},
            instances={"type": "ml.c5.xlarge", "count": 2, "volume_gb": 30},
            timeouts={"model_download_s": 600, "health_check_s": 120},
            routing="LEAST_OUTSTANDING_REQUESTS",
            data_capture={"output": "s3://bucket/captured/", "percentage": 20, "modes": ["Input"]},
            vpc={"subnets": ["subnet-1"], "security_groups": ["sg-1"]},
            network_isolation=True,
            tags={"team": "search"},
        )
    )
    assert operations(found) == ["CreateModel", "CreateEndpointConfig", "CreateEndpoint"]
    model = call(found, "CreateModel")
    assert model["PrimaryContainer"]["Environment"] == {"SAGEMAKER_TS_BATCH_SIZE": "8"}
    assert model["PrimaryContainer"]["ModelDataUrl"] == "s3://bucket/model.tar.gz"
    assert model["VpcConfig"] == {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}
    assert model["EnableNetworkIsolation"] is True
    assert {"Key": "team", "Value": "search"} in model["Tags"]
    assert variant(found) == {
        "VariantName": "AllTraffic",
        "ModelName": model["ModelName"],
        "InitialVariantWeight": 1.0,
        "InstanceType": "ml.c5.xlarge",
        "InitialInstanceCount": 2,
        "VolumeSizeInGB": 30,
        "ModelDataDownloadTimeoutInSeconds": 600,
        "ContainerStartupHealthCheckTimeoutInSeconds": 120,
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
    }
    assert found.config.parameters["DataCaptureConfig"] == {
        "EnableCapture": True,
        "InitialSamplingPercentage": 20,
        "DestinationS3Uri": "s3://bucket/captured/",
        "CaptureOptions": [{"CaptureMode": "Input"}],
    }


def test_a_prefix_is_an_uncompressed_model(written: Written) -> None:
    model = call(planned(written(model="s3://bucket/plain/")), "CreateModel")
    assert "ModelDataUrl" not in model["PrimaryContainer"]
    assert model["PrimaryContainer"]["ModelDataSource"] == {
        "S3DataSource": {"S3Uri": "s3://bucket/plain/", "S3DataType": "S3Prefix", "CompressionType": "None"}
    }


def test_names_tell_the_content_and_tags_do_not_count(written: Written) -> None:
    first = planned(written())
    same = planned(written(tags={"team": "search"}))
    other = planned(written(environment={"A": "1"}))
    assert first.models[0].parameters["ModelName"] == same.models[0].parameters["ModelName"]
    assert first.config.parameters["EndpointConfigName"] == same.config.parameters["EndpointConfigName"]
    assert first.models[0].parameters["ModelName"] != other.models[0].parameters["ModelName"]
    assert first.config.parameters["EndpointConfigName"] != other.config.parameters["EndpointConfigName"]


def test_two_variants_of_the_same_model_share_it(written: Written) -> None:
    found = planned(written(variants=[{"name": "a"}, {"name": "b", "instances": {"type": "ml.m5.large"}}]))
    assert operations(found).count("CreateModel") == 1
    assert variant(found, 0)["ModelName"] == variant(found, 1)["ModelName"]


@pytest.mark.parametrize(
    ("environment", "host"),
    [
        (("CUDA_VERSION=12.1.1",), "al2-ami-sagemaker-inference-gpu-2-1"),
        (("CUDA_VERSION=12.4",), "al2-ami-sagemaker-inference-gpu-3-1"),
        (("NVIDIA_REQUIRE_CUDA=cuda>=12.8 brand=tesla",), "al2023-ami-sagemaker-inference-gpu-4-1"),
        (("CUDA_VERSION=13.0.0",), "al2023-ami-sagemaker-inference-gpu-4-1"),
    ],
)
def test_the_host_is_the_oldest_whose_driver_runs_the_images_cuda(
    written: Written, environment: tuple[str, ...], host: str
) -> None:
    assert variant(planned(written(instances=GPU), image(environment=environment)))["InferenceAmiVersion"] == host


def test_components_on_one_host_get_the_one_that_runs_them_all(written: Written) -> None:
    components = [{"name": name, "image": name, "memory_mb": 1024, "accelerators": 1} for name in ("new", "old")]
    cuda = {"new": "CUDA_VERSION=13.0.1", "old": "CUDA_VERSION=12.1.0"}
    path = written(kind="components", image=None, model=None, instances=GPU, components=components)
    found = plan(read(path, {}), lambda uri: image(uri, environment=(cuda[uri],)))
    assert variant(found)["InferenceAmiVersion"] == "al2023-ami-sagemaker-inference-gpu-4-1"


def test_a_gpu_image_is_refused_on_a_variant_without_a_gpu(written: Written) -> None:
    variants = [{"name": "fast", "instances": GPU}, {"name": "cheap"}]
    with pytest.raises(DeploymentError, match=r"needs a GPU and ml\.c5\.xlarge has none"):
        planned(written(variants=variants), image(environment=("CUDA_VERSION=12.4.0",)))


def test_a_host_that_was_named_stays(written: Written) -> None:
    named = {**GPU, "ami": "al2-ami-sagemaker-inference-gpu-3-1"}
    found = planned(written(instances=named), image(environment=("NVIDIA_VISIBLE_DEVICES=all",)))
    assert variant(found)["InferenceAmiVersion"] == "al2-ami-sagemaker-inference-gpu-3-1"


@pytest.mark.parametrize(
    ("changes", "environment", "words"),
    [
        ({"instances": GPU}, ("CUDA_VERSION=13.4",), r"CUDA 13\.4, which no host image"),
        ({"instances": GPU}, ("NVIDIA_VISIBLE_DEVICES=all",), "does not say its CUDA version"),
        (SERVERLESS, ("NVIDIA_VISIBLE_DEVICES=all",), "needs a GPU and serverless endpoints have none"),
    ],
)
def test_a_gpu_image_that_would_not_run_is_refused(
    written: Written, changes: dict[str, Any], environment: tuple[str, ...], words: str
) -> None:
    with pytest.raises(DeploymentError, match=words):
        planned(written(**changes), image(environment=environment))


def test_only_images_whose_words_matter_are_looked_at(written: Written) -> None:
    def never(uri: str) -> Any:
        raise AssertionError(uri)

    assert plan(read(written(), {}), never).models


def test_a_serverless_endpoint_has_memory_and_concurrency_and_nothing_else(written: Written) -> None:
    found = planned(written(**SERVERLESS))
    assert variant(found)["ServerlessConfig"] == {"MemorySizeInMB": 3072, "MaxConcurrency": 10}
    assert "InstanceType" not in variant(found)


def test_provisioned_concurrency_scales_by_its_use(written: Written) -> None:
    settings = {"memory_mb": 3072, "concurrency": 10, "provisioned_concurrency": 2}
    found = planned(written(kind="serverless", instances=None, serverless=settings, scaling={"max": 10, "utilization": 0.6}))
    policy = call(found, "PutScalingPolicy")
    assert policy["ScalableDimension"] == "sagemaker:variant:DesiredProvisionedConcurrency"
    assert policy["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] == 0.6
    with pytest.raises(DeploymentError, match="provisioned_concurrency"):
        planned(written(**SERVERLESS, scaling={"max": 10}))


def test_an_asynchronous_endpoint_tells_where_and_to_whom(written: Written) -> None:
    settings = {
        "output": "s3://bucket/out/",
        "failures": "s3://bucket/failed/",
        "concurrent_per_instance": 4,
        "success_topic": "arn:aws:sns:us-east-1:123456789012:good",
        "include_response_in": ["SUCCESS_NOTIFICATION_TOPIC"],
    }
    found = planned(written(kind="async", **{"async": settings}))
    assert found.config.parameters["AsyncInferenceConfig"] == {
        "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 4},
        "OutputConfig": {
            "S3OutputPath": "s3://bucket/out/",
            "S3FailurePath": "s3://bucket/failed/",
            "NotificationConfig": {
                "SuccessTopic": "arn:aws:sns:us-east-1:123456789012:good",
                "IncludeInferenceResponseIn": ["SUCCESS_NOTIFICATION_TOPIC"],
            },
        },
    }


def test_an_asynchronous_endpoint_goes_to_zero_and_comes_back_by_a_step(written: Written) -> None:
    found = planned(written(**ASYNC, scaling={"max": 3, "backlog_per_instance": 4}))
    assert operations(found)[3:] == ["RegisterScalableTarget", "PutScalingPolicy", "PutScalingPolicy", "PutMetricAlarm"]
    target, tracking, step, alarm = (each.parameters for each in found.scaling)
    assert (target["MinCapacity"], target["MaxCapacity"]) == (0, 3)
    followed = tracking["TargetTrackingScalingPolicyConfiguration"]
    assert followed["CustomizedMetricSpecification"]["MetricName"] == "ApproximateBacklogSizePerInstance"
    assert followed["TargetValue"] == 4
    assert step["StepScalingPolicyConfiguration"]["StepAdjustments"] == [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}]
    assert alarm["MetricName"] == "HasBacklogWithoutCapacity"
    assert alarm["Dimensions"] == [{"Name": "EndpointName", "Value": "sentences"}]
    assert step["PolicyName"] in alarm["AlarmActions"][0]


def test_an_asynchronous_endpoint_that_keeps_one_instance_needs_no_step(written: Written) -> None:
    found = planned(written(**ASYNC, scaling={"min": 1, "max": 3}))
    assert operations(found)[3:] == ["RegisterScalableTarget", "PutScalingPolicy"]


def test_a_load_test_becomes_half_its_rate_a_minute(written: Written, tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_text(json.dumps({"max_requests_per_s": 286.0}))
    found = planned(written(scaling={"min": 2, "max": 6, "load_test": "measured.json"}))
    policy = call(found, "PutScalingPolicy")["TargetTrackingScalingPolicyConfiguration"]
    assert policy["TargetValue"] == 286 * 0.5 * 60
    assert policy["PredefinedMetricSpecification"] == {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
    assert call(found, "RegisterScalableTarget")["ResourceId"] == "endpoint/sentences/variant/AllTraffic"


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), ("{}", "holds no max_requests_per_s"), ('{"max_requests_per_s": 0}', "nothing to scale by")],
)
def test_a_load_test_that_measured_nothing_is_refused(written: Written, tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "measured.json").write_text(content)
    with pytest.raises(DeploymentError, match=words):
        planned(written(scaling={"max": 6, "load_test": "measured.json"}))


def test_scaling_needs_something_to_aim_at(written: Written) -> None:
    with pytest.raises(DeploymentError, match=r"load_test: .* or per_minute"):
        planned(written(scaling={"max": 6}))


@pytest.mark.parametrize(("kind", "mode"), [("pipeline", "Serial"), ("multi-container", "Direct")])
def test_several_containers_hang_together_as_the_kind_says(written: Written, kind: str, mode: str) -> None:
    model = call(planned(written(kind=kind, **CHAIN)), "CreateModel")
    assert model["InferenceExecutionConfig"] == {"Mode": mode}
    assert [each["ContainerHostname"] for each in model["Containers"]] == ["first", "second"]
    assert "PrimaryContainer" not in model


@pytest.mark.parametrize("kind", ["pipeline", "multi-container"])
def test_a_container_that_cannot_move_its_port_is_refused(written: Written, kind: str) -> None:
    with pytest.raises(DeploymentError, match="no label accept-bind-to-port=true"):
        planned(written(kind=kind, **CHAIN), image(bound=False))


MANY = {"kind": "multi-model", "model": "s3://bucket/models/"}


def test_many_models_are_a_prefix_and_a_mode_of_their_container(written: Written) -> None:
    smoke = {"body": "{}", "target_model": "cats.tar.gz"}
    found = planned(written(**MANY, environment={"BYOC_EVICT_MODELS": True}, smoke=smoke), image(many=True))
    assert call(found, "CreateModel")["PrimaryContainer"] == {
        "Image": IMAGE,
        "Mode": "MultiModel",
        "ModelDataUrl": "s3://bucket/models/",
        "Environment": {"BYOC_EVICT_MODELS": "true"},
    }
    (asked,) = found.smoke
    assert asked.parameters["TargetModel"] == "cats.tar.gz"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({**MANY, "model": "s3://bucket/model.tar.gz"}, "prefix that ends in /"),
        ({**MANY, "model": None}, "prefix that ends in /"),
        ({**MANY, "smoke": {"body": "{}"}}, "target_model is missing"),
        ({"smoke": {"body": "{}", "target_model": "cats.tar.gz"}}, "target_model has no meaning for kind: real-time"),
    ],
)
def test_many_models_need_a_prefix_and_calls_that_name_one(written: Written, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DeploymentError, match=words):
        planned(written(**changes), image(many=True))


def test_an_image_that_does_not_say_it_serves_many_models_is_refused(written: Written) -> None:
    with pytest.raises(DeploymentError, match="no label multi-models=true"):
        planned(written(**MANY), image(many=False))


def test_components_share_the_instances_of_one_variant(written: Written) -> None:
    components = [
        {"name": "a", "image": "i", "model": "s3://bucket/a/", "memory_mb": 2048, "cpus": 1, "copies": 2},
        {"name": "b", "image": "i", "memory_mb": 1024, "scaling": {"min": 0, "max": 4, "per_minute": 300}},
    ]
    instances = {"type": "ml.c5.xlarge", "min": 0, "max": 3}
    inside = {"vpc": {"subnets": ["subnet-1"], "security_groups": ["sg-1"]}, "network_isolation": True}
    found = planned(written(kind="components", image=None, model=None, components=components, instances=instances, **inside))
    assert operations(found) == [
        *("CreateModel", "CreateModel", "CreateEndpointConfig", "CreateEndpoint"),
        *("CreateInferenceComponent", "CreateInferenceComponent"),
        *("RegisterScalableTarget", "PutScalingPolicy", "PutScalingPolicy", "PutMetricAlarm"),
    ]
    assert found.config.parameters["ExecutionRoleArn"].startswith("arn:")
    assert found.config.parameters["EnableNetworkIsolation"] is True
    assert "VpcConfig" in found.config.parameters
    assert not {"EnableNetworkIsolation", "VpcConfig"} & found.models[0].parameters.keys()
    assert "ModelName" not in variant(found)
    assert variant(found)["ManagedInstanceScaling"] == {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 3}
    first = found.components[0].parameters
    assert first["InferenceComponentName"] == "sentences-a"
    assert first["RuntimeConfig"] == {"CopyCount": 2}
    assert first["Specification"]["ComputeResourceRequirements"] == {
        "MinMemoryRequiredInMb": 2048,
        "NumberOfCpuCoresRequired": 1,
    }
    assert found.scaling[0].parameters["ResourceId"] == "inference-component/sentences-b"
    assert found.scaling[3].parameters["MetricName"] == "NoCapacityInvocationFailures"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"instances": {"type": "ml.c5.xlrage"}}, r"InstanceType is 'ml\.c5\.xlrage', accepted are ml\.c5\.xlarge"),
        ({"role": "me"}, "Invalid length for parameter ExecutionRoleArn"),
        ({"environment": {"A": "x" * 2000}}, r"Environment\.A is 2000 characters, at most 1024"),
        ({"instances": {"type": "ml.g5.xlarge", "ami": "windows"}}, "InferenceAmiVersion is 'windows'"),
        ({"update": {"RollingPolicy": {}}}, "RollingPolicy"),
    ],
)
def test_what_aws_would_refuse_is_refused_before_anything_is_sent(written: Written, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DeploymentError, match=words):
        planned(written(**changes), CPU)


def test_an_update_of_a_scaled_endpoint_keeps_its_instances_and_takes_its_weights(written: Written) -> None:
    scaled = planned(written(scaling={"max": 3, "per_minute": 60})).update.parameters
    assert scaled["RetainAllVariantProperties"] is True
    assert scaled["ExcludeRetainedVariantProperties"] == [
        {"VariantPropertyType": "DesiredWeight"},
        {"VariantPropertyType": "DataCaptureConfig"},
    ]
    assert "RetainAllVariantProperties" not in planned(written()).update.parameters
