"""TorchScript files and exported programs: numbers in every format, stacked into one pass and cut apart again."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import orjson
import pytest
import torch

from batch_handler.application import load
from batch_handler.artefact import ArtefactError
from batch_handler.pipeline import Pipeline
from batch_handler.request import Headers, Request, Response
from batch_handler.settings import Settings

ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]]
EXPECTED = [[6.0, 12.0], [15.5, 31.0]]


class Sums(torch.nn.Module):
    """Each row's sum, and twice that."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2, bias=False)
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([[1.0] * 3, [2.0] * 3]))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Records × 3 to records × 2."""
        return self.layer(rows)


class Pair(torch.nn.Module):
    """Two inputs by name, an object of two outputs."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        """The sum, and the first number of each record."""
        return {"sum": left + right, "first": left[:, 0]}


class Lookup(torch.nn.Module):
    """Needs whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(10, 2)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The table's rows, and the numbers themselves."""
        return self.table(ids).sum(1), ids


@pytest.fixture
def serve(tmp_path: Path, settings: Callable[..., Settings]) -> Callable[..., Pipeline]:
    def make(module: torch.nn.Module, *, batch: int | None = None, exported: bool = False, **variables: str) -> Pipeline:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if exported:
                dynamic = None if batch else {"rows": {0: torch.export.Dim("records")}}
                program = torch.export.export(module.eval(), (torch.ones(batch or 2, 3),), dynamic_shapes=dynamic)
                torch.export.save(program, tmp_path / "model.pt2")
            else:
                torch.jit.script(module).save(str(tmp_path / "model.pt"))
        application = load(tmp_path, settings(**variables))
        assert isinstance(application, Pipeline)
        application.warm_up()
        return application

    return make


def answer(service: Pipeline, body: Any, content_type: str = "application/json", accept: str = "") -> Response:
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    headers = [("Content-Type", content_type), *([("Accept", accept)] if accept else [])]
    return service([Request("1", Headers(headers), content)]).responses[0]


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    numpy.save(buffer, numpy.asarray(array))
    return buffer.getvalue()


@pytest.mark.parametrize("exported", [False, True])
@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (ROWS, "application/json", EXPECTED),
        ([ROWS[0]], "application/json", EXPECTED[:1]),
        (ROWS[0], "application/json", EXPECTED[0]),
        ({"inputs": ROWS}, "application/json", EXPECTED),
        ({"inputs": ROWS[0]}, "application/json", EXPECTED[0]),
        ({"instances": ROWS}, "application/json", EXPECTED),
        ({"inputs": ROWS[0], "id": 7}, "application/json", {"id": 7, "output": EXPECTED[0]}),
        ([{"inputs": ROWS[0]}, {"inputs": ROWS[1]}], "application/json", EXPECTED),
        ([[1, 2, 3]], "application/json", EXPECTED[:1]),
    ],
)
def test_json_numbers_answer_in_their_own_shape(
    serve: Callable[..., Pipeline], exported: bool, body: Any, content_type: str, expected: Any
) -> None:
    response = answer(serve(Sums(), exported=exported), body, content_type)
    assert (response.status, orjson.loads(response.body)) == (200, expected)


def test_lines_rows_and_arrays_carry_the_same_numbers(serve: Callable[..., Pipeline]) -> None:
    service = serve(Sums())
    lines = answer(service, b"[1, 2, 3]\n[4, 5, 6.5]\n", "application/jsonlines")
    assert [orjson.loads(line) for line in lines.body.split(b"\n")] == EXPECTED
    assert answer(service, b"1,2,3\n4,5,6.5\n", "text/csv").body == b"6.0,12.0\n15.5,31.0"
    array = answer(service, npy(ROWS), "application/x-npy")
    assert numpy.load(io.BytesIO(array.body)).tolist() == EXPECTED
    assert orjson.loads(answer(service, npy(ROWS), "application/x-npy", "application/json").body) == EXPECTED
    header = serve(Sums(), BYOC_CSV_HEADER="true")
    assert answer(header, b"a,b,c\n1,2,3\n", "text/csv").body == b"6.0,12.0"


