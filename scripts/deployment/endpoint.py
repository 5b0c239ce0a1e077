"""CreateEndpointConfig, CreateEndpoint and UpdateEndpoint, for every kind of endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deployment import names
from deployment.calls import Call
from deployment.description import Description, Kind, Variant
from deployment.errors import DeploymentError
from deployment.hosts import has_gpu, host_image, newest
from deployment.images import Image
from deployment.model import network, with_containers


def create_endpoint_config(description: Description, models: Mapping[str, Call], images: Mapping[str, Image]) -> Call:
    """The configuration, with a name that tells its content; `images` holds those of `needed_images`. Raises DeploymentError."""
    raw = description.raw
    parameters: dict[str, Any] = {
        "ProductionVariants": [production_variant(description, each, models, images) for each in description.variants]
    }
    if "data_capture" in raw:
        parameters["DataCaptureConfig"] = data_capture(raw["data_capture"])
    if description.kind is Kind.ASYNC:
        parameters["AsyncInferenceConfig"] = asynchronous(raw["async"])
    if "kms_key" in raw:
        parameters["KmsKeyId"] = raw["kms_key"]
    if description.kind is Kind.COMPONENTS:
        parameters |= {"ExecutionRoleArn": description.role, **network(description)}
    name = names.by_content(description.name, parameters)
    tags = names.tags(description.name, description.tags)
    return Call("sagemaker", "CreateEndpointConfig", {"EndpointConfigName": name, **parameters, "Tags": tags})


def create_endpoint(description: Description, config: Call) -> Call:
    """The endpoint itself, under the description's own name."""
    return Call(
        "sagemaker",
        "CreateEndpoint",
        {
            "EndpointName": description.name,
            "EndpointConfigName": config.parameters["EndpointConfigName"],
            **({"DeploymentConfig": description.raw["update"]} if "update" in description.raw else {}),
            "Tags": names.tags(description.name, description.tags),
        },
    )


def update_endpoint(description: Description, config: Call, scaled: bool) -> Call:
    """The same for one that is there. A scaled endpoint keeps the number of instances that scaling gave it."""
    parameters: dict[str, Any] = {
        "EndpointName": description.name,
        "EndpointConfigName": config.parameters["EndpointConfigName"],
    }
    if scaled:
        parameters["RetainAllVariantProperties"] = True
        parameters["ExcludeRetainedVariantProperties"] = [
            {"VariantPropertyType": kept} for kept in ("DesiredWeight", "DataCaptureConfig")
        ]
    if "update" in description.raw:
        parameters["DeploymentConfig"] = description.raw["update"]
    return Call("sagemaker", "UpdateEndpoint", parameters)


def needed_images(description: Description) -> set[str]:
    """The images whose own words decide something, so that no others are looked at."""
    if description.kind in (Kind.PIPELINE, Kind.MULTI_CONTAINER, Kind.MULTI_MODEL, Kind.SERVERLESS):
        return {container.image for container in description.containers}
    gpu = [variant for variant in description.variants if variant.instances and has_gpu(variant.instances.type)]
    if description.kind is Kind.COMPONENTS:
        return {container.image for container in description.containers} if gpu else set()
    return {container.image for variant in gpu for container in variant.containers}


def check_images(description: Description, images: Mapping[str, Image]) -> None:
    """Raises DeploymentError for an image that this kind of endpoint cannot run."""
    for image in images.values():
        if description.kind is Kind.SERVERLESS and image.gpu:
            raise DeploymentError(f"{image.uri} needs a GPU and serverless endpoints have none: use the CPU image")
        if description.kind in (Kind.PIPELINE, Kind.MULTI_CONTAINER) and not image.binds_to_port:
            raise DeploymentError(
                f"{image.uri} has no label accept-bind-to-port=true: every container of kind: {description.kind} "
                "must serve on the port that it is given"
            )
        if description.kind is Kind.MULTI_MODEL and not image.multi_models:
            raise DeploymentError(f"{image.uri} has no label multi-models=true: kind: multi-model needs an image that says so")


