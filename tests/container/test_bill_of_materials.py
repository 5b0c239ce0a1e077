"""The image's bill of materials is valid and says what is really in the image."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from containers import IMAGE, docker

LIST_PYTHON = """
import hashlib, importlib.metadata, json
print(json.dumps(sorted([each.name, each.version] for each in importlib.metadata.distributions())))
"""
LIST_JARS = """
import glob, hashlib, json
paths = glob.glob("/opt/byoc/lib/**/*.jar", recursive=True) + glob.glob("/opt/byoc/venv/lib/**/*.jar", recursive=True)
print(json.dumps(sorted(hashlib.sha256(open(path, "rb").read()).hexdigest() for path in paths)))
"""
# What pip did not install, so that no lock and no checksum of a file stands behind it.
FROM_DEBIAN = {"pip"}


def in_image(*command: str) -> str:
    """Run a command in a fresh container of the image."""
    return docker("run", "--rm", "--entrypoint", command[0], IMAGE, *command[1:]).stdout


@pytest.fixture(scope="module")
def written() -> str:
    """The file itself."""
    return in_image("cat", "/opt/byoc/sbom.json")


@pytest.fixture(scope="module")
def components(written: str) -> list[dict[str, Any]]:
    """What it lists."""
    found: list[dict[str, Any]] = json.loads(written)["components"]
    return found


def of_type(components: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The components whose package address is of one kind."""
    return [component for component in components if component["purl"].startswith(f"pkg:{kind}/")]


def checksums(component: dict[str, Any]) -> list[str]:
    """The SHA-256 of a component, if it has one."""
    return [each["content"] for each in component.get("hashes", []) if each["alg"] == "SHA-256"]


def test_it_follows_the_schema(written: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(written) is None


def test_its_python_packages_are_those_of_the_image(components: list[dict[str, Any]]) -> None:
    installed = json.loads(in_image("/opt/byoc/venv/bin/python", "-I", "-c", LIST_PYTHON))
    assert sorted([each["name"], each["version"]] for each in of_type(components, "pypi")) == installed


def test_its_python_packages_have_the_locks_checksums_and_licences(components: list[dict[str, Any]]) -> None:
    packages = [each for each in of_type(components, "pypi") if each["name"] not in FROM_DEBIAN]
    assert [each["name"] for each in packages if not checksums(each)] == []
    assert [each["name"] for each in packages if not each.get("licenses")] == []


def test_its_jars_are_those_of_the_image(components: list[dict[str, Any]]) -> None:
    listed = [digest for each in components if each["name"].endswith(".jar") for digest in checksums(each)]
    assert sorted(listed) == json.loads(in_image("/opt/byoc/venv/bin/python", "-I", "-c", LIST_JARS))


def test_it_tells_what_torchserves_jar_bundles(components: list[dict[str, Any]]) -> None:
    bundled = {each["name"]: each.get("version") for each in of_type(components, "maven")}
    assert bundled["netty-all"] == "4.1.53.Final"
    assert bundled["log4j-core"] == "2.17.1"
    assert bundled["grpc-core"] == "1.50.0"


def test_its_debian_packages_are_those_of_the_image(components: list[dict[str, Any]]) -> None:
    installed = in_image("dpkg-query", "--show", "--showformat", "${db:Status-Abbrev}${Package} ${Version}\n").splitlines()
    expected = sorted(line.removeprefix("ii ").split() for line in installed if line.startswith("ii "))
    assert sorted([each["name"], each["version"]] for each in of_type(components, "deb")) == expected
    assert len(expected) > 20
