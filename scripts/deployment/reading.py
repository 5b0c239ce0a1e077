"""Reads what a person writes about an endpoint: a YAML file, flags over it, checked by the schema beside this file.

Owns what is accepted, the defaults and what of it belongs together. Every refusal names the file and the place in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from deployment.dashboard import telling
from deployment.description import (
    SEVERAL_CONTAINERS,
    Component,
    Container,
    Description,
    Instances,
    Kind,
    Scaling,
    Smoke,
    Variant,
)
from deployment.errors import DeploymentError

SCHEMA = Path(__file__).with_name("description.schema.json")
DEFAULT_VARIANT = "AllTraffic"
DEFAULT_CONTENT_TYPE = "application/json"
FEWEST_CHAINED = 2


def read(path: Path | None, flags: Mapping[str, Any]) -> Description:
    """The YAML file with the flags over it. Paths in the file are relative to it. Raises DeploymentError."""
    written: Any = {}
    if path:
        try:
            written = yaml.safe_load(path.read_text("utf-8"))
        except OSError as error:
            raise DeploymentError(f"{path} cannot be read: {error.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError):
            raise DeploymentError(f"{path} is not valid YAML") from None
    if not isinstance(written, dict):
        raise DeploymentError(f"{path} must hold keys and values, such as name: my-endpoint")
    source = str(path) if path else "the flags"
    folder = path.parent if path else Path()
    return described(merged(anchored(written, folder), flags), source)


def anchored(written: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The same with the paths of files as seen from here."""
    for section, key in (("scaling", "load_test"), ("smoke", "file")):
        for holder in (written, *listed(written, "variants"), *listed(written, "components")):
            value = holder.get(section)
            if isinstance(value, dict) and isinstance(value.get(key), str):
                value[key] = str(folder / value[key])
    return written


def listed(written: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The objects of a list that the schema has not checked yet."""
    value = written.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both, the second winning, objects merged key by key."""
    result = dict(under)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def described(raw: Mapping[str, Any], source: str) -> Description:
    """The description that these words stand for. Raises DeploymentError naming the place of the first fault."""
    problem = best_match(Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).iter_errors(raw))
    if problem:
        place = ".".join(str(step) for step in problem.absolute_path)
        raise DeploymentError(
            f"{source}: {place + ': ' if place else ''}{problem.message}; see {SCHEMA.name} for what is accepted"
        )
    kind = Kind(raw.get("kind", Kind.REAL_TIME))
    try:
        check_sections(raw, kind)
        return Description(
            name=raw["name"],
            kind=kind,
            role=raw["role"],
            region=raw.get("region"),
            variants=variants(raw, kind),
            components=tuple(component(raw, each) for each in raw.get("components", [])),
            tags=raw.get("tags", {}),
            smoke=smoke(raw["smoke"]) if "smoke" in raw else None,
            raw=raw,
        )
    except DeploymentError as error:
        raise DeploymentError(f"{source}: {error}") from None


BELONGS = {
    "serverless": {Kind.SERVERLESS},
    "async": {Kind.ASYNC},
    "components": {Kind.COMPONENTS},
    "containers": set(SEVERAL_CONTAINERS),
    "instances": set(Kind) - {Kind.SERVERLESS},
}
# The Serverless Inference page lists what it does without.
NOT_SERVERLESS = ("variants", "vpc", "network_isolation", "data_capture", "timeouts", "routing")


def check_sections(raw: Mapping[str, Any], kind: Kind) -> None:
    """Every section that the kind needs, and none that it has no use for. Raises DeploymentError."""
    for section, kinds in BELONGS.items():
        if section in raw and kind not in kinds:
            raise DeploymentError(f"{section} has no meaning for kind: {kind}; it belongs to {', '.join(sorted(kinds))}")
        if section not in raw and kind in kinds and section != "instances":
            raise DeploymentError(f"kind: {kind} needs the section {section}")
    if kind is Kind.SERVERLESS:
        for section in NOT_SERVERLESS:
            if section in raw:
                raise DeploymentError(f"serverless endpoints do without {section}: remove it or choose another kind")
    if kind is Kind.COMPONENTS and {"image", "model", "environment", "variants"} & raw.keys():
        raise DeploymentError("kind: components has images and models under components, and one variant of instances")
    if kind in SEVERAL_CONTAINERS and "variants" in raw:
        raise DeploymentError(f"kind: {kind} has one variant: list its containers, not variants")
    if "target_model" in raw.get("smoke", {}) and kind is not Kind.MULTI_MODEL:
        raise DeploymentError(f"smoke: target_model has no meaning for kind: {kind}; it belongs to multi-model")
    if kind is Kind.MULTI_MODEL:
        check_prefix(raw)
    if kind is Kind.ASYNC and len(raw.get("variants", [])) > 1:
        raise DeploymentError("an asynchronous endpoint has one variant: remove the others")


def check_prefix(raw: Mapping[str, Any]) -> None:
    """Many models lie below one prefix, and a call says which of them it means. Raises DeploymentError."""
    for each in raw.get("variants", [{}]):
        if not str(each.get("model") or raw.get("model") or "").endswith("/"):
            raise DeploymentError("kind: multi-model needs as its model a prefix that ends in /, with the archives of the models")
    if "smoke" in raw and "target_model" not in raw["smoke"]:
        raise DeploymentError("smoke: target_model is missing: the archive below the prefix that the call is for")


