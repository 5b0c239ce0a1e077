"""A user's script as the tests have it: requests to it, its answers, and one that answers with what it was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import orjson
import pytest

from batch_handler.request import Headers, Request, Response
from batch_handler.script import Script

NEWEST = pytest.mark.skipif(version("transformers").startswith("4."), reason="version 4 of transformers has the older API")
MakeScript = Callable[..., Script]
ECHO = """
import json
def model_fn(model_dir): return "model"
def input_fn(data, content_type): return data
def predict_fn(data, model): return [type(data).__name__, str(data), model]
"""


def request(body: Any, content_type: str | None = "application/json", **headers: str) -> Request:
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Request("request-1", Headers([*named, *([("Content-Type", content_type)] if content_type else [])]), content)


def ask(script: Script, *requests: Request) -> Sequence[Response]:
    return script(requests).responses


def one(script: Script, *arguments: Any, **headers: str) -> Response:
    return ask(script, request(*arguments, **headers))[0]


def message(response: Response) -> str:
    (error,) = orjson.loads(response.body).values()
    return str(error["message"])
