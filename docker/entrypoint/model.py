"""The artefact as TorchServe will load it: a directory of links with our manifest and one merged model-config.yaml.

TorchServe takes batch size and delay only from a model's own YAML, and the artefact is read-only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from batch_handler.artefact import (
    CODE,
    HANDLER,
    PACKAGED_HANDLER,
    PROGRAM,
    Artefact,
    ArtefactError,
    Kind,
    declares,
    default_task,
    detect,
    script_file,
)
from entrypoint import archive

NAME = "model"
VERSION = "1.0"
MODEL_CONFIG = "model-config.yaml"
REQUIREMENTS = "requirements.txt"
# Our archives carry their own copy of the handler so that they run elsewhere too; here the image's is used.
PACKAGED_CODE = ("batch_handler", PACKAGED_HANDLER)
REPLACED = ("MAR-INF", MODEL_CONFIG)
# TorchServe 0.12: the first hangs with batches, the second never answers, the third installs at start.
UNUSABLE_KEYS = ("asyncCommunication", "clientTimeoutInMills", "useVenv")


@dataclass(frozen=True, slots=True)
class Source:
    """An artefact opened for serving: its files in ``directory``, its ``size`` in bytes, what its own YAML says."""

    artefact: Artefact
    directory: Path
    size: int
    manifest: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    program: str = PROGRAM

    @property
    def ours(self) -> bool:
        """Whether the project's own handler serves it."""
        return self.artefact.kind is not Kind.ARCHIVE or self.manifest["handler"] == PACKAGED_HANDLER

    @property
    def script(self) -> Path | None:
        """The user's script that our handler runs, when that is what it is."""
        return script_file(self.directory, self.program) if self.ours else None

    @property
    def requirements(self) -> Path | None:
        """The list of Python packages that its own code needs: a script's beside it, an archive's by its manifest."""
        if self.script:
            path = self.directory / CODE / REQUIREMENTS
        else:
            path = self.directory / str(self.manifest.get("requirementsFile") or REQUIREMENTS)
        return path if path.is_file() and (self.script or not self.ours) else None

    @property
    def shares_weights(self) -> bool:
        """Whether the threads of one worker serve all requests; foreign handlers and plain scripts know one at a time."""
        return self.ours and (self.script is None or declares(self.script, "THREAD_SAFE"))

    @property
    def task(self) -> str | None:
        """What the files say that the model does; None for a script or a foreign handler, which alone know."""
        if not self.ours or self.script:
            return None
        return self.artefact.task or default_task(self.directory)

    @property
    def handler(self) -> str:
        """What TorchServe is told to load."""
        return HANDLER if self.ours else str(self.manifest["handler"])

    @property
    def unusable_keys(self) -> list[str]:
        """Keys of the artefact's YAML that are left out because TorchServe breaks with them."""
        return [key for key in UNUSABLE_KEYS if self.config.get(key)]


def open_artefact(artefact: Artefact, work: Path, program: str = PROGRAM) -> Source:
    """Unpack an archive, read its manifest and the YAML. Raises ArtefactError."""
    if artefact.kind is not Kind.ARCHIVE:
        size = sum(path.stat().st_size for path in artefact.path.rglob("*") if path.is_file())
        return Source(artefact, artefact.path, size, config=read_config(artefact.path / MODEL_CONFIG), program=program)
    directory = work / "archive"
    size = archive.unpack(artefact.path, directory)
    manifest = archive.read_manifest(artefact.path, directory)
    named = manifest.get("configFile")
    try:
        config = read_config(directory / str(named), required=True) if named else {}
        if manifest["handler"] == PACKAGED_HANDLER:
            detect(directory, program=program)
    except ArtefactError as error:
        # The reader knows the archive, not where it was unpacked.
        raise ArtefactError(str(error).replace(str(directory), str(artefact.path))) from None
    return Source(artefact, directory, size, manifest, config, program)


def read_config(path: Path, required: bool = False) -> dict[str, Any]:
    """The YAML as a mapping; empty when there is no file. Raises ArtefactError when it is not one."""
    if not path.is_file() and not required:
        return {}
    try:
        value = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        place = f", line {where.line + 1}" if where else ""
        raise ArtefactError(f"{path} is not valid YAML{place}") from None
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from None
    if not isinstance(value, dict | None):
        raise ArtefactError(f"{path} must hold keys and values, such as batchSize: 8")
    return {str(key): entry for key, entry in (value or {}).items()}


def build(source: Source, effective: Mapping[str, int], directory: Path) -> None:
    """Write the directory; ``effective`` are TorchServe's keys with the values that settings and machine give them."""
    directory.mkdir()
    left_out = REPLACED + (PACKAGED_CODE if source.ours else ())
    for entry in source.directory.iterdir():
        if entry.name not in left_out:
            (directory / entry.name).symlink_to(entry)
    config = {key: value for key, value in source.config.items() if key not in UNUSABLE_KEYS} | dict(effective)
    (directory / MODEL_CONFIG).write_text(yaml.safe_dump(config, sort_keys=True, allow_unicode=True), "utf-8")
    model = dict(source.manifest) | {
        "modelName": NAME,
        "modelVersion": VERSION,
        "handler": source.handler,
        "configFile": MODEL_CONFIG,
    }
    manifest = {"createdOn": "", "archiverVersion": "", "runtime": "python", "model": model}
    (directory / "MAR-INF").mkdir()
    (directory / archive.MANIFEST).write_text(json.dumps(manifest, indent=2), "utf-8")
