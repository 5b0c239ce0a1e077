"""What a fork of the template does to be like a process that was just started: environment, paths, title, random numbers.

Forking itself is `forking`'s, and what was imported before it `template`'s.
"""

from __future__ import annotations

import ctypes
import gc
import os
import runpy
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from batch_handler.artefact import CODE
from entrypoint.forking import Order
from entrypoint.process import LIBC, PR_SET_PDEATHSIG

LIKELIER_VICTIM = 50
"""Added to oom_score_adj: for want of memory the kernel ends one worker, and not the process all of them came from."""
# malloc.h
M_ARENA_MAX = -8
# proc(5), /proc/<pid>/stat: the fields after the name in parentheses, of which the first is the third of all.
ARGUMENTS_START, ARGUMENTS_END = 48 - 3, 49 - 3


def become(order: Order, template: int, inherited: Sequence[str]) -> None:
    """Run the Python program of the order as a new interpreter would. Returns or raises as that program does.

    ``template`` is the parent's process id, ``inherited`` the entries of sys.path that came from its own PYTHONPATH.
    """
    LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != template:
        os._exit(1)  # it ended before it could be tied to this
    _volunteer()
    threads = os.environ.get("OMP_NUM_THREADS")
    os.chdir(order.directory)
    os.environ.clear()
    os.environ.update(order.environment)
    own = search_path(order.environment.get("PYTHONPATH", ""))
    rest = [path for path in sys.path if path not in inherited]
    added = [path for path in own if path not in sys.path]
    # A script's neighbours come first in its path once it is loaded.
    if hidden([*added, str(Path(order.directory) / CODE)]):
        os.execve(sys.executable, [sys.executable, *order.arguments], os.environ)  # noqa: S606 -- ourselves, afresh
    sys.path[:] = [*own, *(path for path in rest if path not in own)]
    sys.argv = list(order.arguments)
    set_title([sys.executable, *order.arguments])
    _reseed()
    _bound_arenas(order.environment.get("MALLOC_ARENA_MAX", ""))
    if order.environment.get("OMP_NUM_THREADS") != threads:
        _use_threads(order.environment.get("OMP_NUM_THREADS", ""))
    gc.enable()
    runpy.run_path(order.arguments[0], run_name="__main__")


def search_path(variable: str) -> list[str]:
    """The entries of a PYTHONPATH, absolute and each once; an empty one is the current directory, as for the interpreter."""
    if not variable:
        return []
    return list(dict.fromkeys(os.path.abspath(entry) for entry in variable.split(os.pathsep)))  # noqa: PTH100 -- as site does


def hidden(directories: Sequence[str]) -> bool:
    """Whether these hold a module that a new interpreter would import in place of one that is already here."""
    loaded = {name.partition(".")[0] for name in sys.modules}
    return any(name in loaded for directory in directories for name in _modules(Path(directory)))


def _modules(directory: Path) -> Iterator[str]:
    with suppress(OSError):
        for entry in directory.iterdir():
            if entry.suffix in (".py", ".so", ".pyc") or (entry / "__init__.py").exists():
                yield entry.name.partition(".")[0]


def set_title(arguments: Sequence[str]) -> None:
    """Let /proc/<pid>/cmdline show these arguments, as far as the room goes that this process was started with."""
    with suppress(OSError, ValueError, IndexError):
        stat = Path("/proc/self/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        start, room = int(stat[ARGUMENTS_START]), int(stat[ARGUMENTS_END]) - int(stat[ARGUMENTS_START])
        title = b"\0".join(os.fsencode(one) for one in arguments)[: room - 1]
        ctypes.memmove(start, title.ljust(room, b"\0"), room)


def _volunteer() -> None:
    own = Path("/proc/self/oom_score_adj")
    with suppress(OSError, ValueError):
        own.write_text(str(min(1000, int(own.read_text()) + LIKELIER_VICTIM)))


def _reseed() -> None:
    """Python's own generator sees to itself after a fork; NumPy's would give all workers the same numbers."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _bound_arenas(number: str) -> None:
    """glibc reads the variable when a program starts (mallopt(3))."""
    if number.isdigit():
        LIBC.mallopt(M_ARENA_MAX, int(number))


def _use_threads(number: str) -> None:
    """libgomp and torch read the variable once, when they are loaded."""
    if "torch" in sys.modules and number.isdigit():
        sys.modules["torch"].set_num_threads(int(number))
