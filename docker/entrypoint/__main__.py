"""The command line: ``serve`` (also without arguments), ``healthcheck``, or any other command, which is exec'd.

The frontend of a multi-model endpoint starts ``prepare-models`` for itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

COMMAND_NOT_FOUND = 127
COMMAND_NOT_EXECUTABLE = 126
HINT = "--hint"
PREPARER = "prepare-models"


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code. Imports only what that command needs: a health check must be quick."""
    command, *rest = arguments or ["serve"]
    if command == "serve" and set(rest) <= {HINT}:
        return serve(hint=HINT in rest or sys.stdout.isatty())
    if command == PREPARER and len(rest) == 1:
        from entrypoint.preparer import main as prepare_models

        return prepare_models(Path(rest[0]))
    if command == "healthcheck" and not rest:
        from entrypoint.healthcheck import healthcheck

        return healthcheck(os.environ)
    return execute([command, *rest])


def serve(hint: bool) -> int:
    """Handle signals before the rest is even imported: the kernel drops those that PID 1 has no handler for."""
    from entrypoint.process import Signals, StopRequested

    signals = Signals()
    try:
        from entrypoint.serve import serve as run

        return run(signals, hint)
    except StopRequested:
        return 0


def execute(command: Sequence[str]) -> int:
    """Become another program (``docker run IMAGE bash``); returns only on failure, with the shell's code for it."""
    try:
        os.execvp(command[0], list(command))  # noqa: S606 -- becoming that program is the point
    except FileNotFoundError:
        print(f"{command[0]}: command not found (this image knows serve and healthcheck)", file=sys.stderr)
        return COMMAND_NOT_FOUND
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return COMMAND_NOT_EXECUTABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
