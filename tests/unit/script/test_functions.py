"""The functions of a user's script: which are called, with what, in which order, and what stands in for those it lacks."""

from __future__ import annotations

import gzip
import io
import textwrap
from pathlib import Path

import numpy
import orjson
import pytest
import torch

from batch_handler.artefact import ArtefactError
from batch_handler.script import accepted, declared
from scripting import ECHO, MakeScript, ask, one, request


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


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"[1e999, -Infinity, NaN, 1]", [None, None, None, 1.0]),
        (b"[" + b"9" * 400 + b"]", 400),
        (b"[" + b"9" * 5_000 + b"]", 400),
        (b"[null]", [None]),
        (b'["\\ud800"]', 400),
        (b'["\xed\xa0\x80"]', 400),
        (b'{"\\udfff": 1}', 400),
        (b"[" * 100_000, 400),
    ],
    ids=["no finite numbers", "400 digits", "5,000 digits", "null", "a lone surrogate", "its bytes", "as a key", "brackets"],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_numbers_and_texts_at_the_edge_of_json_are_answered_or_the_callers_fault(
    script: MakeScript, body: bytes, answer: list[float | None] | int
) -> None:
    answering = script("def model_fn(model_dir): return lambda tensor: tensor")
    response = one(answering, body)
    assert response.status == (answer if isinstance(answer, int) else 200)
    if not isinstance(answer, int):
        assert orjson.loads(response.body) == answer


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
