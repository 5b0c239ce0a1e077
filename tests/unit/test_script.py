"""A user's script: its functions as the SageMaker toolkits call them, one request at a time or many together."""

from __future__ import annotations

import gzip
import io
import logging
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import orjson
import pytest
import torch

from batch_handler.artefact import ArtefactError
from batch_handler.request import Headers, Request, Response
from batch_handler.script import Script, accepted, declared
from batch_handler.settings import Settings

NEWEST = pytest.mark.skipif(version("transformers").startswith("4."), reason="version 4 of transformers has the older API")
MakeScript = Callable[..., Script]


@pytest.fixture(autouse=True)
def _own_modules() -> Iterator[None]:
    """Each test imports its own `inference` and leaves no name of it behind."""
    path, modules, writes = list(sys.path), set(sys.modules), sys.dont_write_bytecode
    yield
    sys.path[:] = path
    sys.dont_write_bytecode = writes
    for name in {"inference", "handler", "utils", "config", "formats", "serve"} | (set(sys.modules) - modules):
        if "code" in str(getattr(sys.modules.get(name), "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def script(tmp_path: Path, settings: Callable[..., Settings]) -> MakeScript:
    """Load a script from its text, with files beside it and settings."""

    def make(text: str, files: dict[str, str | bytes] | None = None, **variables: str) -> Script:
        program = f"code/{variables.get('SAGEMAKER_PROGRAM', 'inference.py')}"
        for name, data in {program: textwrap.dedent(text), **(files or {})}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.encode() if isinstance(data, str) else data)
        return Script(tmp_path, settings(**variables))

    return make


def request(body: Any, content_type: str | None = "application/json", **headers: str) -> Request:
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Request("request-1", Headers([*named, *([("Content-Type", content_type)] if content_type else [])]), content)


def ask(script: Script, *requests: Request) -> Sequence[Response]:
    return script(requests).responses


def one(script: Script, *arguments: Any, **headers: str) -> Response:
    return ask(script, request(*arguments, **headers))[0]


def message(response: Response) -> str:
    (error,) = orjson.loads(response.body).values()
    return str(error["message"])


ECHO = """
import json
def model_fn(model_dir): return "model"
def input_fn(data, content_type): return data
def predict_fn(data, model): return [type(data).__name__, str(data), model]
"""


def test_the_three_functions_are_called_as_the_toolkit_calls_them(script: MakeScript) -> None:
    answering = script(
        """
        calls = []
        def model_fn(model_dir): return open(model_dir + "/word").read()
        def input_fn(data, content_type): return f"{data}|{content_type}"
        def predict_fn(data, model): return f"{data}|{model}"
        def output_fn(prediction, accept): return f"{prediction}|{accept}"
        """,
        {"word": "hello"},
    )
    response = one(answering, b"abc", "text/csv", Accept="text/plain")
    assert (response.status, response.content_type) == (200, "text/plain")
    assert response.body == b"abc|text/csv|hello|text/plain"


def test_json_and_csv_arrive_as_text_and_everything_else_as_bytes(script: MakeScript) -> None:
    answering = script(ECHO)
    assert orjson.loads(one(answering, b'"x"').body)[:2] == ["str", '"x"']
    assert orjson.loads(one(answering, b"x", "text/plain").body)[:2] == ["bytes", "b'x'"]
    assert orjson.loads(one(answering, '"é"'.encode("utf-16"), "application/json; charset=utf-16").body)[1] == '"é"'
    assert orjson.loads(one(answering, gzip.compress(b'"x"'), Content_Encoding="gzip").body)[1] == '"x"'
    assert orjson.loads(one(answering, b"", "text/plain").body)[1] == "b''"


def test_bytes_that_are_no_text_or_no_gzip_are_the_callers_fault(script: MakeScript) -> None:
    answering = script(ECHO, SAGEMAKER_MAX_PAYLOAD_IN_MB="1")
    assert one(answering, b"\xff").status == 400
    assert one(answering, b"x", Content_Encoding="gzip").status == 400
    assert one(answering, gzip.compress(bytes(3_000_000)), Content_Encoding="gzip").status == 413


@pytest.mark.parametrize(
    ("signature", "passed"),
    [
        ("data, model", False),
        ("data, model, context", True),
        ("data, model, context=None", True),
        ("data, model, *, context", True),
        ("data, model, anything", True),
        ("data, model, threshold=0.5", False),
        ("*everything", False),
    ],
)
def test_a_context_goes_to_functions_that_take_one(script: MakeScript, signature: str, passed: bool) -> None:
    answering = script(f"""
        def model_fn(model_dir, context): return context.system_properties["model_dir"] == model_dir
        def predict_fn({signature}):
            return any(hasattr(value, "get_request_header") for value in locals().values())
        def input_fn(data, content_type): return data
        """)
    assert orjson.loads(one(answering, "x").body) is passed


def test_each_request_sees_its_own_headers_and_sets_its_own_status(script: MakeScript) -> None:
    answering = script("""
        def model_fn(model_dir): return None
        def input_fn(data, content_type, context): return context.get_request_header(0, "x-who")
        def predict_fn(data, model, context):
            context.set_response_status(202 if data == "a" else 200, "Anything")
            context.set_response_header(0, "X-Own", "line\\nbreak" if data == "a" else "b")
            context.set_response_header(0, "Content-Length", "3")
            properties = context.request_processor[0].get_request_properties()
            return [data, context.get_all_request_header(0)["X-WHO"], properties["x-Who"]]
        """)
    first, second = ask(answering, request("x", X_Who="a"), request("x", X_Who="b", X_Amzn_SageMaker_Inference_Id="7"))
    assert (first.status, orjson.loads(first.body)) == (202, ["a", "a", "a"])
    assert (second.status, orjson.loads(second.body)) == (200, ["b", "b", "b"])
    assert first.headers == {"X-Own": "line?break"}
    assert second.headers == {"X-Amzn-SageMaker-Inference-Id": "7", "X-Own": "b"}


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        (None, "application/json"),
        ("", "application/json"),
        ("*/*", "application/json"),
        ("text/csv", "text/csv"),
        ("application/json; verbose=true", "application/json; verbose=true"),
        ("text/html, image/gif, *; q=.2, */*; q=.2", "application/json"),
        ("text/csv;q=0.5, image/png", "image/png"),
        ("application/*", "application/json"),
        ("text/csv\u00e9", "application/json"),
    ],
)
def test_a_script_is_asked_for_one_type(accept: str | None, given: str) -> None:
    assert accepted(accept, "application/json") == given


