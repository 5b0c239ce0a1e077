"""One target under the fuzzer, in a process of its own: `python -m fuzz.engine TARGET [LIBFUZZER-OPTION or DIRECTORY]...`.

libFuzzer ends the process at the first input that breaks the target, and leaves it where -artifact_prefix says.
"""

from __future__ import annotations

import importlib
import sys

import atheris

READERS = ("numpy.lib._format_impl", "numpy.lib.format", "PIL.Image", "PIL.ImageFile", "PIL.ImageOps", "zipfile", "tokenize")
PLUGINS = tuple(f"PIL.{name}ImagePlugin" for name in ("Jpeg", "Mpo", "Png", "Tiff", "WebP"))
THEIRS = [*READERS, *PLUGINS, "werkzeug.http", "werkzeug.datastructures.accept"]


def main() -> None:
    """Instrument what reads the bytes, then never return."""
    with atheris.instrument_imports(include=THEIRS):
        for name in THEIRS:
            importlib.import_module(name)
    import torch  # noqa: F401 - under the fuzzer's import hook the seconds that these two take become a minute
    from transformers import AutoImageProcessor  # noqa: F401

    with atheris.instrument_imports(include=["batch_handler"]):
        from fuzz.targets import TARGETS

    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
