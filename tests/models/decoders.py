"""Tiny decoder-only models: GPT-2 with learnt positions, Llama with rotary ones, RWKV with none and no attention mask either."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, RwkvConfig

from models.language import byte_pairs

LONGEST = 96
SPREAD = 0.3
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role not in ('user', 'assistant', 'system') %}{{ raise_exception('unknown role') }}{% endif %}"
    "<s>{{ message.role }}: {{ message.content }}"
    "{% if not (loop.last and message.role == 'assistant') %}</s>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<s>assistant: {% endif %}"
)


def _gpt2(vocabulary: int) -> Any:
    return GPT2Config(
        vocab_size=vocabulary,
        n_positions=LONGEST,
        n_embd=32,
        n_layer=2,
        n_head=4,
        initializer_range=SPREAD,
        bos_token_id=0,
        eos_token_id=2,
    )


def _llama(vocabulary: int) -> Any:
    return LlamaConfig(
        vocab_size=vocabulary,
        max_position_embeddings=LONGEST,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        initializer_range=SPREAD,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )


def _rwkv(vocabulary: int) -> Any:
    return RwkvConfig(
        vocab_size=vocabulary,
        context_length=LONGEST,
        hidden_size=32,
        num_hidden_layers=2,
        attention_hidden_size=32,
        bos_token_id=0,
        eos_token_id=2,
    )


CONFIGURATIONS: Mapping[str, Callable[[int], Any]] = {"gpt2": _gpt2, "llama": _llama, "rwkv": _rwkv}


def save(directory: Path, architecture: str = "llama", chat: bool = False, **generation: Any) -> Path:
    """An artefact; `generation` goes to its generation_config.json."""
    tokenizer = byte_pairs(LONGEST)
    if architecture == "gpt2":
        tokenizer.pad_token = None
    if chat:
        tokenizer.chat_template = CHAT_TEMPLATE
    torch.manual_seed(19)
    model = AutoModelForCausalLM.from_config(CONFIGURATIONS[architecture](len(tokenizer))).eval()
    for name, value in generation.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