@pytest.mark.parametrize(
    ("sent", "given"),
    [
        (None, "application/json"),
        ("Application/JSON; charset=utf-8", "application/json"),
        ("multipart/form-data; boundary=X", "multipart/form-data; boundary=X"),
    ],
)
def test_a_script_is_told_a_type_that_it_can_compare(sent: str | None, given: str) -> None:
    assert declared(sent)[0] == given


def test_the_default_type_of_answers_is_a_setting(script: MakeScript) -> None:
    answering = script(
        ECHO + "\ndef output_fn(prediction, accept): return accept", SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT="text/csv"
    )
    assert one(answering, "x").content_type == "text/csv"


def test_a_tuple_names_its_type_and_bytes_go_out_as_they_are(script: MakeScript) -> None:
    answering = script(ECHO + "\ndef output_fn(prediction, accept): return b'\\x00\\xff', 'image/png'")
    response = one(answering, "x")
    assert (response.body, response.content_type) == (b"\x00\xff", "image/png")


def test_any_object_is_written_as_json(script: MakeScript) -> None:
    answering = script(
        ECHO
        + """
import numpy, torch, datetime, collections, decimal, enum, pathlib
class Colour(enum.Enum): RED = "red"
Point = collections.namedtuple("Point", "x y")
def predict_fn(data, model):
    return {
        "nan": float("nan"), "list": [1.5, float("inf")], numpy.int64(3): "three", 4: "four", None: 1, b"k": b"v\\xff",
        "float32": numpy.float32(1.5), "bool": numpy.bool_(True), "array": numpy.arange(4).reshape(2, 2)[:, 1],
        "tensor": torch.tensor([1.0, float("nan")]), "scalar": torch.tensor(2), "grad": torch.ones(1, requires_grad=True),
        "set": {1}, "point": Point(1, 2), "big": 2**70, "half": numpy.float16(0.5), "surrogate": "\\ud800",
        "decimal": decimal.Decimal("1.5"), "enum": Colour.RED, "path": pathlib.Path("a/b"), "bfloat": torch.ones(1).bfloat16(),
    }
def output_fn(prediction, accept): return prediction
"""
    )
    response = one(answering, "x", Accept="image/png")
    assert response.content_type == "application/json"
    assert orjson.loads(response.body.replace(str(2**70).encode(), b"0")) == {
        "nan": None, "list": [1.5, None], "3": "three", "4": "four", "null": 1, "k": "v\ufffd",
        "float32": 1.5, "bool": True, "array": [1, 3], "tensor": [1.0, None], "scalar": 2, "grad": [1.0],
        "set": [1], "point": [1, 2], "big": 0, "half": 0.5, "surrogate": "?",
        "decimal": 1.5, "enum": "red", "path": "a/b", "bfloat": [1.0],
    }  # fmt: skip


