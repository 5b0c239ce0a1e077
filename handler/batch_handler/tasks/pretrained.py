"""Loading what `save_pretrained` wrote: models in full precision and tokenisers, from local files only."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from packaging.version import Version
from transformers import AutoConfig, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from batch_handler import resources
from batch_handler.device import place
from batch_handler.engines import Engine, choose
from batch_handler.settings import Settings

NO_LIMIT = 1_000_000
DTYPE = "dtype" if Version(version("transformers")) >= Version("4.56") else "torch_dtype"
disable_progress_bar()  # type: ignore[no-untyped-call]  # not annotated there
OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")
"""Models whose positions start after the padding index, so that as many of them cannot be used."""


def load_model(auto_class: Any, directory: Path, settings: Settings, engine: bool = False) -> Any:
    """A model in evaluation mode, loaded as float32, on its device in its precision; safetensors first, pickled code never.

    `engine` says that it gets one, whose precisions are its own. Raises what transformers raises when files do not fit
    together; the caller's start-up turns it into one sentence.
    """
    model = auto_class.from_pretrained(
        directory,
        **{DTYPE: torch.float32},
        local_files_only=True,
        trust_remote_code=settings.trust_remote_code,
    )
    return place(model.eval().requires_grad_(False), settings, engine)


def sample_logits(model: Any) -> torch.Tensor:
    """What a generating model says after two short rows of tokens: rows × tokens × vocabulary."""
    tokens = torch.arange(5, 15, device=model.device).reshape(2, 5) % model.config.vocab_size
    decoder = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    logits: torch.Tensor = model(input_ids=tokens, use_cache=False, **decoder).logits
    return logits


def engine_for(model: Any, directory: Path, settings: Settings, head: bool, per_token: bool = False) -> Engine:
    """The engine for a model and the directory that it was loaded from. Raises what `engines.choose` raises."""
    lanes = settings.threads or resources.available().whole_cpus
    return choose(model, settings.engine, head, per_token, directory, settings.precision, lanes)


def load_tokenizer(directory: Path, settings: Settings) -> Any:
    """The artefact's tokeniser, the Rust one where it has one."""
    return AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=settings.trust_remote_code)


def longest_input(directory: Path, tokenizer: Any, settings: Settings, own_limit: int | None = None) -> int:
    """Tokens that fit: the smallest of the tokeniser's limit, the artefact's own and the model's positions."""
    config = AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=settings.trust_remote_code)
    positions = getattr(config, "max_position_embeddings", None)
    if positions and config.model_type in OFFSET_POSITIONS:
        positions -= (config.pad_token_id or 0) + 1
    limits = [limit for limit in (tokenizer.model_max_length, positions, own_limit) if limit and 0 < limit < NO_LIMIT]
    return int(min(limits, default=NO_LIMIT))
