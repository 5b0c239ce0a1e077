"""Which host an image needs: its driver by the image's CUDA, its accelerators by the instance's family."""

from __future__ import annotations

import re
from collections.abc import Iterable

from deployment.description import Instances
from deployment.errors import DeploymentError
from deployment.images import Image

# ProductionVariant's page: the newest CUDA that the driver of each host image runs. In the order of their age.
HOSTS = {
    "al2-ami-sagemaker-inference-gpu-2-1": (12, 2),
    "al2-ami-sagemaker-inference-gpu-3-1": (12, 4),
    "al2023-ami-sagemaker-inference-gpu-4-1": (13, 0),
}
# Without InferenceAmiVersion these families have drivers for CUDA 11.4 or 12.2, by the page on GPU drivers.
GPU_FAMILY = re.compile(r"ml\.(p\d+|g\d+)[a-z]*\.")


def has_gpu(instance_type: str) -> bool:
    """Whether the instances of this type have NVIDIA GPUs."""
    return GPU_FAMILY.match(instance_type) is not None


def newest(hosts: Iterable[str | None]) -> str | None:
    """The one that runs the CUDA of all of them."""
    return max(filter(None, hosts), key=tuple(HOSTS).index, default=None)


def host_image(instances: Instances, image: Image) -> str | None:
    """The oldest InferenceAmiVersion whose driver runs the image's CUDA; None where the user chose one or nothing needs a GPU.

    Raises DeploymentError where a GPU image has no GPU, does not name its CUDA, or needs a newer one than there is.
    """
    if not has_gpu(instances.type):
        if image.gpu:
            raise DeploymentError(f"{image.uri} needs a GPU and {instances.type} has none: choose an ml.g or ml.p type")
        return None
    if instances.ami or not image.gpu:
        return None
    if image.cuda is None:
        raise DeploymentError(
            f"{image.uri} does not say its CUDA version (CUDA_VERSION is not set in it): "
            f"set instances: ami: to one of {', '.join(HOSTS)}"
        )
    for host, cuda in HOSTS.items():
        if cuda >= image.cuda:
            return host
    major, minor = image.cuda
    raise DeploymentError(f"{image.uri} holds CUDA {major}.{minor}, which no host image of SageMaker runs: use an older one")
