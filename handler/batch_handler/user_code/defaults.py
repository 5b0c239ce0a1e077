"""What stands in for a function that a script does not define, as the SageMaker PyTorch inference toolkit documents it.

JSON and CSV become float32 tensors, npy a tensor of its own type; the model runs without gradients; the answer is JSON,
CSV or npy. Nothing is unpickled.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy
import torch
from sagemaker_inference import content_types

from batch_handler.artefact import ArtefactError, torchscript_files
from batch_handler.errors import ErrorType, ServiceError, invalid_request, quote
from batch_handler.formats import npy
from batch_handler.user_code import answers

JSON: str = content_types.JSON
READABLE = (content_types.JSON, content_types.CSV, content_types.NPY)


def model_fn(model_dir: str) -> Any:
    """The one TorchScript file of the model directory. Raises ArtefactError when there is none or several."""
    files = torchscript_files(Path(model_dir))
    named = [path for path in files if path.name == "model.pt"]
    chosen = named or files
    if len(chosen) != 1:
        raise ArtefactError("the script defines no model_fn, and there is no TorchScript model.pt to load: define model_fn")
    return torch.jit.load(str(chosen[0]), map_location=_device()).eval()  # type: ignore[no-untyped-call]


def input_fn(data: str | bytes, content_type: str) -> torch.Tensor:
    """The body as a tensor. Raises ServiceError: 400 for what holds no numbers, 415 for another type."""
    name = content_type.partition(";")[0].strip().lower()
    if name == content_types.NPY:
        return torch.from_numpy(npy.load(bytes(data) if not isinstance(data, str) else data.encode())).to(_device())
    if name not in READABLE:
        message = f"the content type {quote(name)} cannot be read without an input_fn: send {', '.join(READABLE)}"
        raise ServiceError(ErrorType.UNSUPPORTED_MEDIA_TYPE, message)
    text = data if isinstance(data, str) else bytes(data).decode("utf-8")
    values = _json_values(text) if name == JSON else _csv_values(text)
    try:
        return torch.from_numpy(numpy.array(values, dtype=numpy.float32)).to(_device())
    except (ValueError, TypeError, OverflowError):
        raise invalid_request("the body must hold numbers, in rows of equal length") from None


def predict_fn(data: Any, model: Any) -> Any:
    """One call of the model, without gradients, on its device."""
    device = _device()
    with torch.no_grad():
        if isinstance(model, torch.nn.Module):
            model.to(device).eval()
        return model(data.to(device) if isinstance(data, torch.Tensor) else data)


def output_fn(prediction: Any, accept: str) -> tuple[bytes, str]:
    """JSON, CSV or npy, as accepted. Raises ServiceError (406) for another type or a result without such a form."""
    name = accept.partition(";")[0].strip().lower()
    body = answers.as_json(prediction) if name == JSON else None
    if name in answers.WRITERS:
        body = answers.WRITERS[name](prediction)
    if body is None:
        message = f"the answer cannot be written as {quote(name)} without an output_fn: accept {', '.join(READABLE)}"
        raise ServiceError(ErrorType.NOT_ACCEPTABLE, message)
    return body, accept


def _json_values(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise invalid_request("the body is not valid JSON") from None


def _csv_values(text: str) -> Any:
    """Rows of numbers; a lone row or column is a vector, as NumPy's own reader has it."""
    try:
        rows = [[float(cell) for cell in row] for row in csv.reader(io.StringIO(text)) if row]
        return numpy.array(rows, dtype=numpy.float32).squeeze()
    except (ValueError, csv.Error):
        raise invalid_request("the body must be rows of numbers of equal length") from None


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
