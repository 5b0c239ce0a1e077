"""What a user's script does wrong: told to its own caller, or before anybody calls."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from batch_handler.artefact import ArtefactError
from scripting import NEWEST, MakeScript, ask, message, one, request

FAULTS = [
    ("ValueError('bad\\nthing in /opt/ml/model/weights.bin')", 500, "ValueError: bad thing in weights.bin"),
    ("FileNotFoundError(2, 'No such file', '/opt/ml/model/x')", 500, "FileNotFoundError: [Errno 2] No such file: 'x'"),
    ("KeyError('label')", 500, "KeyError: 'label'"),
    ("AssertionError()", 500, "AssertionError"),
    ("SystemExit(3)", 500, "SystemExit: 3"),
    ("MemoryError()", 503, "MemoryError"),
    ("RuntimeError('CUDA out of memory')", 500, "RuntimeError: CUDA out of memory"),
    ("GenericInferenceToolkitError(422, 'no such label')", 422, "no such label"),
    ("BaseInferenceToolkitError(404, 'unknown id', 'Not\\nFound')", 404, "unknown id"),
    ("GenericInferenceToolkitError(999, 'odd')", 500, "odd"),
    ("UnsupportedFormatError('image/png')", 415, "Content type image/png is not supported"),
    ("invalid_record('too short')", 400, "too short"),
    ("ValueError('cannot read ' + repr('y' * 500))", 500, "ValueError: cannot read '" + "y" * 79 + "…'"),
]


@pytest.mark.parametrize(("raised", "status", "said"), FAULTS)
def test_an_exception_is_its_own_requests_error(
    script: MakeScript, caplog: pytest.LogCaptureFixture, raised: str, status: int, said: str
) -> None:
    answering = script(f"""
        from sagemaker_inference.errors import *
        from batch_handler.errors import invalid_record
        def model_fn(model_dir): return None
        def input_fn(data, content_type): return data
        def predict_fn(data, model):
            if "bad" in data: raise {raised}
            return "fine"
        """)
    with caplog.at_level(logging.ERROR):
        bad, good = ask(answering, request("bad"), request("good"))
    assert (good.status, orjson.loads(good.body)) == (200, "fine")
    assert bad.status == status
    assert message(bad).startswith(said)
    assert len(message(bad)) <= 400
    assert message(bad).isprintable()
    assert "Traceback" not in bad.body.decode()
    if "invalid_record" not in raised:
        assert "request-1" in caplog.text
        assert "inference.py" in caplog.text


def test_the_input_is_not_repeated_in_an_error_at_length(script: MakeScript) -> None:
    answering = script("""
        def model_fn(model_dir): return None
        def input_fn(data, content_type): raise ValueError("no good: " + data.strip('"') + " is bad")
        """)
    text = " ".join(f"word{number}" for number in range(40))
    said = message(one(answering, text))
    assert said.startswith("ValueError: no good: word0 word1")
    assert said.endswith("… is bad")
    assert len(said) < 140
    assert message(one(answering, "short")) == "ValueError: no good: short is bad"


@NEWEST
def test_an_api_that_transformers_dropped_is_named(script: MakeScript, artefact: Callable[..., Path], caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        answering = script(f"""
            from transformers import AutoTokenizer
            def model_fn(model_dir): return AutoTokenizer.from_pretrained({str(artefact("bert"))!r})
            def input_fn(data, content_type): return data
            def predict_fn(data, model): return model.encode_plus(data, pad_to_max_length=True, max_length=8)
            """)
    assert "inference.py uses what transformers 5" in caplog.text
    assert "pad_to_max_length → padding='max_length'; or use an image with version 4" in caplog.text
    said = message(one(answering, "x"))
    assert "AttributeError" in said
    assert "has no 'encode_plus' any more (write: call the tokenizer itself; or use an image with version 4)" in said


@NEWEST
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pipeline('summarization', model=MODEL)", "has no pipeline 'summarization' any more"),
        ("pipeline('translation_en_to_fr', model=MODEL)", "has no pipeline 'translation_en_to_fr' any more"),
        ("pipeline('question-answering', model=MODEL)", "has no pipeline 'question-answering' any more"),
        ("AutoTokenizer.from_pretrained(MODEL).batch_encode_plus(['a'])", "has no 'batch_encode_plus' any more"),
        ("transformers.AdamW([])", "has no 'AdamW' any more (write: torch.optim.AdamW)"),
        ("AutoTokenizer.from_pretrained(MODEL).as_target_tokenizer()", "is installed, and this name is not in it"),
        ("{}['The task']", "KeyError: 'The task'"),
    ],
)
def test_each_dropped_api_has_its_own_words(script: MakeScript, artefact: Callable[..., Path], line: str, said: str) -> None:
    answering = script(f"""
        import transformers
        from transformers import AutoTokenizer, pipeline
        MODEL = {str(artefact("bert"))!r}
        def model_fn(model_dir): return None
        def input_fn(data, content_type): return data
        def predict_fn(data, model): return {line}
        """)
    assert said in message(one(answering, "x"))


@NEWEST
def test_only_names_of_transformers_are_warned_of(script: MakeScript, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        script("""
            from torch.optim import AdamW
            def model_fn(model_dir): return None
            """)
        assert "no longer has" not in caplog.text
        script("""
            try:
                from transformers import AdamW, BertConfig
            except ImportError:
                AdamW = None
            def model_fn(model_dir): return None
            """)
    assert "no longer has: AdamW → torch.optim.AdamW\n" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import nothing_such",
            r"code/inference.py cannot be imported: ModuleNotFoundError: .*nothing_such.* \(inference.py, line 1\)",
        ),
        ("def broken(:", r"code/inference.py cannot be imported: SyntaxError.*\(inference.py, line 1\)"),
        ("import sys; sys.exit(1)", "cannot be imported: SystemExit: 1"),
        (
            "def model_fn(model_dir): raise OSError('/secret/file is gone')",
            "model_fn of the script failed: OSError: file is gone",
        ),
        ("def model_fn(): pass", r"model_fn cannot be called: it is given \(model_dir\[, context\]\)"),
        ("def model_fn(a, b, c): pass", r"model_fn cannot be called"),
        pytest.param("from transformers import TFAutoModel", "transformers 5.* is installed", marks=NEWEST),
    ],
)
def test_a_script_that_cannot_be_loaded_stops_the_start(script: MakeScript, text: str, said: str) -> None:
    with pytest.raises(ArtefactError, match=said):
        script(text)
