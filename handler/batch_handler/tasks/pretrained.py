"""Loading what `save_pretrained` wrote: models in full precision and tokenisers, from local files only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from batch_handler.settings import SettingError, Settings

NO_LIMIT = 1_000_000
disable_progress_bar()  # type: ignore[no-untyped-call]  # not annotated there
OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")
"""Models whose positions start after the padding index, so that as many of them cannot be used."""


def load_model(auto_class: Any, directory: Path, settings: Settings) -> Any:
    """A model in evaluation mode and float32 on the chosen device; safetensors first, pickled code never.

    Raises what transformers raises when files do not fit together; the caller's start-up turns it into one sentence.
    """
    model = auto_class.from_pretrained(
        directory,
        dtype=torch.float32,
        local_files_only=True,
        trust_remote_code=settings.trust_remote_code,
    )
    return model.eval().requires_grad_(False).to(device(settings))


def load_tokenizer(directory: Path, settings: Settings) -> Any:
    """The artefact's tokeniser, the Rust one where it has one."""
    return AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=settings.trust_remote_code)


def device(settings: Settings) -> torch.device:
    """Where the model runs. Raises SettingError when CUDA is asked for and absent."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise SettingError("BYOC_DEVICE=cuda, but no CUDA device can be used here: use auto or cpu")
    return torch.device("cuda" if settings.device != "cpu" and torch.cuda.is_available() else "cpu")


def longest_input(directory: Path, tokenizer: Any, settings: Settings, own_limit: int | None = None) -> int:
    """Tokens that fit: the smallest of the tokeniser's limit, the artefact's own and the model's positions."""
    config = AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=settings.trust_remote_code)
    positions = getattr(config, "max_position_embeddings", None)
    if positions and config.model_type in OFFSET_POSITIONS:
        positions -= (config.pad_token_id or 0) + 1
    limits = [limit for limit in (tokenizer.model_max_length, positions, own_limit) if limit and 0 < limit < NO_LIMIT]
    return int(min(limits, default=NO_LIMIT))
