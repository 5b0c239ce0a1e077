"""An endpoint as data: its variants or components, their containers, and how many of them there may be.

Reading it from YAML is `reading`'s work; what it means to AWS is that of `model`, `endpoint`, `components` and `autoscaling`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Kind(StrEnum):
    """The ways in which SageMaker keeps a model ready."""

    REAL_TIME = "real-time"
    SERVERLESS = "serverless"
    ASYNC = "async"
    PIPELINE = "pipeline"
    MULTI_CONTAINER = "multi-container"
    MULTI_MODEL = "multi-model"
    COMPONENTS = "components"


SEVERAL_CONTAINERS = (Kind.PIPELINE, Kind.MULTI_CONTAINER)


@dataclass(frozen=True, slots=True)
class Container:
    """An image, its artefact in S3 and its settings. ``model`` ends in / when it is a prefix of plain files."""

    image: str
    model: str | None
    environment: Mapping[str, str]
    hostname: str | None = None


@dataclass(frozen=True, slots=True)
class Instances:
    """``ami`` is the image of the host; None leaves the choice to the CUDA of the container's image.

    With ``maximum`` SageMaker itself adds and removes instances as the copies of components need them.
    """

    type: str
    count: int = 1
    minimum: int | None = None
    maximum: int | None = None
    volume_gb: int | None = None
    ami: str | None = None


@dataclass(frozen=True, slots=True)
class Scaling:
    """Limits in instances (copies, for a component); ``None`` leaves a target to the kind of endpoint."""

    minimum: int
    maximum: int
    load_test: Path | None = None
    per_minute: float | None = None
    utilization: float = 0.7
    backlog_per_instance: float = 5.0
    out_s: int = 60
    in_s: int = 300


@dataclass(frozen=True, slots=True)
class Variant:
    """One model's share of the traffic. Serverless variants have no instances, those for components no containers."""

    name: str
    weight: float
    containers: tuple[Container, ...]
    instances: Instances | None
    scaling: Scaling | None


@dataclass(frozen=True, slots=True)
class Component:
    """A model with its share of an instance: megabytes, CPUs and accelerators of each copy."""

    name: str
    container: Container
    memory_mb: int
    cpus: float | None
    accelerators: float | None
    copies: int
    scaling: Scaling | None


@dataclass(frozen=True, slots=True)
class Smoke:
    """The call that shows that the endpoint answers. ``target_model`` is an archive below a multi-model endpoint's prefix."""

    body: bytes
    content_type: str
    accept: str | None
    target_model: str | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """Everything about one endpoint. ``raw`` holds the sections that translate word by word."""

    name: str
    kind: Kind
    role: str
    region: str | None
    variants: tuple[Variant, ...]
    components: tuple[Component, ...]
    tags: Mapping[str, str]
    smoke: Smoke | None
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def containers(self) -> tuple[Container, ...]:
        """All of them, those of components included."""
        own = tuple(container for variant in self.variants for container in variant.containers)
        return own + tuple(component.container for component in self.components)
