"""Why java ended: the sentence for the last line of the log."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from batch_handler.resources import CGROUP
from batch_handler.settings import MIB
from entrypoint.supervise import Ending

# The frontend's codes. 3 is also a JVM's that stops at -XX:+ExitOnOutOfMemoryError, but the frontend says it only
# before the server was ready, so the two can be told apart.
NOT_LOADED = 3
WORKERS_GONE = 4
REQUESTS_LOST = 5
KILLED = 137
IMPORT_LIMIT_S = 60
ORDERED = {
    REQUESTS_LOST: "requests were still unanswered when the time for draining was over",
    KILLED: "java was killed before it had drained: requests may be lost",
}
# TorchServe looks for a module of this name, then among its own handlers, and tells only about the second.
IMPORT = """
import importlib, sys, traceback
name = sys.argv[1].split(":")[0].removesuffix(".py").split("/")[-1]
try:
    importlib.import_module(name)
except BaseException as error:
    if isinstance(error, ModuleNotFoundError) and error.name == name:
        try:
            importlib.import_module("ts.torch_handler." + name)
            sys.exit(0)
        except BaseException as second:
            error = second
    frames = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in frames if "importlib" not in frame.filename and frame.filename[0] != "<"]
    place = f" ({frames[-1].filename.rsplit('/', 1)[-1]}, line {frames[-1].lineno})" if frames else ""
    print(traceback.format_exception_only(error)[-1].strip() + place)
"""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What there is to know beside the exit code."""

    failure_file: Path
    handler: str
    ours: bool
    python: Path
    environment: Mapping[str, str]
    model_directory: Path
    memory_bytes: int | None
    heap_mb: int
    oom_kills_before: int


def explain(ending: Ending, known: Circumstances) -> str | None:
    """One sentence, the most specific that is known; None after an ordered stop that lost nothing."""
    if ending.exit_code == 0:
        return None
    if ending.ordered:
        return ORDERED.get(ending.code, f"java ended with code {ending.code} instead of draining")
    return _told_by_the_worker(known) or _out_of_memory(ending, known) or _import_error(ending, known) or _java_alone(ending)


def told_or_imported(known: Circumstances) -> str | None:
    """Why a model cannot be loaded: the worker's own sentence, or what is wrong with the import of a foreign handler."""
    return _told_by_the_worker(known) or (None if known.ours else _failed_import(known))


def oom_kills(root: Path = CGROUP) -> int:
    """Processes of this cgroup that the kernel killed for memory (memory.events; v1: memory.oom_control)."""
    for path in (root / "memory.events", root / "memory" / "memory.oom_control"):
        try:
            words = [line.split() for line in path.read_text("ascii").splitlines()]
        except OSError:
            continue
        return sum(int(pair[1]) for pair in words if len(pair) == 2 and pair[0] == "oom_kill")
    return 0


def _told_by_the_worker(known: Circumstances) -> str | None:
    try:
        told = known.failure_file.read_text("utf-8", "replace").strip()
    except OSError:
        return None
    return " ".join(told.split()) or None


def _out_of_memory(ending: Ending, known: Circumstances) -> str | None:
    killed = oom_kills() - known.oom_kills_before
    if killed > 0:
        limit = f"{known.memory_bytes // MIB:,} MiB" if known.memory_bytes else "unknown"
        return (
            f"out of memory: the limit is {limit} and the kernel killed {killed} process(es): "
            "give the container more memory, or fewer workers (SAGEMAKER_TS_MAX_WORKERS)"
        )
    if ending.code == NOT_LOADED and ending.was_ready:
        return f"java used up its heap of {known.heap_mb} MiB, which follows from the memory and the payload limits"
    return None


def _import_error(ending: Ending, known: Circumstances) -> str | None:
    return None if known.ours or ending.was_ready else _failed_import(known)


def _failed_import(known: Circumstances) -> str | None:
    path = f"{known.environment['PYTHONPATH']}:{known.model_directory}"
    try:
        outcome = subprocess.run(  # noqa: S603 -- our own interpreter and the handler that was to be run
            [known.python, "-c", IMPORT, known.handler],
            env={**known.environment, "PYTHONPATH": path},
            cwd=known.model_directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=IMPORT_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    said = outcome.stdout.strip().splitlines()
    return f"the handler {known.handler} cannot be imported: {said[-1]}" if said else None


def _java_alone(ending: Ending) -> str:
    sentences = {
        NOT_LOADED: "the model could not be loaded: its worker was killed while it loaded, or its own lines above say why",
        WORKERS_GONE: "the worker died again and again: its own lines above say why",
        KILLED: "java was killed (SIGKILL): by hand, or by the host for want of memory",
    }
    return sentences.get(ending.code, f"java ended by itself with code {ending.code}")
