"""The process that workers are forked from: imports once, early and alone, what each of them would import again.

    python -P -m entrypoint.template ROOM

Started by the frontend, which orders workers on its standard input and reads of them on its standard output (`forking`).
ROOM only takes up the memory in which a fork shows its own command line. It has one thread and never touches CUDA:
neither a pool of threads nor a CUDA context survives a fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pkgutil
import resource
import sys
from pathlib import Path

from entrypoint.becoming import become, search_path
from entrypoint.forking import ForkServer

WORKER = ("ts.model_service_worker", "batch_handler.service")
PACKAGES = ("batch_handler", "batch_handler.tasks", "batch_handler.engines", "batch_handler.formats", "batch_handler.user_code")
OPTIONAL = ("batch_handler.engines.openvino_runtime", "batch_handler.engines.onnx_runtime")
"""Engines whose libraries start threads of their own, or are not there: the worker that needs one imports it."""
LIBRARIES = ("safetensors.torch", "tokenizers", "torch.nn.attention", "numpy.random", "transformers.modeling_utils")
ARCHITECTURES = ("bert", "roberta", "xlm_roberta", "distilbert", "mpnet")


def main() -> int:
    """Import, then fork whatever is ordered; the exit code of the server, or of the program that a fork ran."""
    orders, reports = _take_standard_streams()
    _raise_file_limit()
    gc.disable()
    warm()
    gc.collect()
    gc.freeze()
    template = os.getpid()
    inherited = search_path(os.environ.get("PYTHONPATH", ""))
    if (threads := lasting_threads()) > 1:
        print(f"the worker template has {threads} threads instead of one: its workers may hang", file=sys.stderr, flush=True)
    order = ForkServer(orders, reports).run()
    if order is not None:
        become(order, template, inherited)
    return 0


def warm() -> None:
    """Import what workers import. What cannot be imported here is the business of the worker that wants it."""
    for name in (*WORKER, *LIBRARIES, *_own_modules(), *_architectures()):
        with contextlib.suppress(ImportError, OSError, RuntimeError):
            importlib.import_module(name)


def lasting_threads() -> int:
    """The threads of this process that a fork finds running, the libraries' included (proc(5), /proc/self/task).

    OpenBLAS, which NumPy brings, ends its own before every fork and starts them when it next needs them.
    """
    trial = os.fork()
    if trial == 0:
        os._exit(0)
    os.waitpid(trial, 0)
    return len(list(Path("/proc/self/task").iterdir()))


def _take_standard_streams() -> tuple[int, int]:
    """The two pipes to the frontend, out of the way of whoever prints: output goes where errors go until a fork has its own."""
    orders, reports = os.dup(0), os.dup(1)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return orders, reports


def _raise_file_limit() -> None:
    """Two pipes a worker: as many files as may be had."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _own_modules() -> list[str]:
    found = []
    for package in PACKAGES:
        spec = importlib.import_module(package)
        found += [f"{package}.{module.name}" for module in pkgutil.iter_modules(spec.__path__)]
    return [name for name in found if name not in OPTIONAL]


def _architectures() -> list[str]:
    kinds = ("configuration", "modeling", "tokenization")
    return [f"transformers.models.{name}.{kind}_{name}" for name in ARCHITECTURES for kind in kinds]


if __name__ == "__main__":
    sys.exit(main())
