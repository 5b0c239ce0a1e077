"""Loading a user's script and calling its functions with what they take.

The functions and their arguments are those of the SageMaker inference toolkit's pages; `batch_predict_fn` and
`batch_transform_fn` are ours.
"""

from __future__ import annotations

import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from batch_handler.artefact import CODE, ArtefactError
from batch_handler.user_code import faults
from batch_handler.user_code.context import Context

log = logging.getLogger(__name__)

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "pre_model_fn": ("model_dir",),
    "model_fn": ("model_dir",),
    "model_warmup_fn": ("model_dir", "model"),
    "input_fn": ("data", "content_type"),
    "predict_fn": ("data", "model"),
    "output_fn": ("prediction", "accept"),
    "transform_fn": ("model", "data", "content_type", "accept"),
    "batch_predict_fn": ("inputs", "model"),
    "batch_transform_fn": ("model", "inputs", "content_types", "accepts"),
}
"""Every function of a script with what it is given, a context behind it where it takes one."""

INSTEAD_OF_THREE = ("transform_fn", "batch_transform_fn")
THREE = ("input_fn", "predict_fn", "output_fn", "batch_predict_fn")
CONTEXT_NAMES = ("context", "ctx")
KEYWORD, POSITION = "keyword", "position"


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a script. ``context`` is the way in which it takes one, or None."""

    name: str
    call: Callable[..., Any]
    context: str | None

    def __call__(self, *arguments: Any, context: Context) -> Any:
        """Call it, with the context when it takes one."""
        if self.context == POSITION:
            return self.call(*arguments, context)
        if self.context == KEYWORD:
            return self.call(*arguments, context=context)
        return self.call(*arguments)


@dataclass(frozen=True, slots=True)
class UserCode:
    """What a script defines. ``thread_safe``, ``batchable`` and ``idempotent`` are its flags of those names."""

    path: Path
    functions: Mapping[str, Function]
    thread_safe: bool
    batchable: bool
    idempotent: bool
    pad_token_id: int | None


def load(path: Path) -> UserCode:
    """Run the script at `path`, its ``code/`` directory first on the module search path.

    Raises ArtefactError when it cannot be run, or defines functions that do not fit together.
    """
    directory = next((parent for parent in path.parents if parent.name == CODE), path.parent)
    for folder in {directory: None, path.parent: None}:
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True  # the artefact is read-only, or should be
    if notice := faults.dropped_names(directory):
        log.warning(notice)
    module = _run(path)
    defined = {name: getattr(module, name) for name in ARGUMENTS if callable(getattr(module, name, None))}
    both = [name for name in INSTEAD_OF_THREE if name in defined], [name for name in THREE if name in defined]
    if all(both):
        raise ArtefactError(f"{_shown(path)} defines both {both[0][0]} and {' and '.join(both[1])}: {both[0][0]} replaces them")
    functions = {name: Function(name, call, context_way(name, call)) for name, call in defined.items()}
    return UserCode(
        path,
        functions,
        thread_safe=getattr(module, "THREAD_SAFE", False) is True,
        batchable=getattr(module, "BATCHABLE", False) is True,
        idempotent=getattr(module, "IDEMPOTENT", False) is True,
        pad_token_id=getattr(module, "PAD_TOKEN_ID", None),
    )


def context_way(name: str, function: Callable[..., Any]) -> str | None:
    """How a function takes a context, if it does. Raises ArtefactError when it cannot be called at all.

    One more argument than documented is a context when it has no default or is called so.
    """
    count = len(ARGUMENTS[name])
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C
        return None
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    required = sum(one.default is one.empty for one in positional)
    variadic = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    more = positional[count] if len(positional) > count else None
    taken = more is not None and (more.default is more.empty or more.name in CONTEXT_NAMES)
    if required > count + taken or (len(positional) < count and not variadic):
        expected = ", ".join(ARGUMENTS[name])
        raise ArtefactError(f"the script's {name} cannot be called: it is given ({expected}[, context])")
    if taken:
        return POSITION
    return KEYWORD if any(one.kind is one.KEYWORD_ONLY and one.name in CONTEXT_NAMES for one in parameters) else None


def _run(path: Path) -> ModuleType:
    """Import by path, under its own name unless that is a library's: whatever else is called so, this is the script."""
    taken = path.stem in sys.stdlib_module_names or path.stem in sys.modules
    name = f"script_{path.stem}" if taken else path.stem
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise ArtefactError(f"{_shown(path)} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a script may even call sys.exit
        raise broken(f"{_shown(path)} cannot be imported", error) from error
    return module


def broken(what: str, error: BaseException) -> ArtefactError:
    """The sentence about a script that stops the start; the traceback goes to the log."""
    log.error(what, exc_info=error)
    return ArtefactError(f"{what}: {faults.wording(error)}{faults.place(error)}")


def _shown(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
