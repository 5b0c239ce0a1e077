"""Numbers in, numbers out: TorchScript files and exported programs, which say nothing of what they were made for.

Records of equal shape are stacked along a new first axis into one forward pass, and its results cut apart again. Nothing
is unpickled: torch.jit and torch.export read their own formats, tensors by torch's restricted reader.
"""

from __future__ import annotations

import math
import os
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch

from batch_handler.artefact import ArtefactError, exported_files, torchscript_files
from batch_handler.device import device
from batch_handler.errors import ErrorType, ServiceError, invalid_record
from batch_handler.formats.options import Layout
from batch_handler.request import Record
from batch_handler.settings import SettingError, Settings
from batch_handler.tasks import Encoded
from batch_handler.tasks.parameters import checked, one_of

Array = numpy.ndarray[Any, Any]
TYPES: Mapping[str, Any] = {
    "float32": numpy.float32,
    "float64": numpy.float64,
    "float16": numpy.float16,
    "int64": numpy.int64,
    "int32": numpy.int32,
    "uint8": numpy.uint8,
    "bool": numpy.bool_,
}
PARAMETERS = {"dtype": one_of(*TYPES)}
NUMERIC = "biuf"
OPAQUE = "/data/constants/opaque_obj_"
WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


@dataclass(frozen=True, slots=True)
class Expected:
    """One input of an exported program: its name, a record's shape (None where any size goes) and its type."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Program:
    """A loaded model. ``inputs`` is empty where the file does not tell; ``batch`` is the one size it was exported for."""

    call: Callable[..., Any]
    kind: str
    floating: str
    inputs: tuple[Expected, ...] = ()
    batch: int | None = None


class Tensor:
    """A program over tensors. A record is an array, or an object of arrays by the names of the program's inputs."""

    holds = ("value", "tensor", "numbers")
    writes = ("json", "json_lines", "csv", "npy")
    result_keys = ()
    padded = False
    team_tokens = 0
    stepwise = False

    def __init__(self, program: Program, where: torch.device) -> None:
        self._program = program
        self._device = where
        self.layout = Layout(columns=_columns, line=str)

    @property
    def description(self) -> str:
        """The kind of file, and what it takes where it tells."""
        inputs = ", ".join(f"{one.name} {_shown(one.shape)} {one.dtype}" for one in self._program.inputs) or "any"
        return f"engine={self._program.kind} inputs={inputs}"

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Numbers to arrays, checked against the program's own shapes where it has them."""
        return [self._encoded(record) for record in records]

    def _encoded(self, record: Record) -> Encoded | ServiceError:
        try:
            wanted = checked(record.parameters, PARAMETERS).get("dtype")
            named = record.inputs if isinstance(record.inputs, dict) else {"": record.inputs}
            if not named:
                raise invalid_record("an object must hold arrays by the names of the model's inputs")
            arrays = {str(name): self._array(str(name), value, wanted) for name, value in named.items()}
            self._check(arrays)
        except ServiceError as error:
            return error
        shapes = tuple((name, array.dtype.str, array.shape) for name, array in arrays.items())
        rows = max(math.prod(array.shape[:-1]) for array in arrays.values())
        return Encoded(arrays, max(1, rows), group=shapes)

    def _array(self, name: str, value: Any, wanted: str | None) -> Array:
        """JSON and CSV numbers become the type that the program tells, else float32; npy keeps its own."""
        try:
            array = numpy.asarray(value)
        except ValueError:
            raise invalid_record("the lists of a record must be of equal lengths: it is no array") from None
        if array.dtype.kind not in NUMERIC:
            raise invalid_record("a record must be a number, a list of numbers, or lists of them")
        own = next((one.dtype for one in self._program.inputs if name in ("", one.name)), None)
        default = own or (None if isinstance(value, numpy.ndarray) and array.dtype != numpy.float64 else self._program.floating)
        return numpy.ascontiguousarray(array, TYPES.get(wanted or default or "", array.dtype)).reshape(array.shape)

    def _check(self, arrays: Mapping[str, Array]) -> None:
        inputs = self._program.inputs
        if not inputs:
            return
        names = [one.name for one in inputs]
        if list(arrays) == [""] and len(inputs) == 1:
            names = [""]
        if set(arrays) != set(names):
            raise invalid_record(f"the model takes {len(inputs)} inputs by name: {', '.join(one.name for one in inputs)}")
        for name, one in zip(names, inputs, strict=True):
            shape = arrays[name].shape
            if len(shape) != len(one.shape) or any(want not in (None, size) for want, size in zip(one.shape, shape, strict=True)):
                raise invalid_record(f"a record has the shape {_shown(shape)}, and the model takes {_shown(one.shape)}")

    def run(self, records: Sequence[Encoded]) -> Sequence[Any]:
        """One forward pass, or as many as a program of fixed batch size needs."""
        size = self._program.batch or len(records)
        outputs: list[Any] = []
        for start in range(0, len(records), size):
            chosen = list(records[start : start + size])
            filled = chosen + [chosen[-1]] * ((self._program.batch or len(chosen)) - len(chosen))
            outputs += self._pass(filled)[: len(chosen)]
        return outputs

    def _pass(self, records: Sequence[Encoded]) -> list[Any]:
        names = list(records[0].model_input)
        stacks = {name: numpy.stack([record.model_input[name] for record in records]) for name in names}
        stacked = {name: torch.from_numpy(stack).to(self._device) for name, stack in stacks.items()}
        with torch.inference_mode():
            output = self._program.call(stacked[""]) if names == [""] else self._program.call(**stacked)
        return _cut(output, len(records))

    def decode(self, output: Any, record: Encoded) -> Any:
        """The record's part of the output: an array, or a list or object of them."""
        return output

    def samples(self) -> Sequence[Record]:
        """Zeros of the program's own shape; nothing where that is unknown."""
        inputs = self._program.inputs
        zeros = {one.name: numpy.zeros([size or 1 for size in one.shape], TYPES.get(one.dtype, numpy.float32)) for one in inputs}
        if not zeros:
            return []
        return [Record(next(iter(zeros.values())).tolist() if len(zeros) == 1 else {n: a.tolist() for n, a in zeros.items()}, 1)]


