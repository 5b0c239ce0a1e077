"""Where the parts of an installation lie: /opt/byoc in the image, build/home (links) in a checkout."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from entrypoint.failure import StartError


@dataclass(frozen=True, slots=True)
class Home:
    """Paths below one root. Nothing is resolved: in a checkout the parts are links, and only the root knows all."""

    root: Path

    @property
    def configuration(self) -> Path:
        """The config.properties that users edit."""
        return self.root / "config" / "config.properties"

    @property
    def log_configuration(self) -> Path:
        """log4j2's configuration."""
        return self.root / "config" / "log4j2.xml"

    @property
    def metrics(self) -> Path:
        """TorchServe's metrics file."""
        return self.root / "config" / "metrics.yaml"

    @property
    def library(self) -> Path:
        """The Python packages and the jar of this project."""
        return self.root / "lib"

    @property
    def native(self) -> Path:
        """Netty's native library, laid out at build time because a noexec /tmp cannot hold it."""
        return self.library / "native"

    @property
    def python(self) -> Path:
        """The worker's interpreter."""
        return self.root / "venv" / "bin" / "python"

    @property
    def program(self) -> Path:
        """This very program."""
        return self.root / "bin" / "entrypoint"

    def java(self) -> Path:
        """The image's own runtime, else the machine's. Raises StartError when there is none."""
        bundled = self.root / "jre" / "bin" / "java"
        found = bundled if bundled.exists() else shutil.which("java")
        if found is None:
            raise StartError(f"there is no Java, neither {bundled} nor on the PATH: install openjdk-17-jre-headless")
        return Path(found)

    def torchserve(self) -> Path:
        """The directory that holds TorchServe's ``ts`` package. Raises StartError when it is not installed."""
        found = sorted(self.root.glob("venv/lib/python3*/site-packages/ts/frontend/model-server.jar"))
        if not found:
            raise StartError(f"there is no TorchServe in {self.root / 'venv'}: its environment is incomplete")
        return found[-1].parents[2]

    def class_path(self) -> list[Path]:
        """What is built on TorchServe, newer jars than it bundles, itself; never the current directory. Raises StartError."""
        ours = self.library / "byoc-endpoints.jar"
        if not ours.exists():
            raise StartError(f"{ours} is missing: build the frontend first")
        newer = sorted((self.library / "jars").glob("*.jar"))
        return [ours, *newer, self.torchserve() / "ts" / "frontend" / "model-server.jar"]


def find() -> Home:
    """The home that this very file was imported from: <home>/lib/entrypoint/home.py, links unresolved."""
    return Home(Path(__file__).absolute().parents[2])
