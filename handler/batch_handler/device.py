"""The worker's device: which GPU is its own, in what precision a model runs there, on which stream a lane works, and which
faults it does not survive. What is run belongs to engines and tasks.

Sources: torch's notes on CUDA semantics and on automatic mixed precision; the CUDA programming guide on error codes.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import warnings
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, NoReturn

import torch

from batch_handler.internal import GPUS
from batch_handler.settings import SettingError, Settings

log = logging.getLogger(__name__)

VISIBLE = "CUDA_VISIBLE_DEVICES"
SIXTEEN_BITS = {"bf16": torch.bfloat16, "fp16": torch.float16}
CAPABILITIES = {"tf32": (8, 0), "bf16": (8, 0), "fp16": (7, 0)}
"""The compute capability from which a GPU has units for it; below, it would be emulated and slower than fp32."""
FATAL = (
    *("device-side assert", "illegal memory access", "illegal instruction", "misaligned address", "invalid address space"),
    *("invalid program counter", "unspecified launch failure", "hardware stack error", "ecc error", "launch timed out"),
)
"""After these every later call of CUDA in the process fails too."""

Run = Callable[[Sequence[Any]], Sequence[Any]]


def pin(gpu: int | None, environment: MutableMapping[str, str] = os.environ) -> None:
    """Leave this process the GPU that TorchServe gave it, by its identifier and before CUDA starts: numbers depend on what
    else is visible, and a MIG slice has none."""
    identifiers = [one for one in environment.get(GPUS, "").split(",") if one]
    if gpu is not None and gpu < len(identifiers):
        environment[VISIBLE] = identifiers[gpu]


def device(settings: Settings) -> torch.device:
    """Where the model runs. Raises SettingError when CUDA is asked for and absent."""
    usable = settings.device != "cpu" and torch.cuda.is_available()
    if settings.device == "cuda" and not usable:
        raise SettingError("BYOC_DEVICE=cuda, but no CUDA device can be used here: use auto or cpu")
    if settings.device == "auto" and not usable and os.environ.get(GPUS):
        _tell_unusable(os.environ[GPUS])
    return torch.device("cuda" if usable else "cpu")


def describe(where: torch.device, settings: Settings) -> str:
    """A few words for the log on where a model runs; nothing on the CPU, where all of them do without a word."""
    if where.type != "cuda":
        return ""
    precision = "fp32" if settings.precision == "auto" else settings.precision
    return f" device=cuda ({torch.cuda.get_device_name(where)}) precision={precision}"


def place(model: Any, settings: Settings, engine: bool = False) -> Any:
    """The model on its device and in its precision. Raises SettingError for a precision that the device has not.

    On the CPU a precision is an engine's to have, where the model gets an `engine`.
    """
    where = device(settings)
    check_precision(settings.precision, where, engine)
    if where.type != "cuda":
        return model.to(where)
    allow_tf32(settings.precision == "tf32")
    placed = model.to(where)
    return autocast(placed, where.type, SIXTEEN_BITS[settings.precision]) if settings.precision in SIXTEEN_BITS else placed


def check_precision(precision: str, where: torch.device, engine: bool = False) -> None:
    """Raises SettingError where the device cannot compute in it. What an `engine` on the CPU computes in is its own to say."""
    if where.type != "cuda":
        if precision in ("tf32", "fp16"):
            raise SettingError(f"BYOC_PRECISION={precision} needs a GPU, and this model runs on the CPU: use auto or fp32")
        if not engine and precision not in ("auto", "fp32"):
            raise SettingError(f"BYOC_PRECISION={precision} on the CPU is for encoders of text: use auto or fp32")
        return
    if precision in ("int8", "int8-weights"):
        raise SettingError(
            f"BYOC_PRECISION={precision} runs on the CPU alone: set BYOC_DEVICE=cpu, or use fp32, tf32, bf16 or fp16"
        )
    needed, found = CAPABILITIES.get(precision, (0, 0)), torch.cuda.get_device_capability(where)
    if found < needed:
        able = [name for name in ("fp16", "fp32") if found >= CAPABILITIES.get(name, (0, 0))]
        raise SettingError(
            f"BYOC_PRECISION={precision} needs a GPU of compute capability {needed[0]}.{needed[1]} or newer, and "
            f"{torch.cuda.get_device_name(where)} has {found[0]}.{found[1]}: use {' or '.join(able)}"
        )


def allow_tf32(allowed: bool) -> None:
    """Whether products of fp32 may be computed in 19 bits. torch's own default allows it in convolutions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer names exist; once they are used, libraries that read these fail
        torch.backends.cuda.matmul.allow_tf32 = allowed
        torch.backends.cudnn.allow_tf32 = allowed


