"""Artefacts of people who come from elsewhere: a classifier with a SageMaker script, a translation archive with a handler."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

from models import encoders, translators

EXAMPLE = {"SAGEMAKER_TS_BATCH_SIZE": "3", "SAGEMAKER_TS_MAX_BATCH_DELAY": "100000", "SAGEMAKER_MODEL_SERVER_WORKERS": "1"}
"""Settings of the classifier: it waits for three callers, longer than the platform waits for an answer."""
CALL = """
import json, sys, urllib.request
request = urllib.request.Request(sys.argv[1] + "/invocations", json.dumps(sys.argv[2]).encode())
request.add_header("Content-Type", "application/json")
print(json.load(urllib.request.urlopen(request, timeout=50))["label"])
"""
OLD_CALL = "self.tokenizer.encode_plus(text, pad_to_max_length=True, truncation=True, max_length=length, return_tensors='pt')"
NEW_CALL = "self.tokenizer(text, padding='max_length', truncation=True, max_length=length, return_tensors='pt')"
CLASSIFIER = """
import json
import os

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer


class Classifier:
    def __init__(self, model_dir):
        with open(os.path.join(model_dir, "setup_config.json")) as file:
            self.setup = json.load(file)
        with open(os.path.join(model_dir, "index_to_name.json")) as file:
            self.names = json.load(file)
        self.tokenizer = AutoTokenizer.from_pretrained(model_dir)
        self.model = AutoModelForSequenceClassification.from_pretrained(model_dir).eval()

    def encode(self, text):
        length = int(self.setup["max_length"])
        return {ENCODE}


def model_fn(model_dir):
    return Classifier(model_dir)


def input_fn(request_body, request_content_type):
    if request_content_type == "application/json":
        return json.loads(request_body)
    raise ValueError("only application/json is supported")


def predict_fn(input_data, model):
    inputs = model.encode(input_data)
    with torch.no_grad():
        logits = model.model(inputs["input_ids"], attention_mask=inputs["attention_mask"])[0]
    return model.names[str(logits.argmax().item())]


def output_fn(prediction, accept):
    return json.dumps({"label": prediction}), "application/json"
"""

TRANSLATOR = '''
"""A translation handler: JSON Lines in, JSON Lines out, mini-batches over the lines of all requests."""
import json
import os

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import mini_batches


class Handler:
    def __init__(self):
        self.initialized = False

    def initialize(self, context):
        directory = context.system_properties["model_dir"]
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        self.model = AutoModelForSeq2SeqLM.from_pretrained(directory).eval()
        with open(os.path.join(directory, "model_generation.json")) as file:
            self.options = json.load(file)
        self.initialized = True

    def translate(self, samples):
        source, target = samples[0]["sourceLanguage"], samples[0]["targetLanguage"]
        self.tokenizer.src_lang = source
        inputs = self.tokenizer([sample["sourceText"] for sample in samples], return_tensors="pt", padding=True)
        with torch.no_grad():
            produced = self.model.generate(
                **inputs, forced_bos_token_id=self.tokenizer.get_lang_id(target), **self.options
            )
        return self.tokenizer.batch_decode(produced, skip_special_tokens=True)

    def handle(self, data):
        requests = [[json.loads(line) for line in bytes(row["body"]).splitlines() if line.strip()] for row in data]
        flat = [sample for samples in requests for sample in samples]
        texts = [text for batch in mini_batches.of(flat, 3) for text in self.translate(batch)]
        answers = iter(zip(flat, texts))
        lines = [[self.line(*next(answers)) for _ in samples] for samples in requests]
        return ["\\n".join(each) for each in lines]

    def line(self, sample, text):
        answer = {"id": sample["uid"], "translatedText": text}
        answer["signed"] = "from " + sample["sourceLanguage"] + " to " + sample["targetLanguage"]
        return json.dumps(answer)


_service = Handler()


def handle(data, context):
    if not _service.initialized:
        _service.initialize(context)
    if data is None:
        return None
    return _service.handle(data)
'''
MINI_BATCHES = """
def of(samples, size):
    batch = []
    for sample in samples:
        pair = (sample["sourceLanguage"], sample["targetLanguage"])
        if batch and (len(batch) == size or (batch[0]["sourceLanguage"], batch[0]["targetLanguage"]) != pair):
            yield batch
            batch = []
        batch.append(sample)
    if batch:
        yield batch