def test_what_json_has_no_word_for_is_an_error_of_its_request(script: MakeScript) -> None:
    answering = script(ECHO + "\ndef output_fn(prediction, accept): return object()")
    response = one(answering, "x")
    assert (response.status, message(response)) == (500, "the script's result (object) cannot be written as JSON")


def test_accepted_csv_npy_and_lines_are_written_from_objects(script: MakeScript) -> None:
    answering = script(ECHO + "\nimport numpy\ndef output_fn(prediction, accept): return numpy.array([[1.0, 2.5], [3.0, 4.0]])")
    assert one(answering, "x", Accept="text/csv").body == b"1.0,2.5\n3.0,4.0"
    array = numpy.load(io.BytesIO(one(answering, "x", Accept="application/x-npy").body))
    assert array.tolist() == [[1.0, 2.5], [3.0, 4.0]]
    lists = script(ECHO + "\ndef output_fn(prediction, accept): return [{'a': 1}, 2]")
    assert one(lists, "x", Accept="application/jsonlines").body == b'{"a":1}\n2'


def test_a_script_of_model_fn_alone_gets_the_documented_defaults(script: MakeScript) -> None:
    answering = script("""
        import torch
        def model_fn(model_dir):
            layer = torch.nn.Linear(2, 1, bias=False)
            torch.nn.init.constant_(layer.weight, 2.0)
            return layer
        """)
    assert orjson.loads(one(answering, [[1, 2], [3, 4.5]]).body) == [[6.0], [15.0]]
    assert orjson.loads(one(answering, b"1,2\n3,4.5\n", "text/csv").body) == [[6.0], [15.0]]
    assert orjson.loads(one(answering, b"1,2\n", "text/csv").body) == [6.0]
    buffer = io.BytesIO()
    numpy.save(buffer, numpy.array([[1, 2]], numpy.float32))
    response = one(answering, buffer.getvalue(), "application/x-npy", Accept="application/x-npy")
    assert numpy.load(io.BytesIO(response.body)).tolist() == [[6.0]]
    assert one(answering, [[1, 2]], Accept="text/csv").body == b"6.0"
    assert one(answering, b"PK", "application/zip").status == 415
    assert one(answering, [[1, 2]], Accept="image/png").status == 406
    assert one(answering, b"{").status == 400
    assert one(answering, ["a"]).status == 400
    assert one(answering, b"a,b", "text/csv").status == 400
    assert one(answering, [[1], [1, 2]]).status == 400
    assert one(answering, [[1, 2, 3]]).status == 500


def test_without_model_fn_the_torchscript_file_is_loaded(script: MakeScript, tmp_path: Path) -> None:
    torch.jit.save(torch.jit.trace(torch.nn.Identity(), torch.ones(1)), tmp_path / "model.pt")
    answering = script("def output_fn(prediction, accept): return prediction.tolist()")
    assert orjson.loads(one(answering, [1, 2]).body) == [1.0, 2.0]
    (tmp_path / "model.pt").unlink()
    with pytest.raises(ArtefactError, match="defines no model_fn, and there is no TorchScript"):
        script("def output_fn(prediction, accept): return prediction")


