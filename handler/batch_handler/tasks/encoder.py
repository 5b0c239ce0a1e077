"""What every task over an encoder is built from: tokeniser, engine, and what becomes of texts that are too long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batch_handler.engines import Engine
from batch_handler.settings import Settings
from batch_handler.tasks.pretrained import engine_for, load_model, load_tokenizer, longest_input
from batch_handler.tasks.tokenisation import Tokeniser


class EncoderTask:
    """The base of the encoder tasks; `_load` is their constructor's first line."""

    _tokenizer: Any
    _tokeniser: Tokeniser
    _truncation: bool
    _engine: Engine
    padded: bool
    team_tokens: int
    stepwise = False

    def _load(
        self,
        auto_class: Any,
        directory: Path,
        settings: Settings,
        *,
        head: bool,
        per_token: bool = False,
        cut: str = "longest_first",
        own_limit: int | None = None,
    ) -> Any:
        """Load tokenizer and model from `directory`; returns the model's configuration.

        `head` says that the model classifies, `per_token` that it does so token by token, `cut` what of a pair is
        shortened, `own_limit` how many tokens the artefact itself allows.
        """
        self._tokenizer = load_tokenizer(directory, settings)
        self._tokeniser = Tokeniser(self._tokenizer, longest_input(directory, self._tokenizer, settings, own_limit), cut)
        self._truncation = settings.truncation
        model = load_model(auto_class, directory, settings, engine=True)
        self._engine = engine_for(model, directory, settings, head, per_token)
        self.padded, self.team_tokens = self._engine.padded, self._engine.team_tokens
        return model.config
