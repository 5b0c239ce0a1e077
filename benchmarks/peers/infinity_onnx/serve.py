"""Starts infinity from inside the model's folder: its optimum engine finds a local ONNX file by a relative path only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    folder, *options = sys.argv[1:]
    os.chdir(folder)
    program = str(Path(sys.executable).with_name("infinity_emb"))
    os.execv(program, [program, "v2", "--model-id", ".", *options])  # noqa: S606 - own arguments
