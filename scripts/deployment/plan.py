"""A description turned into the calls that make it real, in their order and checked, before any of them is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deployment.autoscaling import scaling
from deployment.calls import Call, check
from deployment.components import create_components
from deployment.dashboard import dashboard
from deployment.description import Description
from deployment.endpoint import check_images, create_endpoint, create_endpoint_config, needed_images, update_endpoint
from deployment.images import Image
from deployment.model import models
from deployment.smoke import smoke_calls


@dataclass(frozen=True, slots=True)
class Plan:
    """What makes a new endpoint; ``smoke`` are the calls that show that it answers."""

    description: Description
    models: tuple[Call, ...]
    config: Call
    endpoint: Call
    components: tuple[Call, ...]
    scaling: tuple[Call, ...]
    dashboard: Call | None
    smoke: tuple[Call, ...]

    @property
    def calls(self) -> tuple[Call, ...]:
        """All, in the order in which they are sent."""
        return (*self.resources, *self.smoke)

    @property
    def resources(self) -> tuple[Call, ...]:
        """Those that make something."""
        shown = (self.dashboard,) if self.dashboard else ()
        return (*self.models, self.config, self.endpoint, *self.components, *self.scaling, *shown)

    @property
    def update(self) -> Call:
        """What replaces CreateEndpoint where the endpoint is there already."""
        scaled = any(variant.scaling for variant in self.description.variants)
        return update_endpoint(self.description, self.config, scaled)


def plan(description: Description, inspect: Callable[[str], Image], region: str | None = None) -> Plan:
    """Everything, checked against the services' own models; `inspect` reads an image, `region` is the session's.

    Raises DeploymentError.
    """
    images = {uri: inspect(uri) for uri in sorted(needed_images(description))}
    check_images(description, images)
    made = models(description)
    config = create_endpoint_config(description, made, images)
    planned = Plan(
        description=description,
        models=tuple({call.parameters["ModelName"]: call for call in made.values()}.values()),
        config=config,
        endpoint=create_endpoint(description, config),
        components=create_components(description, made),
        scaling=scaling(description),
        dashboard=dashboard(description, region),
        smoke=smoke_calls(description),
    )
    for call in (*planned.calls, planned.update):
        check(call)
    return planned