def variants(raw: Mapping[str, Any], kind: Kind) -> tuple[Variant, ...]:
    """As written, or the one that the top of the description speaks of. Raises DeploymentError."""
    written = raw.get("variants") or [{"name": DEFAULT_VARIANT}]
    names = [each["name"] for each in written]
    if len(set(names)) != len(names):
        raise DeploymentError("two variants have the same name")
    return tuple(variant(raw, kind, each) for each in written)


def variant(raw: Mapping[str, Any], kind: Kind, written: Mapping[str, Any]) -> Variant:
    """One of them; what it leaves out stands at the top. Raises DeploymentError."""
    instances = merged(raw.get("instances", {}), written.get("instances", {}))
    if kind is not Kind.SERVERLESS and "type" not in instances:
        raise DeploymentError("instances: type: is missing, such as ml.c6i.xlarge")
    if kind is Kind.COMPONENTS:
        containers: tuple[Container, ...] = ()
    elif kind in SEVERAL_CONTAINERS:
        containers = chained(raw)
    else:
        containers = (container(raw, written),)
    return Variant(
        name=written["name"],
        weight=float(written.get("weight", 1.0)),
        containers=containers,
        instances=on_instances(instances, kind) if instances else None,
        scaling=scaling(written.get("scaling") or raw.get("scaling"), kind) if kind is not Kind.COMPONENTS else None,
    )


def on_instances(written: Mapping[str, Any], kind: Kind) -> Instances:
    """Type and number; limits only where SageMaker places copies itself. Raises DeploymentError."""
    values = dict(written)
    limits = {"minimum": values.pop("min", None), "maximum": values.pop("max", None)}
    if any(limit is not None for limit in limits.values()) and kind is not Kind.COMPONENTS:
        raise DeploymentError(f"instances: min and max belong to kind: components; a {kind} endpoint has scaling:")
    if limits["minimum"] is not None and (limits["maximum"] or 0) < max(1, limits["minimum"]):
        raise DeploymentError("instances: min needs a max that is not less")
    return Instances(**values, **limits)


def chained(raw: Mapping[str, Any]) -> tuple[Container, ...]:
    """The containers of a pipeline or a multi-container endpoint: 2 to 15. Raises DeploymentError."""
    written = raw["containers"]
    if len(written) < FEWEST_CHAINED:
        raise DeploymentError("containers must be 2 to 15: one alone is kind: real-time")
    found = tuple(container(raw, {"hostname": f"container-{number}", **each}) for number, each in enumerate(written, 1))
    if len({each.hostname for each in found}) != len(found):
        raise DeploymentError("two containers have the same hostname")
    return found


def container(raw: Mapping[str, Any], written: Mapping[str, Any]) -> Container:
    """An image and what it serves; settings at the top hold for all. Raises DeploymentError."""
    image = written.get("image") or raw.get("image")
    if not image:
        raise DeploymentError("image is missing: the URI that build_and_push.sh printed")
    environment = {**telling(raw), **raw.get("environment", {}), **written.get("environment", {})}
    return Container(
        image=image,
        model=written.get("model") or raw.get("model"),
        environment={name: setting(value) for name, value in sorted(environment.items())},
        hostname=written.get("hostname"),
    )


def setting(value: str | float | bool) -> str:
    """As an environment variable holds it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def component(raw: Mapping[str, Any], written: Mapping[str, Any]) -> Component:
    """One inference component. Raises DeploymentError."""
    return Component(
        name=f"{raw['name']}-{written['name']}",
        container=container({key: raw[key] for key in ("name", "dashboard") if key in raw}, written),
        memory_mb=written["memory_mb"],
        cpus=written.get("cpus"),
        accelerators=written.get("accelerators"),
        copies=written.get("copies", 1),
        scaling=scaling(written.get("scaling"), Kind.COMPONENTS),
    )


def scaling(written: Mapping[str, Any] | None, kind: Kind) -> Scaling | None:
    """The limits; asynchronous endpoints may go to zero and do so by default. Raises DeploymentError."""
    if written is None:
        return None
    values = dict(written)
    least = values.pop("min", 0 if kind is Kind.ASYNC else 1)
    most = values.pop("max")
    if least > most:
        raise DeploymentError(f"scaling: min {least} is more than max {most}")
    if least == 0 and kind not in (Kind.ASYNC, Kind.COMPONENTS):
        raise DeploymentError(f"scaling: min 0 needs kind: async; a {kind} endpoint keeps at least 1")
    if "load_test" in values:
        values["load_test"] = Path(values["load_test"])
    return Scaling(least, most, **values)


def smoke(written: Mapping[str, Any]) -> Smoke:
    """The sample with its type. Raises DeploymentError."""
    if "file" in written:
        try:
            body = Path(written["file"]).read_bytes()
        except OSError as error:
            raise DeploymentError(f"smoke: {written['file']} cannot be read: {error.strerror}") from None
    else:
        body = written["body"].encode()
    return Smoke(body, written.get("content_type", DEFAULT_CONTENT_TYPE), written.get("accept"), written.get("target_model"))
