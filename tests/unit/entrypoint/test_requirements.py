"""An artefact's own packages: from its wheels, from an index only when allowed, beside the image's and never into them."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from batch_handler.artefact import detect
from batch_handler.settings import resolve
from entrypoint import model, requirements
from entrypoint.failure import BAD_ARTEFACT, StartError
from entrypoint.start import patience

NOWHERE = {
    "PATH": os.environ["PATH"],
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_RETRIES": "0",
    "PIP_CONFIG_FILE": "/dev/null",
}
Install = Callable[..., Path | None]


def wheel(folder: Path, name: str, *needs: str, file: str | None = None) -> None:
    """A package of one module, or one file, as a wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n" + "".join(f"Requires-Dist: {need}\n" for need in needs)
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(file or f"{name}.py", f"word = {name!r}\n")
        archive.writestr(f"{name}-1.0.dist-info/METADATA", metadata)
        archive.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "artefact" / "code").mkdir(parents=True)
    return tmp_path / "artefact" / "code"


@pytest.fixture
def install(code: Path, tmp_path: Path) -> Install:
    """Install what a text asks for."""

    def run(text: str, allowed: bool = False) -> Path | None:
        (code / "requirements.txt").write_text(text, "utf-8")
        (tmp_path / "work").mkdir()
        return requirements.install(code / "requirements.txt", Path(sys.executable), tmp_path / "work", NOWHERE, allowed)

    return run


def test_wheels_beside_the_list_are_installed_with_what_they_need(code: Path, tmp_path: Path, install: Install) -> None:
    wheel(code / "wheels", "quiet_kettle", "tin_roof", "numpy")
    wheel(code / "wheels", "tin_roof")
    site = install("# ours\nquiet_kettle==1.0\n")
    assert site == tmp_path / "work" / "site"
    found = {path.name for path in site.iterdir()}
    assert {"quiet_kettle.py", "tin_roof.py"} <= found
    assert "numpy" not in found
    command = [sys.executable, "-c", "import quiet_kettle, tin_roof; print(tin_roof.word)"]
    done = subprocess.run(command, env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=True)
    assert done.stdout == "tin_roof\n"


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "numpy\n", "numpy>=1.20  # here\ntorch; python_version > '3'\nnone_such; python_version < '3'\n"]
)
def test_what_the_image_has_needs_no_pip(install: Install, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("pip was started"))
    assert install(text) is None


def test_a_package_that_is_not_there_is_named_with_the_way_out(install: Install) -> None:
    with pytest.raises(
        StartError, match=r"No matching distribution found for no_such_kettle==3\.1: put its wheel into wheels/"
    ) as caught:
        install("numpy\nno_such_kettle==3.1\n")
    assert "BYOC_ALLOW_INSTALL=true" in str(caught.value)
    assert "code/requirements.txt" in str(caught.value)
    assert caught.value.code == BAD_ARTEFACT


def test_an_index_is_asked_only_when_allowed(install: Install) -> None:
    with pytest.raises(StartError, match="no_such_kettle") as caught:
        install("no_such_kettle==3.1\n", allowed=True)
    assert "check the name, the version and the network" in str(caught.value)


def test_a_line_that_is_no_requirement_is_told(install: Install) -> None:
    with pytest.raises(StartError, match="Invalid requirement: '=='"):
        install("==\n")


def test_without_pip_the_missing_packages_are_named(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = SimpleNamespace(returncode=1, stdout="", stderr="/opt/byoc/venv/bin/python: No module named pip")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    with pytest.raises(StartError, match="has no pip, and not all that it names is here: no_such_kettle"):
        install("numpy\nno_such_kettle\n")


def test_a_compiled_package_needs_an_executable_directory(code: Path, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(code / "wheels", "compiled_kettle", file="compiled_kettle/inner.so")
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
    with pytest.raises(StartError, match=r"compiled_kettle of the .* is compiled, and .* is mounted noexec"):
        install("compiled_kettle\n")


def test_a_script_has_its_list_beside_it_and_an_archive_by_its_manifest(
    code: Path, tmp_path: Path, make_archive: Callable[..., Path]
) -> None:
    (code / "inference.py").touch()
    (code.parent / "requirements.txt").touch()
    (tmp_path / "work").mkdir()
    source = model.open_artefact(detect(code.parent), tmp_path / "work")
    assert source.requirements is None
    (code / "requirements.txt").touch()
    assert source.requirements == code / "requirements.txt"
    (code / "inference.py").unlink()
    archive = make_archive({"own.txt": "numpy", "h.py": ""}, handler="h.py", requirementsFile="own.txt")
    (code.parent / "requirements.txt").unlink()
    opened = model.open_artefact(detect(archive.parent), tmp_path / "work")
    assert opened.requirements == tmp_path / "work" / "archive" / "own.txt"


@pytest.mark.parametrize(
    ("variables", "warned"),
    [
        ({"SAGEMAKER_TS_MAX_BATCH_DELAY": "100000"}, True),
        ({"SAGEMAKER_TS_MAX_BATCH_DELAY": "60000"}, False),
        ({"SAGEMAKER_TS_MAX_BATCH_DELAY": "20000", "SAGEMAKER_TS_RESPONSE_TIMEOUT": "10"}, True),
        ({"SAGEMAKER_TS_MAX_BATCH_DELAY": "100000", "SAGEMAKER_TS_RESPONSE_TIMEOUT": "600"}, True),
        ({"SAGEMAKER_TS_MAX_BATCH_DELAY": "100000", "SAGEMAKER_BATCH": "true"}, False),
        ({}, False),
    ],
)
def test_waiting_longer_than_callers_do_is_warned_of(variables: dict[str, str], warned: bool) -> None:
    said = patience(resolve(variables))
    assert (said is not None) is warned
    if said:
        assert said.startswith("SAGEMAKER_TS_MAX_BATCH_DELAY lets a request wait up to")
