"""Users' scripts over real TorchServe: unchanged, batched where they allow it, each request with its own error."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy
import pytest

from models import scripts
from models.language import BAD, GOOD
from running import RunningServer, at_once

TOGETHER = {"SAGEMAKER_TS_BATCH_SIZE": "8", "SAGEMAKER_TS_MAX_BATCH_DELAY": "300", "SAGEMAKER_TS_MAX_WORKERS": "1"}


def test_the_classifier_script_answers_three_processes_in_one_batch(tmp_path: Path) -> None:
    model = scripts.save_classifier(tmp_path / "model")
    with RunningServer(model, scripts.EXAMPLE) as server:
        assert "SAGEMAKER_TS_MAX_BATCH_DELAY lets a request wait up to 100 s for a batch of 3" in server.output
        answers = scripts.asked_by_processes(server.base_url, [GOOD[0], BAD[0], GOOD[1]])
        metrics = server.metrics()
    assert answers == ["Good", "Bad", "Good"]
    assert (metrics["byoc_batch_requests_count"], metrics["byoc_batch_requests_sum"]) == (1, 3)


def test_a_script_of_the_older_api_says_so_at_start_and_in_its_error(tmp_path: Path) -> None:
    model = scripts.save_classifier(tmp_path / "model", old_api=True)
    with RunningServer(model) as server:
        response = server.invoke(json.dumps(GOOD[0]))
        output = server.output
    assert response.status_code == 500
    assert "has no 'encode_plus' any more" in response.json()["error"]["message"]
    assert "uses what transformers 5" in output
    assert "Traceback" in output
    assert "Traceback" not in response.text


def test_a_batchable_script_shares_one_call_and_only_the_culprit_fails(tmp_path: Path) -> None:
    model = scripts.save_script(
        tmp_path / "model",
        """
        import json, sys, torch
        from utils import weights
        BATCHABLE = True
        def model_fn(model_dir): return torch.tensor(weights)
        def input_fn(data, content_type): return torch.tensor(json.loads(data), dtype=torch.float32)
        def predict_fn(data, model):
            if (data == 13).any(): sys.exit("unlucky")
            return {"sum": data @ model, "rows_of_this_call": torch.full((len(data),), len(data))}
        """,
        utils__py="weights = [1.0, 2.0]",
    )
    with RunningServer(model, TOGETHER) as server:
        good = at_once([lambda n=n: server.invoke([[n, 1]]) for n in range(8)])
        mixed = at_once([lambda n=n: server.invoke([[n, 1]]) for n in range(10, 18)])
        workers = server.workers()
        again = server.invoke([[1, 1]])
        assert server.workers() == workers
        output = server.output
    assert [answer.json()["sum"] for answer in good] == [[n + 2.0] for n in range(8)]
    assert max(answer.json()["rows_of_this_call"][0] for answer in good) > 1
    assert [answer.status_code for answer in mixed] == [500 if n == 13 else 200 for n in range(10, 18)]
    assert mixed[3].json()["error"]["message"] == "SystemExit: unlucky"
    assert again.status_code == 200
    assert mixed[3].headers.get("x-request-id", "the script failed") in output


EDGES: dict[bytes, Any] = {
    b"[1e999, -Infinity, NaN, 1]": [None, None, None, 1.0],
    b"[1e-400, -0.0, 16777217]": [0.0, 0.0, 16777216.0],
    b"[null, true]": [None, 1.0],
    b"[]": [],
    b"[" + b"9" * 400 + b"]": 400,
    b"[" + b"9" * 5_000 + b"]": 400,
    b"9" * 1_000_000: 400,
    b'["\\ud800"]': 400,
    b'["\xed\xa0\x80"]': 400,
    b'{"\\udfff": 1}': 400,
    b"[" * 1_000_000: 400,
    b"[\xff]": 400,
    b"": 400,
}
"""Bodies at the edge of JSON, with the values that a script's default functions give back of them, or their status."""
RESULTS = {
    "[10 ** 400, -(10 ** 400)]": [10**400, -(10**400)],
    "[float('nan'), float('inf'), -float('inf')]": [None, None, None],
    "{'\\ud800': ['\\udfff']}": {"?": ["?"]},
    "10 ** 5_000": 500,
    "{(1, 2): numpy.int64(2 ** 62)}": {"(1, 2)": 2**62},
    "functools.reduce(lambda inner, _: [inner], range(100_000), [])": 500,
}
"""What a script may return, as the default output_fn writes it, or the status of what it has no word for."""


def test_the_edges_of_json_are_answered_or_refused_and_end_no_worker(tmp_path: Path) -> None:
    echo = scripts.save_script(tmp_path / "echo", "def model_fn(model_dir): return lambda tensor: tensor")
    with RunningServer(echo) as server:
        workers = server.workers()
        given = {body: server.invoke(body, Accept="application/json") for body in EDGES}
        rows = server.invoke("nan,inf,1e999\n-inf,-0," + "9" * 5_000, "text/csv", Accept="application/json")
        assert server.workers() == workers
    for body, answer in given.items():
        found = answer.json() if answer.status_code == 200 else answer.status_code
        assert found == EDGES[body], body[:40]
    assert rows.json() == [[None, None, None], [None, 0.0, None]]