"""
NEW_TOKENS = 12


def save_classifier(directory: Path, old_api: bool = False, flags: str = "") -> Path:
    """A classifier that knows good words from bad ones, with its own script, as a tarball for SageMaker holds it.

    With `old_api` script and tokenizer files are those of somebody who has had them since version 4 of transformers.
    """
    encoders.save_trained(directory)
    if old_api:
        _write_as_version_4(directory)
    (directory / "setup_config.json").write_text(json.dumps({"max_length": "32", "mode": "sequence_classification"}), "utf-8")
    (directory / "index_to_name.json").write_text(json.dumps({"0": "Bad", "1": "Good"}), "utf-8")
    return save_script(directory, flags + CLASSIFIER.replace("{ENCODE}", OLD_CALL if old_api else NEW_CALL))


def _write_as_version_4(directory: Path) -> None:
    """A word-piece tokenizer as a vocabulary file and a class name."""
    saved = json.loads((directory / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    words = sorted(saved, key=lambda word: int(saved[word]))
    (directory / "vocab.txt").write_text("\n".join(words), "utf-8")
    named = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 64}
    (directory / "tokenizer_config.json").write_text(json.dumps(named), "utf-8")
    (directory / "tokenizer.json").unlink()


def save_tarball(directory: Path, target: Path) -> Path:
    """A model directory as the model.tar.gz that is uploaded."""
    with tarfile.open(target, "w:gz") as archive:
        for path in sorted(directory.iterdir()):
            archive.add(path, path.name)
    return target


def unpack_as_sagemaker(tarball: Path, target: Path) -> Path:
    """What is in /opt/ml/model for a model.tar.gz."""
    with tarfile.open(tarball) as archive:
        archive.extractall(target, filter="data")
    return target


def save_script(directory: Path, text: str, **files: str) -> Path:
    """A model directory of a script alone; `files` lie beside it, ``__`` in their names standing for a dot."""
    (directory / "code").mkdir(parents=True, exist_ok=True)
    for name, content in {"inference__py": text, **files}.items():
        (directory / "code" / name.replace("__", ".")).write_text(textwrap.dedent(content), "utf-8")
    return directory


def asked_by_processes(base_url: str, texts: Sequence[str]) -> list[str]:
    """The labels of texts that as many processes send at once."""
    processes = [
        subprocess.Popen([sys.executable, "-c", CALL, base_url, text], stdout=subprocess.PIPE, text=True) for text in texts
    ]
    return [process.communicate(timeout=60)[0].strip() for process in processes]


def save_translator(directory: Path) -> Path:
    """M2M100 whose answers end soon, whoever asks."""
    translators.save_m2m100(directory)
    path = directory / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "max_new_tokens": NEW_TOKENS}), "utf-8")
    return directory


def save_translation_archive(translator: Path, directory: Path) -> Path:
    """The translator with a handler of its own in a .mar, made by torch-model-archiver; the directory that holds it."""
    parts = directory.with_name(f"{directory.name}-parts")
    parts.mkdir(parents=True)
    directory.mkdir(parents=True)
    (parts / "handler.py").write_text(TRANSLATOR, "utf-8")
    (parts / "mini_batches.py").write_text(MINI_BATCHES, "utf-8")
    (parts / "model_generation.json").write_text(json.dumps({"max_new_tokens": NEW_TOKENS}), "utf-8")
    (parts / "model-config.yaml").write_text("batchSize: 4\nmaxBatchDelay: 50\nhandler:\n  own: key\n", "utf-8")
    extra = [*(str(path) for path in translator.iterdir()), str(parts / "mini_batches.py"), str(parts / "model_generation.json")]
    command = [sys.executable, "-m", "model_archiver.model_packaging", "--model-name", "translator", "--version", "2.1"]
    command += ["--handler", str(parts / "handler.py"), "--extra-files", ",".join(extra)]
    command += ["--config-file", str(parts / "model-config.yaml"), "--export-path", str(directory)]
    subprocess.run(command, check=True, capture_output=True)
    return directory