def production_variant(
    description: Description, variant: Variant, models: Mapping[str, Call], images: Mapping[str, Image]
) -> dict[str, Any]:
    """A ProductionVariant. Raises DeploymentError when its instances do not fit its images."""
    raw = description.raw
    found: dict[str, Any] = {"VariantName": variant.name}
    if variant in with_containers(description):
        found["ModelName"] = models[variant.name].parameters["ModelName"]
        found["InitialVariantWeight"] = variant.weight
    if description.kind is Kind.SERVERLESS:
        settings = raw["serverless"]
        found["ServerlessConfig"] = {"MemorySizeInMB": settings["memory_mb"], "MaxConcurrency": settings["concurrency"]}
        if "provisioned_concurrency" in settings:
            found["ServerlessConfig"]["ProvisionedConcurrency"] = settings["provisioned_concurrency"]
        return found
    found |= on_instances(description, variant, images)
    if "timeouts" in raw and description.kind is not Kind.COMPONENTS:
        found |= timeouts(raw["timeouts"])
    if "routing" in raw:
        found["RoutingConfig"] = {"RoutingStrategy": raw["routing"]}
    return found


def on_instances(description: Description, variant: Variant, images: Mapping[str, Image]) -> dict[str, Any]:
    """Type, number, disk and host image. Several images on one host get the newest of the hosts they need."""
    instances = variant.instances
    if instances is None:
        raise DeploymentError(f"variant {variant.name} has no instances: write instances: type:")
    found: dict[str, Any] = {"InstanceType": instances.type, "InitialInstanceCount": instances.count}
    if instances.volume_gb:
        found["VolumeSizeInGB"] = instances.volume_gb
    if instances.maximum is not None:
        found["ManagedInstanceScaling"] = {
            "Status": "ENABLED",
            "MinInstanceCount": instances.count if instances.minimum is None else instances.minimum,
            "MaxInstanceCount": instances.maximum,
        }
    containers = variant.containers or description.containers
    hosts = [host_image(instances, images[each.image]) for each in containers if each.image in images]
    chosen = instances.ami or newest(hosts)
    if chosen:
        found["InferenceAmiVersion"] = chosen
    return found


def timeouts(written: Mapping[str, int]) -> dict[str, int]:
    """For downloading the model and for the first 200 of /ping, in seconds."""
    words = {
        "model_download_s": "ModelDataDownloadTimeoutInSeconds",
        "health_check_s": "ContainerStartupHealthCheckTimeoutInSeconds",
    }
    return {words[key]: value for key, value in written.items()}


def data_capture(written: Mapping[str, Any]) -> dict[str, Any]:
    """DataCaptureConfig; without a percentage everything is captured, both ways."""
    found: dict[str, Any] = {
        "EnableCapture": True,
        "InitialSamplingPercentage": written.get("percentage", 100),
        "DestinationS3Uri": written["output"],
        "CaptureOptions": [{"CaptureMode": mode} for mode in written.get("modes", ["Input", "Output"])],
    }
    headers = {
        word: written[key]
        for key, word in (("json_content_types", "JsonContentTypes"), ("csv_content_types", "CsvContentTypes"))
        if key in written
    }
    if headers:
        found["CaptureContentTypeHeader"] = headers
    if "kms_key" in written:
        found["KmsKeyId"] = written["kms_key"]
    return found


def asynchronous(written: Mapping[str, Any]) -> dict[str, Any]:
    """AsyncInferenceConfig: where answers go, who is told, and how many requests an instance gets at once."""
    output: dict[str, Any] = {"S3OutputPath": written["output"]}
    if "failures" in written:
        output["S3FailurePath"] = written["failures"]
    if "kms_key" in written:
        output["KmsKeyId"] = written["kms_key"]
    notified = {
        word: written[key]
        for key, word in (
            ("success_topic", "SuccessTopic"),
            ("error_topic", "ErrorTopic"),
            ("include_response_in", "IncludeInferenceResponseIn"),
        )
        if key in written
    }
    if notified:
        output["NotificationConfig"] = notified
    found: dict[str, Any] = {"OutputConfig": output}
    if "concurrent_per_instance" in written:
        found["ClientConfig"] = {"MaxConcurrentInvocationsPerInstance": written["concurrent_per_instance"]}
    return found