def load(directory: Path, settings: Settings, name: str) -> Tensor:
    """The directory's one TorchScript file or exported program. Raises ArtefactError for a file that cannot be loaded."""
    if settings.precision not in ("auto", "fp32"):
        raise SettingError(f"BYOC_PRECISION={settings.precision}, but a program computes as it was exported: use auto")
    where = device(settings)
    scripted, exported = torchscript_files(directory), exported_files(directory)
    if len(scripted) + len(exported) != 1:
        raise ArtefactError(f"the task {name} needs exactly one TorchScript file (model.pt) or exported program (model.pt2)")
    (path,) = scripted or exported
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Tensor(_torchscript(path, where) if scripted else _exported(path, where), where)
    except (RuntimeError, ValueError, OSError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        said = (str(error).strip().splitlines() or [""])[0]
        raise ArtefactError(f"{path.name} cannot be loaded by torch {torch.__version__}: {said}") from error


def _torchscript(path: Path, where: torch.device) -> Program:
    module = torch.jit.load(str(path), map_location=where).eval()  # type: ignore[no-untyped-call]  # not annotated there
    return Program(module, "torchscript", _floating(module.parameters()))


def _exported(path: Path, where: torch.device) -> Program:
    with zipfile.ZipFile(path) as archive:
        if any(OPAQUE in f"/{name}" for name in archive.namelist()):
            raise ArtefactError(f"{path.name} holds pickled objects, which are never loaded: export the model without them")
    with _weights_only():
        exported = torch.export.load(path)
    wanted = set(exported.graph_signature.user_inputs)
    values = {node.name: node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder" and node.name in wanted}
    if not values or not all(isinstance(value, torch.Tensor) and value.ndim for value in values.values()):
        raise ArtefactError(f"{path.name} takes something else than tensors whose first axis counts the records")
    inputs = tuple(
        Expected(name, tuple(size if isinstance(size, int) else None for size in value.shape[1:]), str(value.dtype)[6:])
        for name, value in values.items()
    )
    fixed = {size for value in values.values() if isinstance(size := value.shape[0], int)}
    module = exported.module().to(where)
    return Program(module, "exported", _floating(module.parameters()), inputs, max(fixed, default=None))


@contextmanager
def _weights_only() -> Iterator[None]:
    """torch.export falls back to unpickling what its restricted reader refuses; this keeps it from that."""
    before = os.environ.get(WEIGHTS_ONLY)
    os.environ[WEIGHTS_ONLY] = "1"
    try:
        yield
    finally:
        os.environ.pop(WEIGHTS_ONLY)
        if before is not None:
            os.environ[WEIGHTS_ONLY] = before


def _floating(parameters: Iterator[torch.nn.Parameter]) -> str:
    """The type that numbers are made for: the weights' own."""
    found = next((str(weight.dtype)[6:] for weight in parameters if weight.is_floating_point()), "float32")
    return found if found in TYPES else "float32"


def _cut(output: Any, count: int) -> list[Any]:
    """One part per record. Raises ValueError for an output whose first axis does not count them."""
    if isinstance(output, torch.Tensor):
        if not output.ndim or len(output) != count:
            raise ValueError(f"the output has the shape {tuple(output.shape)}; its first axis must count {count} records")
        whole = output.float() if output.dtype is torch.bfloat16 else output
        array: Array = numpy.ascontiguousarray(whole.cpu().numpy()).reshape(whole.shape)
        return list(array)
    if isinstance(output, Mapping):
        parts = {str(name): _cut(member, count) for name, member in output.items()}
        return [{name: part[index] for name, part in parts.items()} for index in range(count)]
    if isinstance(output, tuple | list):
        members = [_cut(member, count) for member in output]
        return [[member[index] for member in members] for index in range(count)]
    raise ValueError(f"an output of type {type(output).__name__} cannot be cut apart")


def _columns(result: Any) -> Any:
    if isinstance(result, dict | list) or result.ndim > 1:
        raise ServiceError(ErrorType.NOT_ACCEPTABLE, "text/csv holds numbers and vectors only: accept application/json")
    return numpy.atleast_1d(result)


def _shown(shape: Sequence[int | None]) -> str:
    return "×".join("any" if size is None else str(size) for size in shape) or "of a single number"
