"""An artefact's own Python packages, installed beside the image's before java starts.

Wheels come from the artefact (``wheels/`` beside its requirements.txt); an index is asked only when BYOC_ALLOW_INSTALL
says so. Nothing of the image's environment is changed: what is added lies in a directory of this start.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from entrypoint.failure import BAD_ARTEFACT, StartError

WHEELS = "wheels"
SITE = "site"
NO_PIP = "no module named pip"
LIMIT_S = 600
QUIET = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_NO_CACHE_DIR": "1"}
ERROR = re.compile(r"^ERROR: (?!Exception)(.+)$", re.MULTILINE)


def install(listed: Path, python: Path, work: Path, environment: Mapping[str, str], allowed: bool) -> Path | None:
    """Install what the file `listed` names and the image lacks; where it lies, or None when nothing is added.

    Raises StartError that names the package.
    """
    if satisfied(listed):
        return None
    wheels = listed.parent / WHEELS
    sources = ["--find-links", str(wheels)] if wheels.is_dir() else []
    sources += [] if allowed else ["--no-index"]
    site = work / SITE
    pip = _Pip(listed, python, {**environment, **QUIET, "TMPDIR": str(work / "pip"), "HOME": str(work)}, allowed)
    (work / "pip").mkdir()
    # pip installs into a directory without a look at what is there; resolving first leaves out what the image has.
    report = pip("install", "--quiet", "--dry-run", "--report", "-", *sources, "--requirement", str(listed))
    missing = [f"{item['metadata']['name']}=={item['metadata']['version']}" for item in json.loads(report)["install"]]
    if not missing:
        return None
    pip("install", "--quiet", "--no-deps", "--target", str(site), *sources, *missing)
    _check_executable(site, work)
    return site


def satisfied(listed: Path) -> bool:
    """Whether the image has all of it already. False where only pip can tell (options, links, markers of extras)."""
    try:
        wanted = [Requirement(line) for line in _lines(listed)]
    except (InvalidRequirement, OSError, UnicodeDecodeError):
        return False
    return all(_installed(one) for one in wanted if one.marker is None or one.marker.evaluate())


def _lines(listed: Path) -> Iterator[str]:
    for line in listed.read_text("utf-8").splitlines():
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if text:
            yield text


def _installed(wanted: Requirement) -> bool:
    if wanted.extras or wanted.url:
        return False
    try:
        return wanted.specifier.contains(importlib.metadata.version(wanted.name), prereleases=True)
    except importlib.metadata.PackageNotFoundError:
        return False


class _Pip:
    """pip of the worker's interpreter, in an environment that no setting of the image's user leads astray."""

    def __init__(self, listed: Path, python: Path, environment: Mapping[str, str], allowed: bool) -> None:
        self._listed = listed
        self._python = python
        self._environment = environment
        self._allowed = allowed

    def __call__(self, *arguments: str) -> str:
        command: Sequence[str] = [str(self._python), "-m", "pip", *arguments]
        try:
            done = subprocess.run(  # noqa: S603 -- our own interpreter's pip
                command,
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self._failure(f"pip did not end within {LIMIT_S} s") from None
        if done.returncode:
            raise self._failure(self._reason(done.stderr))
        return done.stdout

    def _reason(self, said: str) -> str:
        if NO_PIP in said.lower():
            return f"this installation has no pip, and not all that it names is here: {', '.join(_missing(self._listed))}"
        errors = ERROR.findall(said)
        named = [error for error in errors if "No matching distribution" in error]
        return " ".join(([*named, *errors] or said.strip().splitlines()[-1:] or ["pip failed"])[0].split())

    def _failure(self, reason: str) -> StartError:
        where = f"put its wheel into {WHEELS}/ beside it" if not self._allowed else "check the name, the version and the network"
        also = "" if self._allowed else ", or set BYOC_ALLOW_INSTALL=true to ask a package index"
        return StartError(f"{self._listed} cannot be installed: {reason}: {where}{also}", BAD_ARTEFACT)


def _missing(listed: Path) -> list[str]:
    names = []
    for line in _lines(listed):
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            continue
        if not _installed(wanted):
            names.append(wanted.name)
    return names


def _check_executable(site: Path, work: Path) -> None:
    """Compiled packages map their libraries as executable, which a file system mounted noexec refuses."""
    libraries = sorted(site.rglob("*.so"))
    if libraries and os.statvfs(work).f_flag & os.ST_NOEXEC:
        package = libraries[0].relative_to(site).parts[0]
        raise StartError(
            f"{package} of the artefact's requirements is compiled, and {work.parent} is mounted noexec: "
            f"mount it executable (--tmpfs {work.parent}:exec), or build the package into an image of your own",
            BAD_ARTEFACT,
        )