def test_results_at_the_edge_of_json_are_written_or_told_and_end_no_worker(tmp_path: Path) -> None:
    text = """
        import functools, numpy
        def model_fn(model_dir): return None
        def input_fn(data, content_type): return data if isinstance(data, str) else data.decode()
        def predict_fn(data, model): return eval(data)
        """
    with RunningServer(scripts.save_script(tmp_path / "model", text)) as server:
        workers = server.workers()
        given = {result: server.invoke(result, "text/plain", Accept="application/json") for result in RESULTS}
        assert server.workers() == workers
    for result, answer in given.items():
        found = answer.json() if answer.status_code == 200 else answer.status_code
        assert found == RESULTS[result], (result, answer.text[:200])


@pytest.mark.alone
def test_a_thread_safe_script_runs_in_one_worker_of_many_threads(tmp_path: Path) -> None:
    text = """
        import time
        THREAD_SAFE = True
        def model_fn(model_dir): return None
        def input_fn(data, content_type): return data
        def predict_fn(data, model): time.sleep(0.5); return "done"
        """
    model = scripts.save_script(tmp_path / "model", text)
    with RunningServer(
        model, {"SAGEMAKER_TS_BATCH_SIZE": "8", "SAGEMAKER_TS_MAX_BATCH_DELAY": "300", "BYOC_THREADS": "8"}
    ) as server:
        answers = at_once([lambda: server.invoke("x")] * 8)
        assert len(server.workers()) == 1
    assert [answer.status_code for answer in answers] == [200] * 8
    assert max(answer.elapsed.total_seconds() for answer in answers) < 2.5


def test_the_model_directory_is_the_artefacts_own_and_stays_untouched(tmp_path: Path) -> None:
    text = """
        import os
        def model_fn(model_dir):
            files = [name for _, _, names in os.walk(model_dir) for name in names]
            return [model_dir, sorted(os.listdir(model_dir)), files]
        def input_fn(data, content_type): return data
        def predict_fn(data, model): return model
        """
    model = scripts.save_script(tmp_path / "model", text, config__py="")
    with RunningServer(model) as server:
        place, top, files = server.invoke("x").json()
    assert (place, top) == (str(model), ["code"])
    assert sorted(files) == ["config.py", "inference.py"]
    assert sorted(path.name for path in model.rglob("*")) == ["code", "config.py", "inference.py"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_kettle", "code/inference.py cannot be imported: ModuleNotFoundError: No module named 'no_such_kettle'"),
        ("def model_fn(model_dir): raise RuntimeError('the weights are gone')", "model_fn of the script failed: RuntimeError"),
    ],
)
def test_a_script_that_cannot_load_is_the_last_line_of_the_log(tmp_path: Path, text: str, said: str) -> None:
    server = RunningServer(scripts.save_script(tmp_path / "model", text), wait=False)
    assert server.wait(120) == 3
    assert said in server.lines[-1]


def wheel(folder: Path, name: str) -> None:
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "word = 'steam'\n")
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")


def test_requirements_come_from_the_artefacts_wheels_or_stop_the_start(tmp_path: Path) -> None:
    text = """
        import quiet_kettle
        def model_fn(model_dir): return quiet_kettle.word
        def input_fn(data, content_type): return data
        def predict_fn(data, model): return model
        """
    model = scripts.save_script(tmp_path / "model", text, requirements__txt="numpy\nquiet_kettle==1.0\n")
    refused = RunningServer(model, wait=False)
    assert refused.wait(120) == 3
    assert "No matching distribution found for quiet_kettle==1.0" in refused.lines[-1]
    wheel(model / "code" / "wheels", "quiet_kettle")
    with RunningServer(model) as server:
        assert server.invoke("x").json() == "steam"


def test_torchscript_takes_numbers_in_any_format(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    (tmp_path / "model").mkdir()
    torch.jit.script(torch.nn.Flatten()).save(str(tmp_path / "model" / "model.pt"))
    with RunningServer(tmp_path / "model", TOGETHER) as server:
        answers = at_once([lambda n=n: server.invoke([[[n, 1], [2, 3]]]) for n in range(8)])
        rows = server.invoke("1,2\n3,4", "text/csv")
        passes = server.metrics()["byoc_forward_passes_total"]
    assert [answer.json() for answer in answers] == [[[n, 1.0, 2.0, 3.0]] for n in range(8)]
    assert numpy.array([line.split(",") for line in rows.text.splitlines()], float).tolist() == [[1, 2], [3, 4]]
    assert passes < 9
