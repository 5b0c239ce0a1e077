"""Writes the image's bill of materials, CycloneDX 1.6 in JSON; runs in a build stage, is not in the image.

It lists what it finds (Python packages, jars, Debian packages); only what model-server.jar bundles is told by
bundled.json, because that jar carries no Maven descriptions. Two runs over the same files write the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import uuid
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

WRITTEN = datetime(2024, 1, 1, tzinfo=UTC)
LONGEST_LICENCE = 60


def main() -> None:
    """Read the parts that the arguments name, write the bill."""
    parser = argparse.ArgumentParser(description="Write the bill of materials of an image.")
    for name in ("venv", "reports", "library", "jars-lock", "bundled", "dpkg-status", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    given = parser.parse_args()
    components = [
        *python_packages(given.venv, given.reports),
        *jars(given.venv, given.library, given.jars_lock, given.bundled),
        *debian_packages(given.dpkg_status),
    ]
    bom = Bom(components=components)
    bom.metadata.timestamp = WRITTEN
    bom.metadata.component = Component(name="torchserve-byoc", type=ComponentType.CONTAINER, bom_ref="torchserve-byoc")
    parts = "\n".join(sorted(f"{component.purl or component.bom_ref}" for component in components))
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_OID, parts)
    bom.register_dependency(bom.metadata.component, components)
    given.output.write_text(JsonV1Dot6(bom).output_as_string(indent=1), "utf-8")
    print(f"{given.output}: {len(components)} components")


def python_packages(venv: Path, reports: Path) -> Iterator[Component]:
    """Every distribution in the virtual environment, with the checksum of the file that pip installed it from."""
    checksums = _checksums(reports)
    found = distributions(path=[str(path) for path in sorted(venv.glob("lib/python3*/site-packages"))])
    for distribution in sorted(found, key=lambda each: each.name.lower()):
        name = distribution.name.lower().replace("_", "-").replace(".", "-")
        purl = PackageURL("pypi", name=name, version=distribution.version)
        yield Component(
            name=distribution.name,
            version=distribution.version,
            type=ComponentType.LIBRARY,
            purl=purl,
            bom_ref=str(purl),
            licenses=_licences(distribution),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksums[name])] if name in checksums else [],
        )


def _checksums(reports: Path) -> dict[str, str]:
    found = {}
    for report in sorted(reports.glob("*.json")):
        for entry in json.loads(report.read_bytes())["install"]:
            name = entry["metadata"]["name"].lower().replace("_", "-").replace(".", "-")
            archive = entry["download_info"]["archive_info"]
            # pip 23.0 tells it as one text where the file came out of its cache.
            algorithm, _, told = archive.get("hash", "").partition("=")
            checksum = archive.get("hashes", {}).get("sha256") or (told if algorithm == "sha256" else None)
            if checksum:
                found[name] = checksum
    return found


def _licences(distribution: Distribution) -> list[License]:
    """The expression where the package has one, else a short name, else what its classifiers say."""
    expression = distribution.metadata.get("License-Expression")
    if expression:
        return [LicenseFactory().make_from_string(expression)]
    name = (distribution.metadata.get("License") or "").strip()
    if not name or "\n" in name or len(name) > LONGEST_LICENCE:
        classifiers = distribution.metadata.get_all("Classifier") or []
        name = next((line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License ::")), "")
    return [LicenseFactory().make_from_string(name)] if name else []


def jars(venv: Path, library: Path, lock: Path, bundled: Path) -> Iterator[Component]:
    """TorchServe's jar with what it bundles, this project's, and those of docker/jars."""
    (model_server,) = venv.glob("lib/python3*/site-packages/ts/frontend/model-server.jar")
    told = json.loads(bundled.read_bytes())
    if _sha256(model_server) != told["model-server.jar"]:
        sys.exit("model-server.jar is not the one that docker/endpoints/bundled.json describes: read its versions again")
    with zipfile.ZipFile(model_server) as archive:
        names = archive.namelist()
    yield _jar(model_server, PackageURL("generic", name="model-server.jar"))
    for each in told["libraries"]:
        if not any(name.startswith(each["package"]) for name in names):
            sys.exit(f"model-server.jar holds no {each['package']}: correct docker/endpoints/bundled.json")
        purl = PackageURL("maven", each["group"], each["name"], each.get("version"))
        yield Component(
            name=each["name"],
            group=each["group"],
            version=each.get("version"),
            type=ComponentType.LIBRARY,
            purl=purl,
            bom_ref=str(purl),
            licenses=[LicenseFactory().make_from_string(each["licence"])],
            properties=[Property(name="byoc:bundled-in", value="model-server.jar")],
        )
    rows = [line.split() for line in lock.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    coordinates = {name: maven for _, name, maven in rows}
    for jar in sorted(library.rglob("*.jar")):
        group, _, rest = coordinates.get(jar.name, "").partition(":")
        name, _, version = rest.partition(":")
        known = PackageURL("maven", group, name, version) if name else PackageURL("generic", name=jar.name)
        yield _jar(jar, known)


def _jar(path: Path, purl: PackageURL) -> Component:
    checksum = HashType(alg=HashAlgorithm.SHA_256, content=_sha256(path))
    return Component(
        name=path.name, version=purl.version, type=ComponentType.LIBRARY, purl=purl, bom_ref=str(purl), hashes=[checksum]
    )


def debian_packages(status: Path) -> Iterator[Component]:
    """Every package that dpkg calls installed."""
    for paragraph in status.read_text("utf-8").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and not line.startswith(" "))
        if fields.get("Status") != "install ok installed":
            continue
        name, version = fields["Package"], fields["Version"]
        purl = PackageURL("deb", "debian", name, version, {"arch": fields["Architecture"]})
        yield Component(name=name, version=version, type=ComponentType.LIBRARY, purl=purl, bom_ref=str(purl))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
