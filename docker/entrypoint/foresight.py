"""What would be refused anyway, but later or less clearly: refused before java starts, in the same words."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from batch_handler.artefact import TENSOR_TASK
from batch_handler.settings import TABLE, SettingError, Settings
from entrypoint.model import Source

TASKS = "batch_handler.tasks"
TASK_TABLE = "MODULES"


def check_model_dir(variables: Mapping[str, str]) -> None:
    """A relative path to a directory that is there is no hub id. Raises SettingError."""
    for name in TABLE["model_dir"].variables:
        value = variables.get(name, "").strip()
        if value and not Path(value).is_absolute() and Path(value).is_dir():
            raise SettingError(f"{name}={value!r} is not accepted: use an absolute path, such as {Path(value).resolve()}")


def check_task(settings: Settings, source: Source) -> None:
    """A task that no table has. A script or a foreign handler may mean anything by its name. Raises SettingError."""
    if settings.task is None or source.task in (None, TENSOR_TASK):
        return
    known = task_names()
    name = "translation" if settings.task.startswith("translation_") else settings.task
    if known and name not in known:
        given = settings.sources["task"]
        raise SettingError(f"{given}={settings.task} is not a task of this image: use one of {', '.join(known)}")


def task_names() -> list[str]:
    """The keys of the handler's table of tasks, read and not imported: that would load numpy and its threads into PID 1.

    Nothing when the table does not read as one; the worker then judges.
    """
    found = find_spec(TASKS)
    try:
        statements = ast.parse(Path(found.origin).read_text("utf-8")).body if found and found.origin else []
    except (OSError, ValueError, SyntaxError):
        return []
    for statement in statements:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.value, ast.Dict):
            continue
        if isinstance(statement.target, ast.Name) and statement.target.id == TASK_TABLE:
            return [key.value for key in statement.value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    return []