def test_requests_share_a_pass_and_a_bad_one_costs_only_itself(serve: Callable[..., Pipeline]) -> None:
    service = serve(Sums())
    bodies = [[ROWS[0]], [[1, 2]], [ROWS[1]], [["a", "b", "c"]], [[1, [2], 3]]]
    requests = [Request(str(i), Headers([("Content-Type", "application/json")]), orjson.dumps(b)) for i, b in enumerate(bodies)]
    answers = service(requests)
    assert [response.status for response in answers.responses] == [200, 500, 200, 400, 400]
    assert orjson.loads(answers.responses[2].body) == [EXPECTED[1]]
    assert sorted(answers.report.microbatches) == [1, 2]


def test_a_bad_row_is_named_and_keeps_its_place_in_a_transform_job(serve: Callable[..., Pipeline]) -> None:
    response = answer(serve(Sums()), b"1,2,3\n1,x,3\n", "text/csv")
    assert response.status == 400
    assert orjson.loads(response.body)["error"] == {
        "type": "InvalidRecord", "message": "the row must hold numbers, and 'x' is none", "record": 2,
    }  # fmt: skip
    job = answer(serve(Sums(), SAGEMAKER_BATCH="true"), b"1,2,3\n1,x,3\n4,5,6.5", "text/csv")
    assert (job.body.split(b"\n")[0], job.body.split(b"\n")[2]) == (b"6.0,12.0", b"15.5,31.0")


def test_an_exported_program_refuses_other_shapes_before_any_pass(serve: Callable[..., Pipeline]) -> None:
    response = answer(serve(Sums(), exported=True), [[1, 2]])
    assert response.status == 400
    assert "a record has the shape 2, and the model takes 3" in response.body.decode()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_program_of_one_batch_size_is_filled_up(serve: Callable[..., Pipeline], count: int) -> None:
    body = [[float(number), 0, 0] for number in range(count)]
    response = answer(serve(Sums(), exported=True, batch=2), body)
    assert orjson.loads(response.body) == [[number, 2 * number] for number in range(count)]


def test_several_inputs_come_by_name_and_objects_come_back(serve: Callable[..., Pipeline]) -> None:
    service = serve(Pair())
    response = answer(service, {"inputs": {"left": [1, 2], "right": [3, 4]}})
    assert orjson.loads(response.body) == {"sum": [4.0, 6.0], "first": 1.0}
    buffer = io.BytesIO()
    numpy.savez(buffer, left=numpy.ones((2, 2), numpy.float32), right=numpy.ones((2, 2), numpy.float32))
    response = answer(service, buffer.getvalue(), "application/x-npz", "application/json")
    assert orjson.loads(response.body) == [{"sum": [2.0, 2.0], "first": 1.0}] * 2
    assert answer(service, {"inputs": {"left": [1, 2], "right": [3, 4]}}, accept="text/csv").status == 406
    assert answer(service, {"inputs": {"left": [1, 2], "right": [3, 4]}}, accept="application/x-npy").status == 406


def test_the_type_of_numbers_is_a_parameter_or_the_arrays_own(serve: Callable[..., Pipeline]) -> None:
    service = serve(Lookup())
    typed = answer(service, {"inputs": [[1, 2]], "parameters": {"dtype": "int64"}})
    assert typed.status == 200
    assert orjson.loads(typed.body)[0][1] == [1, 2]
    assert answer(service, npy(numpy.array([[1, 2]])), "application/x-npy", "application/json").status == 200
    assert answer(service, {"inputs": [[1, 2]], "parameters": {"dtype": "text"}}).status == 400


def test_text_is_refused_with_what_can_be_sent(serve: Callable[..., Pipeline]) -> None:
    response = answer(serve(Sums()), b"words", "text/plain")
    assert response.status == 415
    assert "text/csv" in response.body.decode()


def test_a_file_that_torch_cannot_load_stops_the_start(tmp_path: Path, settings: Callable[..., Settings]) -> None:
    (tmp_path / "model.pt2").write_bytes(b"PK")
    with pytest.raises(ArtefactError, match=r"model\.pt2 cannot be loaded by torch"):
        load(tmp_path, settings())
