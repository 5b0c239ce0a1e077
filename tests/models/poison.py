"""Models that end their own process when they are asked to: a real pipeline, whose forward pass dies on a marked token."""

from __future__ import annotations

import json
from pathlib import Path

from models import encoders

MARK = "gloomy"
"""A word of the encoder's vocabulary; whatever text holds it kills the process that runs it."""
MODELING = """
import os
import signal

from transformers import BertForSequenceClassification


class MortalForSequenceClassification(BertForSequenceClassification):
    def __init__(self, config):
        super().__init__(config)
        self.bert.embeddings.word_embeddings.register_forward_pre_hook(self.die)

    def die(self, module, inputs):
        if (inputs[0] == self.config.deadly_token).any():
            os.kill(os.getpid(), signal.SIGKILL)
"""


def save_mortal(directory: Path) -> Path:
    """A classifier with code of its own (HF_TRUST_REMOTE_CODE) that dies of one word."""
    encoders.save(directory)
    vocabulary = json.loads((directory / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    path = directory / "config.json"
    config = json.loads(path.read_text("utf-8"))
    config["auto_map"] = {"AutoModelForSequenceClassification": "modeling_mortal.MortalForSequenceClassification"}
    config["architectures"] = ["MortalForSequenceClassification"]
    config["deadly_token"] = vocabulary[MARK]
    path.write_text(json.dumps(config), "utf-8")
    (directory / "modeling_mortal.py").write_text(MODELING, "utf-8")
    return directory
