"""Tiny encoders with and without a classification head, one per architecture, weights random but spread out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    DistilBertConfig,
    ElectraConfig,
    GPT2Config,
    ModernBertConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
    XLMRobertaConfig,
)

from models.language import byte_pairs, opinions, wordpiece

LONGEST = 64
SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SPREAD = 0.15
"""Standard deviation of the weights: large enough that attention is far from uniform and a wrong neighbour shows."""


def _bert(vocabulary: int) -> Any:
    return BertConfig(vocab_size=vocabulary, max_position_embeddings=LONGEST, initializer_range=SPREAD, **SIZES)


def _roberta(vocabulary: int, kind: type = RobertaConfig) -> Any:
    return kind(
        vocab_size=vocabulary,
        max_position_embeddings=LONGEST + 2,
        type_vocab_size=1,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        initializer_range=SPREAD,
        **SIZES,
    )


def _distilbert(vocabulary: int) -> Any:
    return DistilBertConfig(
        vocab_size=vocabulary,
        max_position_embeddings=LONGEST,
        dim=32,
        n_layers=2,
        n_heads=4,
        hidden_dim=48,
        initializer_range=SPREAD,
    )


def _electra(vocabulary: int) -> Any:
    return ElectraConfig(
        vocab_size=vocabulary, max_position_embeddings=LONGEST, embedding_size=16, initializer_range=SPREAD, **SIZES
    )


def _modernbert(vocabulary: int) -> Any:
    settings: dict[str, Any] = {"global_attn_every_n_layers": 2, **SIZES}
    return ModernBertConfig(
        vocab_size=vocabulary,
        max_position_embeddings=LONGEST,
        local_attention=72,  # 36 to either side: beyond the lengths compared at load, below LONGEST
        pad_token_id=0,
        bos_token_id=2,
        cls_token_id=2,
        eos_token_id=3,
        sep_token_id=3,
        initializer_range=SPREAD,
        **settings,
    )


def _gpt2(vocabulary: int) -> Any:
    return GPT2Config(
        vocab_size=vocabulary, n_positions=LONGEST, n_embd=32, n_layer=2, n_head=4, initializer_range=SPREAD, pad_token_id=0
    )


CONFIGURATIONS: Mapping[str, tuple[Callable[[int], Any], Callable[[], PreTrainedTokenizerFast]]] = {
    "bert": (_bert, lambda: wordpiece(LONGEST)),
    "roberta": (_roberta, lambda: byte_pairs(LONGEST)),
    "xlm-roberta": (lambda vocabulary: _roberta(vocabulary, XLMRobertaConfig), lambda: byte_pairs(LONGEST)),
    "distilbert": (_distilbert, lambda: wordpiece(LONGEST, types=False)),
    "electra": (_electra, lambda: wordpiece(LONGEST)),
    "modernbert": (_modernbert, lambda: wordpiece(LONGEST, types=False)),
    "gpt2": (_gpt2, lambda: wordpiece(LONGEST, types=False)),
}
PACKABLE = ("bert", "roberta", "xlm-roberta", "distilbert", "electra", "modernbert")


def model(architecture: str, head: bool, **settings: Any) -> Any:
    """A model in evaluation mode. `settings` go to its configuration."""
    configure, tokenizer = CONFIGURATIONS[architecture]
    config = configure(len(tokenizer()))
    for name, value in settings.items():
        setattr(config, name, value)
    torch.manual_seed(7)
    build = AutoModelForSequenceClassification if head else AutoModel
    return build.from_config(config).eval()


def save(directory: Path, architecture: str = "bert", head: bool = True, **settings: Any) -> Path:
    """An artefact: config.json, weights and tokenizer files."""
    model(architecture, head, **settings).save_pretrained(directory)
    CONFIGURATIONS[architecture][1]().save_pretrained(directory)
    return directory


def save_trained(directory: Path) -> Path:
    """A classifier that has learnt which words are good and which are bad; learnt once in a process, saved as often as asked."""
    for part in _trained():
        part.save_pretrained(directory)
    return directory


@cache
def _trained() -> tuple[BertForSequenceClassification, PreTrainedTokenizerFast]:
    tokenizer = wordpiece(LONGEST)
    torch.manual_seed(3)
    config = _bert(len(tokenizer))
    config.initializer_range, config.id2label, config.label2id = 0.02, {0: "bad", 1: "good"}, {"bad": 0, "good": 1}
    classifier = BertForSequenceClassification(config).train()
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=3e-3)
    texts, labels = opinions(1_024, seed=5)
    with _one_thread():
        for start in range(0, 4 * len(texts), 64):
            part = slice(start % len(texts), start % len(texts) + 64)
            batch = tokenizer(texts[part], padding=True, return_tensors="pt")
            loss = classifier(**batch, labels=torch.tensor(labels[part])).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return classifier.eval(), tokenizer


@contextmanager
def _one_thread() -> Iterator[None]:
    """For a model this small: on a busy machine threads wait for each other a hundred times longer than they calculate."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
