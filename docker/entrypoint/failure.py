"""Why a start can fail, as an exception with an exit code; `serve` turns it into the last line."""

from __future__ import annotations

BAD_SETTING = 2
BAD_ARTEFACT = 3
CANNOT_RUN = 1


class StartError(Exception):
    """The server cannot start or go on: one sentence and the exit code."""

    def __init__(self, sentence: str, code: int = CANNOT_RUN) -> None:
        super().__init__(sentence)
        self.code = code
