"""A script's exceptions as errors: the type and the message in one line, without paths or much of the input.

The traceback belongs into the log, where the request's id stands beside it.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path

from sagemaker_inference.errors import BaseInferenceToolkitError, UnsupportedFormatError

from batch_handler.errors import QUOTE_LIMIT, ErrorType, ServiceError, one_line

PATHS = re.compile(r"(?<![\w:/.])(?:/[^\s/'\":,;()]+)*/([^\s/'\":,;()]+)")
QUOTED = re.compile(r"(['\"])((?:(?!\1).){80,}?)\1", re.DOTALL)
AN_OLDER_IMAGE = "; or use an image with version 4"
DROPPED: Mapping[str, str] = {
    "encode_plus": f"call the tokenizer itself{AN_OLDER_IMAGE}",
    "batch_encode_plus": f"call the tokenizer itself{AN_OLDER_IMAGE}",
    "pad_to_max_length": f"padding='max_length'{AN_OLDER_IMAGE}",
    "AdamW": "torch.optim.AdamW",
}
"""What version 5 of transformers no longer has, or no longer heeds, and what to write instead."""

DROPPED_PIPELINES = re.compile(r"The task (\S+) has been removed from transformers")
INPUT_SEARCHED = 1 << 18
API_ERRORS = (AttributeError, ImportError, KeyError, TypeError)


class ScriptError(ServiceError):
    """An error with a status of the script's own choice."""

    def __init__(self, message: str, status: int) -> None:
        known = status if status in set(HTTPStatus) and status >= HTTPStatus.BAD_REQUEST else 500
        matching = next((kind for kind in ErrorType if kind.status == known), None)
        super().__init__(matching or (ErrorType.INVALID_REQUEST if known < 500 else ErrorType.MODEL_ERROR), message)
        self._status = known

    @property
    def status(self) -> int:
        """The HTTP status of the request."""
        return self._status


def as_error(error: BaseException) -> ServiceError:
    """The error that the caller gets: the script's own status where it names one, else 500."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, BaseInferenceToolkitError):
        return ScriptError(without_paths(str(error.message)), _number(error.status_code))
    if isinstance(error, UnsupportedFormatError):
        return ServiceError(ErrorType.UNSUPPORTED_MEDIA_TYPE, without_paths(str(error)))
    if _out_of_memory(error):
        return ServiceError(ErrorType.OUT_OF_MEMORY, wording(error))
    return ServiceError(ErrorType.MODEL_ERROR, wording(error))


def wording(error: BaseException) -> str:
    """``Type: message`` on one line, with a hint where the installed transformers lacks what the script wants."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - an exception whose own text cannot be made
        said = ""
    return one_line(f"{type(error).__name__}: {hint(error, said)}{without_paths(said)}".rstrip(": "))


def without_paths(text: str) -> str:
    """Files by their names alone, and quoted input cut to 80 characters."""
    return QUOTED.sub(lambda found: f"{found[1]}{found[2][: QUOTE_LIMIT - 1]}…{found[1]}", PATHS.sub(r"\1", text[:10_000]))


def without_input(error: ServiceError, body: bytes) -> ServiceError:
    """The error, its message cut where it repeats more than 80 characters of the body."""
    text = " ".join(body[:INPUT_SEARCHED].decode("utf-8", "replace").split())
    said, start = error.message, 0
    while start + QUOTE_LIMIT < len(said):
        end = start + QUOTE_LIMIT + 1
        if said[start:end] in text:
            while end < len(said) and said[start : end + 1] in text:
                end += 1
            said = f"{said[: start + QUOTE_LIMIT - 1]}…{said[end:]}"
            start += QUOTE_LIMIT
        start += 1
    error.message = said
    return error


def place(error: BaseException) -> str:
    """`` (inference.py, line 3)``: where the script stood, for the log alone."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({Path(error.filename).name}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _of_a_user(frame.filename)]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def hint(error: BaseException, said: str) -> str:
    """Names the API that the installed major version of transformers dropped, when the error comes from one."""
    version = _transformers()
    if version is None or not isinstance(error, API_ERRORS):
        return ""
    if removed := DROPPED_PIPELINES.search(said):
        return (
            f"transformers {version} has no pipeline '{removed[1]}' any more (write: the model's generate or forward "
            f"method{AN_OLDER_IMAGE}): "
        )
    for name, instead in DROPPED.items():
        if re.search(rf"\b{name}\b", said):
            return f"transformers {version} has no '{name}' any more (write: {instead}): "
    if isinstance(error, KeyError):
        return ""
    asked = getattr(error, "obj", None)
    owner = getattr(asked, "__name__", "") if isinstance(asked, type(sys)) else type(asked).__module__
    imported = isinstance(error, ImportError) and str(error.name).startswith("transformers")
    if owner.startswith("transformers") or imported:
        return f"transformers {version} is installed, and this name is not in it (it may be of version 4): "
    return ""


def dropped_names(directory: Path) -> str | None:
    """A warning for the start: what the scripts in `directory` use that this transformers ignores or lacks."""
    try:
        version = importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        return None
    if int(version.partition(".")[0]) < 5:
        return None
    for path, text in _sources(directory):
        used = [name for name in DROPPED if re.search(rf"\b{name}\s*[=(]|\bfrom transformers\S* import\b.*\b{name}\b", text)]
        if used:
            instead = "; ".join(f"{name} → {DROPPED[name].removesuffix(AN_OLDER_IMAGE)}" for name in used)
            older = AN_OLDER_IMAGE if any(DROPPED[name].endswith(AN_OLDER_IMAGE) for name in used) else ""
            return f"{path.name} uses what transformers {version} no longer has: {instead}{older}"
    return None


def _sources(directory: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(directory.rglob("*.py")):
        yield path, path.read_text("utf-8", "replace")


def _transformers() -> str | None:
    """The loaded version where it is 5 or newer."""
    module = sys.modules.get("transformers")
    version = str(getattr(module, "__version__", "0"))
    major = version.partition(".")[0]
    return version if major.isdigit() and int(major) >= 5 else None


def _of_a_user(filename: str) -> bool:
    return "site-packages" not in filename and "batch_handler" not in filename and not filename.startswith("<")


def _out_of_memory(error: BaseException) -> bool:
    """By its type alone: words in a message may be the caller's."""
    torch = sys.modules.get("torch")
    return isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError))


def _number(status: object) -> int:
    try:
        return int(str(status))
    except ValueError:
        return 500
