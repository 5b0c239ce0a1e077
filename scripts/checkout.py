"""The checkout's own environment, which a script needs whichever Python it was started with.

Imported before anything that is not in the standard library.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
ENVIRONMENT = CHECKOUT / ".venv"


def enter(modules: Sequence[str], environment: Path = ENVIRONMENT, command: str = "make tools") -> None:
    """Start the running script again with the environment's Python, unless that runs it already.

    Ends the program with one sentence when there is no environment and `modules` are not all here either;
    `command` is what brings them.
    """
    python = environment / "bin" / "python"
    if Path(sys.prefix).resolve() != environment.resolve() and os.access(python, os.X_OK):
        os.execv(python, [str(python), *sys.argv])  # noqa: S606 -- the same script, in its environment
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        script = Path(sys.argv[0]).stem
        sys.exit(f"{script}: Python has no {', '.join(missing)} here: run {command} in {CHECKOUT} first")