def test_transform_fn_takes_the_place_of_the_three(script: MakeScript) -> None:
    text = """
        def model_fn(model_dir): return "m"
        def transform_fn(model, data, content_type, accept, context):
            return f"{model} {data} {content_type} {accept}", "text/plain"
        """
    response = one(script(text), b"x", "text/csv", Accept="image/png")
    assert (response.body, response.content_type) == (b"m x text/csv image/png", "text/plain")
    with pytest.raises(ArtefactError, match="defines both transform_fn and input_fn"):
        script(textwrap.dedent(text) + "def input_fn(data, content_type): return data")


def test_hooks_around_the_model_are_called_in_order(script: MakeScript) -> None:
    answering = script("""
        order = []
        def pre_model_fn(model_dir): order.append("pre")
        def model_fn(model_dir): order.append("model"); return order
        def model_warmup_fn(model_dir, model): model.append("warm")
        def input_fn(data, content_type): return data
        def predict_fn(data, model): return model
        """)
    answering.warm_up()
    assert orjson.loads(one(answering, "x").body) == ["pre", "model", "warm"]


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


def test_a_users_modules_may_have_any_names(script: MakeScript) -> None:
    files = {f"code/{name}.py": f"word = {name!r}" for name in ("utils", "config", "formats", "handler")}
    files["code/nested/deep.py"] = "word = 'deep'"
    answering = script(
        """
        import utils, config, formats, handler
        from nested import deep
        def model_fn(model_dir): return [module.word for module in (utils, config, formats, handler, deep)]
        def input_fn(data, content_type): return data
        def predict_fn(data, model): return model
        """,
        files,
    )
    assert orjson.loads(one(answering, "x").body) == ["utils", "config", "formats", "handler", "deep"]


@pytest.mark.parametrize("program", ["handler.py", "serve.py", "json.py", "nested/inference.py"])
def test_the_program_may_be_another_file(script: MakeScript, program: str) -> None:
    answering = script(ECHO, SAGEMAKER_PROGRAM=program)
    assert one(answering, "x").status == 200
    assert orjson.dumps is not None


BATCHED = """
calls = []
def model_fn(model_dir): return calls
def input_fn(data, content_type):
    if "unreadable" in data: raise ValueError("unreadable")
    return data
def batch_predict_fn(inputs, model, context):
    model.append(len(inputs))
    if any("poison" in text for text in inputs): raise ValueError("poison")
    return [[text, context.get_request_header(index, "x-who")] for index, text in enumerate(inputs)]
def output_fn(prediction, accept): return {"answer": prediction}
"""


def test_batch_predict_fn_sees_all_inputs_at_once_and_a_bad_one_costs_only_itself(script: MakeScript) -> None:
    answering = script(BATCHED)
    words = ["a", "unreadable", "b", "poison", "c"]
    answers = answering([request(word, X_Who=str(number)) for number, word in enumerate(words)])
    assert [answer.status for answer in answers.responses] == [200, 500, 200, 500, 200]
    assert orjson.loads(answers.responses[4].body) == {"answer": ['"c"', "4"]}
    assert message(answers.responses[3]) == "ValueError: poison"
    alone = ask(answering, *[request(word) for word in ("a", "b")])
    assert [orjson.loads(answer.body)["answer"][0] for answer in alone] == ['"a"', '"b"']
    assert sys.modules["inference"].calls[-1] == 2


def test_batch_transform_fn_gets_lists_of_everything(script: MakeScript) -> None:
    answering = script("""
        def model_fn(model_dir): return "m"
        def batch_transform_fn(model, inputs, content_types, accepts):
            return [(f"{data} {type} {accept}", "text/plain") for data, type, accept in zip(inputs, content_types, accepts)]
        """)
    answers = ask(answering, request(b"1", "text/csv"), request(b"2", Accept="image/png"))
    assert [answer.body for answer in answers] == [b"1 text/csv application/json", b"2 application/json image/png"]


