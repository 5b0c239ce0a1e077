"""CreateInferenceComponent and UpdateInferenceComponent: several models on the instances of one endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deployment import names
from deployment.calls import Call
from deployment.description import Component, Description
from deployment.endpoint import timeouts


def create_components(description: Description, models: Mapping[str, Call]) -> tuple[Call, ...]:
    """One call a component, in the order of the description."""
    return tuple(create_component(description, each, models[each.name]) for each in description.components)


def create_component(description: Description, component: Component, model: Call) -> Call:
    """A model with the share of an instance that each of its copies gets."""
    resources: dict[str, Any] = {"MinMemoryRequiredInMb": component.memory_mb}
    if component.cpus is not None:
        resources["NumberOfCpuCoresRequired"] = component.cpus
    if component.accelerators is not None:
        resources["NumberOfAcceleratorDevicesRequired"] = component.accelerators
    specification: dict[str, Any] = {"ModelName": model.parameters["ModelName"], "ComputeResourceRequirements": resources}
    if "timeouts" in description.raw:
        specification["StartupParameters"] = timeouts(description.raw["timeouts"])
    return Call(
        "sagemaker",
        "CreateInferenceComponent",
        {
            "InferenceComponentName": component.name,
            "EndpointName": description.name,
            "VariantName": description.variants[0].name,
            "Specification": specification,
            "RuntimeConfig": {"CopyCount": component.copies},
            "Tags": names.tags(description.name, description.tags),
        },
    )


def update_component(create: Call, scaled: bool) -> Call:
    """The same for one that is there. A scaled component keeps the number of copies that scaling gave it."""
    kept = ("InferenceComponentName", "Specification", *(() if scaled else ("RuntimeConfig",)))
    return Call("sagemaker", "UpdateInferenceComponent", {key: create.parameters[key] for key in kept})
