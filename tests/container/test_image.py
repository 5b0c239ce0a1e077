"""What is in the image, and what is not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from containers import IMAGE, docker
from running import ROOT

SIZE_LIMIT = 1_300_000_000
FORBIDDEN_PROGRAMS = ("gcc", "cc", "javac", "make", "pip", "curl", "wget")
FORBIDDEN_MODULES = ("scipy", "boto3", "nvgpu", "setuptools", "sentence_transformers", "pytest")


def in_image(*command: str) -> str:
    """Run a command in a fresh container of the image."""
    return docker("run", "--rm", "--entrypoint", command[0], IMAGE, *command[1:]).stdout


@pytest.fixture(scope="module")
def description() -> dict[str, object]:
    """Docker's description of the image."""
    found: dict[str, object] = json.loads(docker("image", "inspect", IMAGE).stdout)[0]
    return found


def test_the_image_is_small(description: dict[str, object]) -> None:
    assert isinstance(description["Size"], int)
    assert description["Size"] <= SIZE_LIMIT


def test_sagemaker_finds_its_label_and_its_way_to_start_the_image(description: dict[str, object]) -> None:
    config = description["Config"]
    assert isinstance(config, dict)
    assert config["Labels"]["com.amazonaws.sagemaker.capabilities.accept-bind-to-port"] == "true"
    assert config["Labels"]["com.amazonaws.sagemaker.capabilities.multi-models"] == "true"
    assert config["Entrypoint"] == ["/opt/byoc/bin/entrypoint"]
    assert config["Cmd"] == ["serve"]
    assert list(config["ExposedPorts"]) == ["8080/tcp"]
    assert config["Healthcheck"]["Test"] == ["CMD", "/opt/byoc/bin/entrypoint", "healthcheck"]


def test_no_compiler_and_no_jdk_stayed_behind() -> None:
    script = "for name in " + " ".join(FORBIDDEN_PROGRAMS) + "; do command -v $name || true; done"
    assert in_image("/bin/sh", "-c", script) == ""
    assert in_image("/bin/sh", "-c", "find / -xdev \\( -name '*.whl' -o -path '*/.cache/pip' \\) 2>/dev/null") == ""


def test_what_the_image_does_not_run_is_not_in_it() -> None:
    code = f"import importlib.util as u; print([n for n in {FORBIDDEN_MODULES!r} if u.find_spec(n)])"
    assert in_image("/opt/byoc/venv/bin/python", "-c", code).strip() == "[]"


def test_everything_that_the_worker_imports_is_there() -> None:
    code = (
        "import torch, ts.model_service_worker, transformers, sagemaker_inference.errors, sagemaker_inference.content_types;"
        "from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoTokenizer;"
        "import sys; sys.path.insert(0, '/opt/byoc/lib');"
        "import batch_handler.service, batch_handler.tasks.embeddings, batch_handler.tasks.text_to_text;"
        "print(torch.__version__)"
    )
    assert in_image("/opt/byoc/venv/bin/python", "-c", code).strip().endswith("+cpu")


def test_another_command_runs_instead_of_the_server() -> None:
    assert docker("run", "--rm", IMAGE, "echo", "hello").stdout == "hello\n"


def test_the_gpu_dockerfile_differs_only_in_argument_values_labels_and_nvidia_variables() -> None:
    def form(name: str) -> list[str]:
        text = (ROOT / name).read_text("utf-8")
        text = re.sub(r"^(ENV NVIDIA_|ARG CUDA_VERSION$).*?[^\\]$\n", "", text, flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"^ +com\.nvidia\..*\n", "", text, flags=re.MULTILINE)
        text = re.sub(r"^(ARG \w+=).*$", r"\1", text, flags=re.MULTILINE)
        return [re.sub(r'(org\.opencontainers\.image\.description=)".*"', r"\1", line) for line in text.splitlines() if line]

    assert form("Dockerfile.cpu") == form("Dockerfile.gpu")


def test_nvgpu_is_locked_for_the_gpu_image_only() -> None:
    locks = ROOT / "docker" / "requirements"
    assert re.search(r"^nvgpu==", (locks / "gpu.txt").read_text("utf-8"), re.MULTILINE)
    assert not re.search(r"^nvgpu==", (locks / "cpu.txt").read_text("utf-8"), re.MULTILINE)


def test_every_requirement_is_locked_with_its_hash() -> None:
    for lock in sorted((ROOT / "docker" / "requirements").glob("*pu.txt")):
        entries = re.findall(
            r"^([a-z0-9._-]+)==.*?(?=^[a-z0-9]|\Z)", lock.read_text("utf-8"), re.MULTILINE | re.DOTALL | re.IGNORECASE
        )
        assert len(entries) > 10, lock
        text = Path(lock).read_text("utf-8")
        assert text.count("--hash=sha256:") >= len(entries)