@pytest.mark.parametrize("result", ["inputs[:-1]", "None", "{}"])
def test_a_batch_function_that_returns_too_little_says_so(script: MakeScript, result: str) -> None:
    answering = script(BATCHED.replace("return [[text", f"return {result}\n    return [[text"))
    answers = ask(answering, request("a"), request("b"))
    assert {answer.status for answer in answers} == {500}
    assert "return a list with one result for each" in message(answers[0])


STACKING = """
import json, torch
BATCHABLE = True
calls = []
def model_fn(model_dir):
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2)
def input_fn(data, content_type): return torch.tensor(json.loads(data), dtype=torch.float32)
def predict_fn(data, model):
    calls.append(len(data))
    if (data == 666).any(): raise ValueError("poison")
    with torch.no_grad(): return {RESULT}
def output_fn(prediction, accept): return prediction
"""


@pytest.mark.parametrize(
    "result",
    ["model(data)", "model(data).numpy()", "{'logits': model(data)}", "(model(data), data)", "model(data).tolist()"],
)
def test_a_batchable_scripts_tensors_share_a_call_and_answer_as_alone(script: MakeScript, result: str) -> None:
    answering = script(STACKING.replace("{RESULT}", result))
    bodies = [[[1, 2, 3]], [[4, 5, 6], [7, 8, 9]], [[1, 1, 1]], [[666, 0, 0]], [[1, 2]]]
    alone = [one(answering, body) for body in bodies]
    sys.modules["inference"].calls.clear()
    together = ask(answering, *map(request, bodies[:3]))
    assert sys.modules["inference"].calls == [4]
    for single, shared in zip(alone[:3], together, strict=True):
        assert_close(orjson.loads(single.body), orjson.loads(shared.body))
    assert [answer.status for answer in ask(answering, *map(request, bodies))] == [200, 200, 200, 500, 500]


def assert_close(first: Any, second: Any) -> None:
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        first, second = list(first.values()), list(second.values())
    if isinstance(first, list) and first and isinstance(first[0], list) and isinstance(first[0][0], list):
        for one_of_them, other in zip(first, second, strict=True):
            assert_close(one_of_them, other)
        return
    assert numpy.asarray(first).shape == numpy.asarray(second).shape
    assert numpy.abs(numpy.asarray(first, float) - numpy.asarray(second, float)).max() < 1e-6


def test_a_result_that_does_not_count_rows_is_computed_one_by_one(script: MakeScript) -> None:
    answering = script(STACKING.replace("{RESULT}", "data.sum()"))
    answers = ask(answering, request([[1, 2, 3]]), request([[4, 5, 6]]))
    assert [orjson.loads(answer.body) for answer in answers] == [6.0, 15.0]


@pytest.mark.parametrize("output", ["last_hidden_state", "pooler_output"])
def test_a_batchable_scripts_encodings_are_padded_into_one_call(
    script: MakeScript, artefact: Callable[..., Path], output: str
) -> None:
    answering = script(f"""
        import json, torch
        from transformers import AutoModel, AutoTokenizer
        BATCHABLE = True
        calls = []
        def model_fn(model_dir):
            return {{"model": AutoModel.from_pretrained({str(artefact("bert"))!r}).eval(),
                     "tokenizer": AutoTokenizer.from_pretrained({str(artefact("bert"))!r})}}
        tokenizer = AutoTokenizer.from_pretrained({str(artefact("bert"))!r})
        def input_fn(data, content_type): return tokenizer(json.loads(data), return_tensors="pt")
        def predict_fn(data, model):
            calls.append(data["input_ids"].shape)
            with torch.no_grad(): return model["model"](**data)
        def output_fn(prediction, accept): return prediction.{output}
        """)
    texts = ["good", "good bad good bad good", "bad bad"]
    alone = [orjson.loads(one(answering, text).body) for text in texts]
    sys.modules["inference"].calls.clear()
    together = [orjson.loads(answer.body) for answer in ask(answering, *map(request, texts))]
    assert len(sys.modules["inference"].calls) == 1
    for first, second in zip(alone, together, strict=True):
        assert numpy.asarray(first).shape == numpy.asarray(second).shape
        assert numpy.abs(numpy.asarray(first) - numpy.asarray(second)).max() < 1e-5


