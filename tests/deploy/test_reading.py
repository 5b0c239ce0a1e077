"""What a description may say; every refusal names the place and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deployment.errors import DeploymentError
from deployment.reading import read

Written = Callable[..., Path]
SERVERLESS = {"memory_mb": 2048, "concurrency": 5}
TWO = [{"hostname": "first"}, {"hostname": "second"}]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nmae": "x"}, "'nmae' was unexpected"),
        ({"role": None}, "'role' is a required property"),
        ({"kind": "batch"}, "kind: 'batch' is not one of"),
        ({"image": None}, "image is missing"),
        ({"instances": None}, "instances: type: is missing"),
        ({"model": "/tmp/model"}, "model: '/tmp/model' does not match"),
        ({"instances": {"type": "ml.c5.xlarge", "count": 0}}, r"instances\.count: 0 is less than"),
        ({"serverless": SERVERLESS}, "serverless has no meaning for kind: real-time"),
        ({"kind": "serverless", "instances": None}, "needs the section serverless"),
        ({"kind": "serverless", "serverless": SERVERLESS}, "instances has no meaning for kind: serverless"),
        (
            {"kind": "serverless", "instances": None, "serverless": {"memory_mb": 1500, "concurrency": 1}},
            r"serverless\.memory_mb: 1500 is not one of \[1024, 2048",
        ),
        (
            {
                "kind": "serverless",
                "instances": None,
                "serverless": SERVERLESS,
                "vpc": {"subnets": ["s"], "security_groups": ["g"]},
            },
            "serverless endpoints do without vpc",
        ),
        ({"kind": "async"}, "needs the section async"),
        (
            {"kind": "async", "async": {"output": "s3://b/"}, "variants": [{"name": "a"}, {"name": "b"}]},
            "asynchronous endpoint has one variant",
        ),
        ({"kind": "pipeline", "containers": TWO[:1]}, "2 to 15"),
        ({"kind": "pipeline", "containers": TWO, "variants": [{"name": "a"}]}, "list its containers, not variants"),
        ({"kind": "multi-container", "containers": [TWO[0], TWO[0]]}, "two containers have the same hostname"),
        ({"variants": [{"name": "a"}, {"name": "a"}]}, "two variants have the same name"),
        ({"kind": "components", "components": [{"name": "a", "memory_mb": 1024}]}, "under components"),
        ({"instances": {"type": "ml.c5.xlarge", "max": 2}}, "min and max belong to kind: components"),
        ({"scaling": {"min": 0, "max": 2}}, "min 0 needs kind: async"),
        ({"scaling": {"min": 3, "max": 2}}, "min 3 is more than max 2"),
        ({"smoke": {"file": "absent.json"}}, r"absent\.json cannot be read"),
        ({"smoke": {"body": "x", "file": "y"}}, "smoke"),
    ],
)
def test_a_faulty_description_is_refused_with_its_place(written: Written, changes: dict[str, Any], words: str) -> None:
    path = written(**changes)
    with pytest.raises(DeploymentError, match=words) as refusal:
        read(path, {})
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "endpoint.yaml"
    path.write_text("name: [")
    with pytest.raises(DeploymentError, match="not valid YAML"):
        read(path, {})
    with pytest.raises(DeploymentError, match="cannot be read"):
        read(tmp_path / "absent.yaml", {})


def test_flags_win_over_the_file_key_by_key(written: Written) -> None:
    path = written(environment={"A": 1, "B": True}, instances={"type": "ml.c5.xlarge", "count": 3})
    description = read(path, {"environment": {"A": "2"}, "instances": {"type": "ml.m5.large"}})
    (variant,) = description.variants
    assert variant.instances is not None
    assert (variant.instances.type, variant.instances.count) == ("ml.m5.large", 3)
    assert variant.containers[0].environment == {"A": "2", "B": "true"}


def test_flags_alone_describe_an_endpoint() -> None:
    role = "arn:aws:iam::123456789012:role/x"
    description = read(None, {"name": "a", "role": role, "image": "i", "instances": {"type": "ml.c5.large"}})
    assert description.variants[0].containers[0].model is None


def test_files_are_looked_for_beside_the_description(written: Written, tmp_path: Path) -> None:
    (tmp_path / "sample.json").write_bytes(b"[1]")
    description = read(written(smoke={"file": "sample.json"}, scaling={"max": 2, "load_test": "measured.json"}), {})
    assert description.smoke is not None
    assert description.smoke.body == b"[1]"
    scaling = description.variants[0].scaling
    assert scaling is not None
    assert scaling.load_test == tmp_path / "measured.json"


def test_a_variant_says_only_what_is_different(written: Written) -> None:
    path = written(
        environment={"A": "1"},
        instances={"type": "ml.c5.xlarge", "count": 2},
        variants=[
            {"name": "old", "weight": 9},
            {"name": "new", "weight": 1, "model": "s3://bucket/new/", "environment": {"B": "2"}, "instances": {"count": 1}},
        ],
    )
    old, new = read(path, {}).variants
    assert (old.weight, new.weight) == (9.0, 1.0)
    assert old.containers[0].model == "s3://bucket/model.tar.gz"
    assert new.containers[0].model == "s3://bucket/new/"
    assert new.containers[0].environment == {"A": "1", "B": "2"}
    assert new.instances is not None
    assert (new.instances.type, new.instances.count) == ("ml.c5.xlarge", 1)
