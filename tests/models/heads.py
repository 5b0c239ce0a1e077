"""Tiny encoders under the heads that judge tokens, spans, masks and pairs; two of them trained so that answers mean something."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import BertForQuestionAnswering, BertForTokenClassification

from models.encoders import CONFIGURATIONS, LONGEST, _bert
from models.language import Story, stories, wordpiece

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
PEAK_RATE = 5e-3
MAX_GRADIENT_NORM = 1.0  # without a bound some machines' rounding leaves a reader that is wrong one time in ten
QUESTIONS = {"PER": "who travels", "LOC": "where to"}
NATURAL_LANGUAGE_INFERENCE = {
    "id2label": {0: "contradiction", 1: "neutral", 2: "entailment"},
    "label2id": {"contradiction": 0, "neutral": 1, "entailment": 2},
}
TAGS = {"id2label": dict(enumerate(LABELS)), "label2id": {label: index for index, label in enumerate(LABELS)}}


def save(directory: Path, architecture: str, head: str, **settings: Any) -> Path:
    """An artefact with random weights: `head` is what follows ``AutoModelFor`` in transformers."""
    configure, tokenizer = CONFIGURATIONS[architecture]
    config = configure(len(tokenizer()))
    for name, value in settings.items():
        setattr(config, name, value)
    torch.manual_seed(13)
    model = getattr(transformers, f"AutoModelFor{head}").from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("classifier.bias", "qa_outputs.bias", "decoder.bias", "predictions.bias", "lm_head.bias")):
                weight.normal_(std=0.5)
    model.eval().save_pretrained(directory)
    tokenizer().save_pretrained(directory)
    return directory


def story_tokenizer() -> Any:
    """A tokeniser that knows the questions, and cuts most names into pieces."""
    return wordpiece(LONGEST, more=[" ".join(QUESTIONS.values())] * 50)


def save_tagger(directory: Path) -> Path:
    """A token classifier that has learnt which words are people and which are places."""
    tokenizer = story_tokenizer()
    model = _blank(BertForTokenClassification, len(tokenizer), **TAGS)

    def loss(batch: Sequence[Story]) -> torch.Tensor:
        encoded = tokenizer([list(story.words) for story in batch], is_split_into_words=True, padding=True, return_tensors="pt")
        width = encoded["input_ids"].shape[1]
        labels = torch.full((len(batch), width), -100)
        for row, story in enumerate(batch):
            before = None
            for place, word in enumerate(encoded.word_ids(row)):
                if word is not None:
                    label = story.labels[word]
                    labels[row, place] = LABELS.index(label.replace("B-", "I-") if word == before else label)
                before = word
        return model(**encoded, labels=labels).loss

    _train(model, loss, stories(1_024, seed=31), epochs=6)
    return _saved(directory, model, tokenizer)


def save_reader(directory: Path) -> Path:
    """A question answerer that has learnt to find the person for ``who`` and the place for ``where``."""
    tokenizer = story_tokenizer()
    model = _blank(BertForQuestionAnswering, len(tokenizer))
    chooser = torch.Generator().manual_seed(17)

    def loss(batch: Sequence[Story]) -> torch.Tensor:
        kinds = ["PER" if torch.randint(2, (1,), generator=chooser) else "LOC" for _ in batch]
        encoded = tokenizer(
            [QUESTIONS[kind] for kind in kinds], [story.text for story in batch], padding=True, return_tensors="pt"
        )
        places = []
        for row, (kind, story) in enumerate(zip(kinds, batch, strict=True)):
            start = story.text.index(story.named(kind))
            end = start + len(story.named(kind)) - 1
            places.append((encoded.char_to_token(row, start, 1), encoded.char_to_token(row, end, 1)))
        starts, ends = (torch.tensor(side) for side in zip(*places, strict=True))
        return model(**encoded, start_positions=starts, end_positions=ends).loss

    _train(model, loss, stories(1_024, seed=41), epochs=24)
    return _saved(directory, model, tokenizer)


def _blank(kind: Any, vocabulary: int, **settings: Any) -> Any:
    config = _bert(vocabulary)
    config.initializer_range, config.hidden_dropout_prob, config.attention_probs_dropout_prob = 0.05, 0.0, 0.0
    for name, value in settings.items():
        setattr(config, name, value)
    torch.manual_seed(3)
    return kind(config).train()


def _train(model: Any, loss: Any, examples: Sequence[Story], epochs: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, total_steps=epochs * len(examples) // 64)
    for start in range(0, epochs * len(examples), 64):
        part = loss(examples[start % len(examples) : start % len(examples) + 64])
        optimizer.zero_grad()
        part.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        schedule.step()


def _saved(directory: Path, model: Any, tokenizer: Any) -> Path:
    model.eval().save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
