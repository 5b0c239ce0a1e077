"""The model code that all peers share: transformers as its own guides show it. Nothing here is slow on purpose.

Runs in every peer's own environment, so it imports nothing but torch, transformers and the standard library.
Settings come from the environment: BENCH_MODEL (a directory), BENCH_TASK, BENCH_BATCH (records per forward pass; 1 is a
loop), BENCH_THREADS (torch's threads per process; absent: its own choice).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoTokenizer

PORT = int(os.environ.get("BENCH_PORT", "8080"))
WORKERS = int(os.environ.get("BENCH_WORKERS", "1"))
BATCH = int(os.environ.get("BENCH_BATCH", "1"))
LONGEST = {"sentence-embeddings": 256, "text-classification": 512, "translation": 512}


class Model:
    """A loaded model: texts in, results that JSON can hold out."""

    def __init__(self) -> None:
        if os.environ.get("BENCH_THREADS"):
            torch.set_num_threads(int(os.environ["BENCH_THREADS"]))
        directory, self.task = os.environ["BENCH_MODEL"], os.environ["BENCH_TASK"]
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        self.model = LOADERS[self.task].from_pretrained(directory).eval()

    def __call__(self, texts: Sequence[str]) -> list[Any]:
        """One result per text, BATCH texts per forward pass in the order in which they came, padded to the longest."""
        results: list[Any] = []
        for start in range(0, len(texts), BATCH):
            inputs = self.tokenizer(
                list(texts[start : start + BATCH]),
                padding=BATCH > 1,
                truncation=True,
                max_length=LONGEST[self.task],
                return_tensors="pt",
            )
            with torch.inference_mode():
                results.extend(RUNNERS[self.task](self, inputs))
        return results

    def embed(self, inputs: Any) -> list[Any]:
        """The mean of the tokens' states, at unit length."""
        states = self.model(**inputs).last_hidden_state
        mask = inputs["attention_mask"].unsqueeze(-1)
        pooled = (states * mask).sum(1) / mask.sum(1)
        vectors: list[Any] = torch.nn.functional.normalize(pooled, dim=1).tolist()
        return vectors

    def classify(self, inputs: Any) -> list[Any]:
        """The likeliest label with its score."""
        scores, labels = self.model(**inputs).logits.softmax(-1).max(-1)
        names = self.model.config.id2label
        return [{"label": names[label], "score": score} for label, score in zip(labels.tolist(), scores.tolist(), strict=True)]

    def translate(self, inputs: Any) -> list[Any]:
        """Greedy search, as long as the model's own generation settings say."""
        written = self.tokenizer.batch_decode(self.model.generate(**inputs), skip_special_tokens=True)
        return [{"translation_text": text} for text in written]


LOADERS: Mapping[str, Any] = {
    "sentence-embeddings": AutoModel,
    "text-classification": AutoModelForSequenceClassification,
    "translation": AutoModelForSeq2SeqLM,
}
RUNNERS: Mapping[str, Callable[[Model, Any], list[Any]]] = {
    "sentence-embeddings": Model.embed,
    "text-classification": Model.classify,
    "translation": Model.translate,
}


def read(body: bytes) -> list[str]:
    """The texts of a body: one JSON object, or one per line."""
    return [json.loads(line)["inputs"] for line in body.splitlines()]


def write(results: Sequence[Any]) -> str:
    """One line of JSON per result."""
    return "\n".join(json.dumps(result) for result in results)
