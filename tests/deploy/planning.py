"""Plans without AWS: images that say what a test lets them say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deployment.images import Image
from deployment.images import read as read_image
from deployment.plan import Plan, plan
from deployment.reading import read

LABEL = "com.amazonaws.sagemaker.capabilities.accept-bind-to-port"
MULTI_MODELS = "com.amazonaws.sagemaker.capabilities.multi-models"
ASYNC = {"kind": "async", "async": {"output": "s3://bucket/out/"}}
SERVERLESS = {"kind": "serverless", "instances": None, "serverless": {"memory_mb": 3072, "concurrency": 10}}
CHAIN = {"containers": [{"hostname": "first", "model": "s3://bucket/1/"}, {"hostname": "second"}]}


def image(uri: str = "image", bound: bool = True, many: bool = False, environment: tuple[str, ...] = ()) -> Image:
    """An image as its configuration describes it."""
    labels = ({LABEL: "true"} if bound else {}) | ({MULTI_MODELS: "true"} if many else {})
    return read_image(uri, {"architecture": "amd64", "config": {"Labels": labels, "Env": list(environment)}})


CPU = image()


def planned(path: Path, inspected: Image = CPU) -> Plan:
    """The plan of a description's file, all of whose images are the one given."""
    return plan(read(path, {}), lambda _: inspected)


def operations(found: Plan) -> list[str]:
    """What would be called, in order."""
    return [call.operation for call in found.calls]


def variant(found: Plan, number: int = 0) -> dict[str, Any]:
    """A ProductionVariant of the plan."""
    chosen: dict[str, Any] = found.config.parameters["ProductionVariants"][number]
    return chosen
