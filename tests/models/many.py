"""Small artefacts of several kinds, each of which answers with a word of its own: whose answer one got can be told."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

from models import encoders

SCRIPT = """
import json, os, sys, time

WORD = {word!r}

def model_fn(model_dir):
    return WORD

def input_fn(data, content_type):
    return json.loads(data)

def predict_fn(data, model):
    if data["inputs"] == "end":
        os.kill(os.getpid(), 9)
    if data["inputs"] == "wait":
        time.sleep(float(data["seconds"]))
    return {{"word": model, "pid": os.getpid(), "task": os.environ.get("HF_TASK"), "threads": os.environ["BYOC_THREADS"]}}
"""
HANDLER = """
import json

def handle(data, context):
    return [json.dumps({{"word": {word!r}}}).encode() for _ in data or []]
"""


def save_encoder(directory: Path, word: str) -> Path:
    """A classifier of random weights, the word in the names of its labels."""
    shutil.copytree(_classifier(), directory)
    path = directory / "config.json"
    config = json.loads(path.read_text("utf-8"))
    config["id2label"] = {"0": f"{word} 0", "1": f"{word} 1"}
    config["label2id"] = {f"{word} 0": 0, f"{word} 1": 1}
    path.write_text(json.dumps(config), "utf-8")
    return directory


@functools.cache
def _classifier() -> Path:
    return encoders.save(Path(tempfile.mkdtemp(prefix="many-")) / "model")


def save_script(directory: Path, word: str, config: str = "") -> Path:
    """SageMaker's code/inference.py. It ends or waits when a request says so. `config` becomes its model-config.yaml."""
    (directory / "code").mkdir(parents=True)
    (directory / "code" / "inference.py").write_text(SCRIPT.format(word=word), "utf-8")
    (directory / "model-config.yaml").write_text(config, "utf-8")
    return directory


def save_archive(directory: Path, word: str, config: str = "", handler: str = HANDLER) -> Path:
    """A TorchServe archive with a handler of its own, and with `config` as its model-config.yaml."""
    directory.mkdir(parents=True)
    model = {"modelName": "some", "modelVersion": "3.0", "handler": "own.py:handle", "configFile": "model-config.yaml"}
    with zipfile.ZipFile(directory / "some.mar", "w") as archive:
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps({"runtime": "python", "model": model}))
        archive.writestr("own.py", handler.format(word=word))
        archive.writestr("model-config.yaml", config)
    return directory


KINDS: Mapping[str, Callable[[Path, str], Path]] = {"encoder": save_encoder, "script": save_script, "archive": save_archive}


def save(directory: Path, number: int) -> tuple[Path, str]:
    """The artefact of that number and its word; the kinds take turns."""
    kind = list(KINDS)[number % len(KINDS)]
    word = f"{kind}-{number}"
    return KINDS[kind](directory / word, word), word


def word_of(answer: httpx.Response) -> str:
    """The word in an answer to a JSON request with one input."""
    told = answer.json()
    return str(told["word"] if "word" in told else told["label"].rpartition(" ")[0])
