"""A payload of many languages: records of id, text, source and target language, with the model's own answers to them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from models.language import sentences

FIELDS = {"sourceText": "inputs", "sourceLanguage": "parameters.src_lang", "targetLanguage": "parameters.tgt_lang"}
"""The setting BYOC_FIELDS under which the project's own translation reads these records."""
MEDIA_TYPE = "application/jsonlines"
PAIRS = [("en", "fr"), ("fr", "de"), ("en", "fr"), ("de", "en"), ("en", "ru")]


def samples() -> list[dict[str, str]]:
    """One record for each pair of languages; two of them share an id."""
    texts = sentences(len(PAIRS), seed=4)
    return [
        {"uid": f"id-{number % 4}", "sourceText": text, "sourceLanguage": source, "targetLanguage": target}
        for number, (text, (source, target)) in enumerate(zip(texts, PAIRS, strict=True))
    ]


def translations(translator: Path, records: Sequence[dict[str, str]]) -> list[str]:
    """The model's own translation of each record, alone."""
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(translator).eval(), AutoTokenizer.from_pretrained(translator)

    def translated(record: dict[str, str]) -> str:
        tokenizer.src_lang = record["sourceLanguage"]
        inputs = tokenizer(record["sourceText"], return_tensors="pt")
        with torch.no_grad():
            produced = model.generate(**inputs, forced_bos_token_id=tokenizer.get_lang_id(record["targetLanguage"]))
        return str(tokenizer.decode(produced[0], skip_special_tokens=True))

    return [translated(record) for record in records]


def body(records: Sequence[Any]) -> str:
    """JSON Lines; a record that is a text already is a line as it is."""
    return "\n".join(record if isinstance(record, str) else json.dumps(record) for record in records)
