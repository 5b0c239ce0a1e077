"""Writes the model as ONNX, in the layout in which infinity looks for one: python -m …export SOURCE TARGET."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from optimum.exporters.onnx import main_export  # type: ignore[import-not-found]  # in its own environment only


def main(source: Path, target: Path) -> None:
    """Export, and cut texts where sentence-transformers cuts them: the optimum engine knows the model's positions only."""
    # Taken for one of sentence-transformers, the model would name its outputs as infinity does not expect them.
    main_export(str(source), output=str(target), task="feature-extraction", library_name="transformers", device="cpu")
    own = source / "sentence_bert_config.json"
    if own.exists():
        config = json.loads((target / "config.json").read_text("utf-8"))
        config["max_position_embeddings"] = json.loads(own.read_text("utf-8"))["max_seq_length"]
        (target / "config.json").write_text(json.dumps(config, indent=2), "utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
