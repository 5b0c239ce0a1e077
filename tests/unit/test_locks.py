"""The locks follow their inputs: after an edit of an .in file, `make lock` was run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from running import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

from publishing.naming import PLATFORMS

PART_OF_OTHERS = ("runtime.in",)
FOLDERS = ("docker", "scripts", "tests", "benchmarks")
INPUTS = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.in") if path.name not in PART_OF_OTHERS)
ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)


def locked(path: Path) -> dict[str, str]:
    """Name → version of a lock."""
    return {canonicalize_name(name): version for name, version, _ in ENTRY.findall(path.read_text("utf-8"))}


def asked(path: Path) -> list[Requirement]:
    """The requirements of an input, those of the files it includes with them."""
    found = []
    for line in path.read_text("utf-8").splitlines():
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if text.startswith("-r "):
            found += asked(path.parent / text[3:].strip())
        elif text and not text.startswith("-"):
            found.append(Requirement(text))
    return found


def constraints(path: Path) -> list[Path]:
    """The locks that an input says it must agree with."""
    lines = path.read_text("utf-8").splitlines()
    return [path.parent / line[3:].strip() for line in lines if line.startswith("-c ")]


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_requirement_is_locked_at_a_version_it_allows(path: Path) -> None:
    versions = locked(path.with_suffix(".txt"))
    wrong = [
        str(requirement)
        for requirement in asked(path)
        if not requirement.specifier.contains(versions.get(canonicalize_name(requirement.name), "0"), prereleases=True)
        or canonicalize_name(requirement.name) not in versions
    ]
    assert wrong == [], "run `make lock`"


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_locked_package_has_a_hash(path: Path) -> None:
    entries = ENTRY.findall(path.with_suffix(".txt").read_text("utf-8"))
    assert entries
    assert [name for name, _, rest in entries if "--hash=sha256:" not in rest] == []


@pytest.mark.parametrize("path", [path for path in INPUTS if constraints(path)], ids=lambda path: str(path.relative_to(ROOT)))
def test_a_lock_agrees_with_those_that_constrain_it(path: Path) -> None:
    own = locked(path.with_suffix(".txt"))
    for other in constraints(path):
        differing = {name for name, version in locked(other).items() if own.get(name, version) != version}
        assert differing == set(), f"{path.name} and {other.name}: run `make lock`"


@pytest.mark.parametrize("stem", ["cpu", "cpu-transformers4"])
def test_the_images_torch_is_locked_for_every_platform_that_is_published(stem: str) -> None:
    entries = ENTRY.findall((ROOT / "docker" / "requirements" / f"{stem}.txt").read_text("utf-8"))
    (hashes,) = (rest.count("--hash=sha256:") for name, _, rest in entries if name == "torch")
    assert hashes == len(PLATFORMS)
