"""CreateModel: containers, where their artefacts lie, and how they hang together."""

from __future__ import annotations

from typing import Any

from deployment import names
from deployment.calls import Call
from deployment.description import Container, Description, Kind, Variant

MODES = {Kind.PIPELINE: "Serial", Kind.MULTI_CONTAINER: "Direct"}


def create_model(description: Description, containers: tuple[Container, ...]) -> Call:
    """The model of one variant or component. Its name tells its content."""
    parameters: dict[str, Any] = {"ExecutionRoleArn": description.role}
    if description.kind in MODES:
        parameters["Containers"] = [definition(container) for container in containers]
        parameters["InferenceExecutionConfig"] = {"Mode": MODES[description.kind]}
    else:
        parameters["PrimaryContainer"] = (many if description.kind is Kind.MULTI_MODEL else definition)(containers[0])
    if description.kind is not Kind.COMPONENTS:  # there the endpoint's configuration says so for all of them
        parameters |= network(description)
    return Call(
        "sagemaker",
        "CreateModel",
        {
            "ModelName": names.by_content(description.name, parameters),
            **parameters,
            "Tags": names.tags(description.name, description.tags),
        },
    )


def network(description: Description) -> dict[str, Any]:
    """Subnets and isolation, in words that CreateModel and CreateEndpointConfig share."""
    found: dict[str, Any] = {}
    vpc = description.raw.get("vpc")
    if vpc:
        found["VpcConfig"] = {"SecurityGroupIds": vpc["security_groups"], "Subnets": vpc["subnets"]}
    if description.raw.get("network_isolation"):
        found["EnableNetworkIsolation"] = True
    return found


def definition(container: Container) -> dict[str, Any]:
    """A ContainerDefinition. A model that ends in / is a prefix of plain files, which SageMaker copies as they are."""
    defined: dict[str, Any] = {"Image": container.image}
    if container.hostname:
        defined["ContainerHostname"] = container.hostname
    if container.model and container.model.endswith("/"):
        source = {"S3Uri": container.model, "S3DataType": "S3Prefix", "CompressionType": "None"}
        defined["ModelDataSource"] = {"S3DataSource": source}
    elif container.model:
        defined["ModelDataUrl"] = container.model
    if container.environment:
        defined["Environment"] = dict(container.environment)
    return defined


def many(container: Container) -> dict[str, Any]:
    """A ContainerDefinition whose models are the archives below a prefix, each loaded when it is first called."""
    defined: dict[str, Any] = {"Image": container.image, "Mode": "MultiModel", "ModelDataUrl": container.model}
    if container.environment:
        defined["Environment"] = dict(container.environment)
    return defined


def models(description: Description) -> dict[str, Call]:
    """CreateModel by the name of the variant or component that it is for."""
    made = {variant.name: create_model(description, variant.containers) for variant in with_containers(description)}
    for component in description.components:
        made[component.name] = create_model(description, (component.container,))
    return made


def with_containers(description: Description) -> list[Variant]:
    """The variants that serve a model of their own."""
    return [variant for variant in description.variants if variant.containers]
