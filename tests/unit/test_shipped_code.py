"""The Python that the project ships never lets data become code, save where a line here says why."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from running import ROOT

FOLDERS = ("handler", "docker", "scripts")
# Called or imported, these turn bytes into behaviour.
FORBIDDEN_MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "os.system",
    "os.popen",
    "yaml.load",
    "yaml.unsafe_load",
    "torch.package",
}
REASONS: dict[tuple[str, str], str] = {}


def shipped() -> list[Path]:
    """Every Python file of the image and of the scripts."""
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def unsafe(tree: ast.AST) -> list[str]:
    """What a module does that needs a reason."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.partition(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in FORBIDDEN_MODULES:
            found.append(node.module or "")
        elif isinstance(node, ast.Call):
            found += _calls(node)
    return found


def _calls(node: ast.Call) -> list[str]:
    name = ast.unparse(node.func)
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg}
    faults = [name] if name in FORBIDDEN_CALLS else []
    if name == "torch.load" and given.get("weights_only") != "True":
        faults.append("torch.load without weights_only=True")
    if name.endswith(("np.load", "numpy.load", "read_array")) and given.get("allow_pickle") != "False":
        faults.append(f"{name} without allow_pickle=False")
    if given.get("shell", "False") != "False":
        faults.append("shell=True")
    return faults


@pytest.mark.parametrize("path", shipped(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_turns_data_into_code(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    found = [fault for fault in unsafe(ast.parse(path.read_text("utf-8"))) if (name, fault) not in REASONS]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from marshal import loads",
        "torch.load(f)",
        "np.load(f)",
        "eval(x)",
        "yaml.load(f)",
        "run(c, shell=True)",
    ],
)
def test_the_search_finds_what_it_is_for(code: str) -> None:
    assert len(unsafe(ast.parse(code))) == 1


def test_weights_and_arrays_are_loaded_without_pickle_somewhere() -> None:
    text = "\n".join(path.read_text("utf-8") for path in shipped())
    assert "allow_pickle=False" in text