def test_a_thread_safe_script_runs_on_the_lanes(script: MakeScript) -> None:
    answering = script(
        """
        import threading
        THREAD_SAFE = True
        meeting = threading.Barrier(3, timeout=20)
        def model_fn(model_dir): return None
        def input_fn(data, content_type): return data
        def predict_fn(data, model):
            meeting.wait()
            return threading.current_thread().name
        """,
        BYOC_THREADS="3",
    )
    assert "lanes=3" in answering.description
    answers = ask(answering, *[request(str(number)) for number in range(3)])
    assert len({answer.body for answer in answers}) == 3
    assert {answer.status for answer in answers} == {200}


def test_an_answer_over_the_limit_names_it(script: MakeScript) -> None:
    answering = script(ECHO + "\ndef output_fn(prediction, accept): return 'x' * 2_000_000", BYOC_MAX_RESPONSE_MB="1")
    response = one(answering, "x")
    assert response.status == 413
    assert "BYOC_MAX_RESPONSE_MB" in message(response)


LINES_OF_ITS_OWN = """
import json
def model_fn(model_dir): return None
def input_fn(data, content_type): return data.splitlines()
def predict_fn(data, model): return [answer(line) for line in data]
def output_fn(prediction, accept): return "\\n".join(prediction), "application/jsonlines"
def answer(line):
    if line == b"stop everything": raise ValueError("no way on")
    try: return json.dumps(json.loads(line) * 2)
    except ValueError: return json.dumps({"error": "no number"})
"""


@pytest.mark.parametrize("transform", ["false", "true"])
def test_a_scripts_request_fails_or_holds_as_a_whole_in_transform_jobs_too(script: MakeScript, transform: str) -> None:
    """Its body is the script's own affair: no line of it can be told from another, and none gets a placeholder of ours."""
    answering = script(LINES_OF_ITS_OWN, SAGEMAKER_BATCH=transform)
    failed, kept = ask(
        answering,
        request(b"1\nstop everything\n3\n", "application/jsonlines"),
        request(b"1\nbad\n\n3\n", "application/jsonlines"),
    )
    assert (failed.status, message(failed)) == (500, "ValueError: no way on")
    assert kept.status == 200
    assert [orjson.loads(line) for line in kept.body.split(b"\n")] == [2, {"error": "no number"}, {"error": "no number"}, 6]


@pytest.mark.parametrize(
    ("functions", "way"),
    [
        ("def batch_predict_fn(inputs, model): return [fail(one) for one in inputs]", "batched"),
        ("BATCHABLE = True\ndef predict_fn(data, model): return [fail(one) for one in data.tolist()]", "stacked"),
        ("THREAD_SAFE = True\ndef predict_fn(data, model): return fail(data)", "threads"),
        ("def predict_fn(data, model): return fail(data)", "one by one"),
    ],
    ids=lambda value: value if len(value) < 20 else "",
)
@pytest.mark.parametrize("transform", ["false", "true"])
def test_a_failing_request_costs_only_itself_however_requests_share_a_call(
    script: MakeScript, functions: str, way: str, transform: str
) -> None:
    answering = script(
        f"""
import torch
from sagemaker_inference.errors import GenericInferenceToolkitError
def model_fn(model_dir): return None
def fail(value):
    number = int(torch.as_tensor(value).sum())
    if number == 13: raise GenericInferenceToolkitError(422, "thirteen")
    if number == 14: raise SystemExit(1)
    return number
def output_fn(prediction, accept): return str(prediction)
{functions}
""",
        SAGEMAKER_BATCH=transform,
        BYOC_THREADS="2",
    )
    answers = ask(answering, *[request([number]) for number in (1, 13, 2, 14, 3)])
    assert [answer.status for answer in answers] == [200, 422, 200, 500, 200]
    assert message(answers[1]) == "thirteen"
    assert message(answers[3]) == "SystemExit: 1"
