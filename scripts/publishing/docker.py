"""The Docker client: which one, what it can do, and the images it builds and pushes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from publishing.errors import PublishingError

PROVENANCE = "--provenance"
SETUP = Path(__file__).resolve().parents[2] / "docker" / "setup.sh"
BUILDKIT = {"DOCKER_BUILDKIT": "1"}


@dataclass(frozen=True, slots=True)
class Client:
    """A Docker client on the PATH. ``leaves_provenance_out`` where it knows how to push without attestations."""

    program: str
    leaves_provenance_out: bool

    def run(self, *arguments: str, given: str | None = None, settings: Mapping[str, str] | None = None) -> str:
        """What the command printed; its own words in a PublishingError when it fails. `given` goes to its standard input."""
        found = subprocess.run(
            [self.program, *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **BUILDKIT, **(settings or {})},
        )
        if found.returncode != 0:
            words = (found.stderr or found.stdout).strip().splitlines() or ["it said nothing"]
            raise PublishingError(f"docker {arguments[0]} failed: {words[-1]}")
        return found.stdout


def client() -> Client:
    """The first client on the PATH that builds with BuildKit. Raises PublishingError."""
    for program in candidates():
        printed = subprocess.run(
            [program, "build", "--help"], capture_output=True, text=True, check=False, env={**os.environ, **BUILDKIT}
        ).stdout
        if "--secret" in printed:
            return Client(program, PROVENANCE in printed)
    raise PublishingError("no docker client with BuildKit is on the PATH; on Debian 12: apt-get install docker.io")


def candidates() -> Iterator[str]:
    """Every program called docker, in the order of the PATH."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        program = shutil.which("docker", path=folder)
        if program:
            yield program


def build(device: str, platform: str, flags: Sequence[str]) -> None:
    """`make image` for one platform, its progress on standard error. Raises PublishingError."""
    words = " ".join(["--platform", platform, *flags])
    settings = {**os.environ, "DOCKER_BUILD_FLAGS": f"{os.environ.get('DOCKER_BUILD_FLAGS', '')} {words}".strip()}
    settings.pop("TRANSFORMERS", None)  # it would give the image another name than the one that is pushed
    if subprocess.run([str(SETUP), "image", device], check=False, env=settings, stdout=2).returncode != 0:
        raise PublishingError(f"the {device} image was not built: the lines above say why")


def build_flags(docker: Client) -> list[str]:
    """What keeps attestations, which SageMaker's registry side refuses, out of the image."""
    return [f"{PROVENANCE}=false"] if docker.leaves_provenance_out else []


def described(docker: Client, image: str) -> dict[str, Any]:
    """Docker's description of a local image. Raises PublishingError."""
    try:
        found: list[dict[str, Any]] = json.loads(docker.run("image", "inspect", image))
    except PublishingError:
        raise PublishingError(f"there is no image {image} here: build it first, or leave --image out") from None
    return found[0]


@contextmanager
def logged_in(docker: Client, registry: str, user: str, password: str) -> Iterator[Mapping[str, str]]:
    """Settings under which the client is logged in; the password goes to its standard input and to a folder that vanishes.

    A configuration of one's own would hide the user's context, so that the engine's address is asked for first.
    """
    host = os.environ.get("DOCKER_HOST") or docker.run("context", "inspect", "--format", "{{.Endpoints.docker.Host}}").strip()
    with tempfile.TemporaryDirectory(prefix="docker-config-") as folder:
        settings = {"DOCKER_CONFIG": folder, "DOCKER_HOST": host}
        docker.run("login", "--username", user, "--password-stdin", registry, given=password, settings=settings)
        yield settings
