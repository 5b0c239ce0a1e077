"""Requests that share a call of a user's script, and what a failing one costs the others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import orjson
import pytest

from scripting import MakeScript, ask, message, one, request

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