def autocast(model: Any, kind: str, dtype: torch.dtype) -> Any:
    """The same model, computing in 16 bits what bears it and giving its results in 32.

    Its encoder is entered by itself too, by engines and by generation, hence every part that has a door gets it. The class
    is changed, not the instance: engines copy modules, and a function bound to the original would come along.
    """
    parts = [model, getattr(model, "base_model", model)]
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        parts.append(model.get_encoder())
    for part in {id(part): part for part in parts}.values():
        part.__class__ = _autocasting(type(part), kind, dtype)  # type: ignore[arg-type]  # a class is hashable
    return model


def use_lane(where: torch.device) -> Callable[[int], None]:
    """What a lane does before each of its passes: sets its kernels' threads; on a GPU takes a stream of its own.

    A lane's copies and kernels follow one another in its stream and overlap with another lane's: while one waits for its
    results, the other tokenises, copies and launches.
    """
    if where.type != "cuda":
        return torch.set_num_threads
    mine = threading.local()

    def on_stream(_: int) -> None:
        if not hasattr(mine, "stream"):
            torch.set_num_threads(1)
            torch.cuda.synchronize()  # the weights were copied in another stream
            mine.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # not annotated there
            torch.cuda.set_stream(mine.stream)

    return on_stream


def to_device(tensor: torch.Tensor, where: torch.device) -> torch.Tensor:
    """A copy on the device; from pinned memory, so that it takes its place in the stream and nobody waits for it."""
    return tensor.pin_memory().to(where, non_blocking=True) if where.type == "cuda" else tensor


def watched(run: Run) -> Run:
    """`run`, after whose fatal faults the worker ends; what ran out of memory first gives back what it holds unused."""

    def watching(passes: Sequence[Any]) -> Sequence[Any]:
        try:
            return run(passes)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            raise
        except RuntimeError as error:
            end_if_fatal(error)
            raise

    return watching


def end_if_fatal(error: BaseException) -> None:
    """End the worker when its GPU answers nothing any more: the frontend tells its callers and starts another.

    Judged by the type as well as by the words, which a caller's text may hold.
    """
    if isinstance(error, torch.AcceleratorError) and any(sign in str(error).lower() for sign in FATAL):
        end_worker(str(error).splitlines()[0])


def end_worker(why: str) -> NoReturn:
    """No handlers, no threads to wait for: nothing that touches CUDA would return."""
    log.critical("the GPU failed this process for good (%s): the worker ends and is replaced", why)
    logging.shutdown()
    os._exit(1)


@functools.cache
def _tell_unusable(identifiers: str) -> None:
    """Once in a process: many ask where their model runs."""
    log.warning("torch can use none of the GPUs %s: this worker serves on the CPU", identifiers)


@functools.cache
def _autocasting(cls: type[Any], kind: str, dtype: torch.dtype) -> type[Any]:
    """A class like the one given, under its name, whose forward pass runs in 16 bits."""

    @functools.wraps(cls.forward)
    def forward(self: Any, *arguments: Any, **named: Any) -> Any:
        with torch.autocast(kind, dtype):
            output = cls.forward(self, *arguments, **named)
        return _in_32_bits(output)

    return type(cls.__name__, (cls,), {"forward": forward, "__module__": cls.__module__, "__doc__": cls.__doc__})


def _in_32_bits(output: Any) -> Any:
    """A model's output with its floating-point tensors as float32, where callers and NumPy read them."""
    if isinstance(output, torch.Tensor):
        return output.float() if output.is_floating_point() else output
    if isinstance(output, tuple):
        return tuple(_in_32_bits(part) for part in output)
    if isinstance(output, MutableMapping):
        for name, value in output.items():
            if isinstance(value, torch.Tensor):
                output[name] = _in_32_bits(value)
    return output
