"""The whole entrypoint as its own process, with a stand-in for java."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
STAND_IN_JAVA = Path(__file__).with_name("stand_in_java.py")
MakeModel = Callable[..., Path]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An installation like build/home, made of links, whose java is the stand-in."""
    root = tmp_path / "home"
    frontend = root / "venv" / "lib" / "python3.11" / "site-packages" / "ts" / "frontend"
    for directory in (root / "lib", root / "jre" / "bin", root / "venv" / "bin", frontend):
        directory.mkdir(parents=True)
    shutil.copytree(REPOSITORY / "config", root / "config")
    (root / "lib" / "entrypoint").symlink_to(REPOSITORY / "docker" / "entrypoint")
    (root / "lib" / "batch_handler").symlink_to(REPOSITORY / "handler" / "batch_handler")
    (root / "lib" / "byoc-endpoints.jar").touch()
    (frontend / "model-server.jar").touch()
    (root / "venv" / "bin" / "python").symlink_to(sys.executable)
    java = root / "jre" / "bin" / "java"
    java.write_text(f'#!/bin/sh\nexec {sys.executable} -S {STAND_IN_JAVA} "$@"\n')
    java.chmod(0o755)
    return root


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Run:
    """One entrypoint; ``output`` is what it has written so far, both streams together."""

    def __init__(self, home: Path, port: int, model: Path, *arguments: str, **variables: str) -> None:
        base = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        ours = {
            "PYTHONPATH": f"{home / 'lib'}:{os.pathsep.join(path for path in sys.path if 'site-packages' in path)}",
            "SAGEMAKER_BIND_TO_PORT": str(port),
            "BYOC_BIND_ADDRESS": "127.0.0.1",
            "BYOC_MODEL_DIR": str(model),
        }
        self._log = home.parent / f"log-{time.monotonic_ns()}"
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "entrypoint", *arguments]
            self.process = subprocess.Popen(command, env=base | ours | variables, stdout=log, stderr=subprocess.STDOUT)

    @property
    def output(self) -> str:
        return self._log.read_text()

    @property
    def last_line(self) -> str:
        return self.output.splitlines()[-1]

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 10
        while text not in self.output:
            assert time.monotonic() < deadline, self.output
            assert self.process.poll() is None, self.output
            time.sleep(0.01)

    def end(self) -> int:
        return self.process.wait(10)


@contextmanager
def running(home: Path, port: int, model: Path, *arguments: str, **variables: str) -> Iterator[Run]:
    run = Run(home, port, model, *arguments, **variables)
    try:
        yield run
    finally:
        run.process.kill()
        run.process.wait()


def test_a_start_says_the_settings_and_a_stop_is_in_order(home: Path, port: int, make_model: MakeModel) -> None:
    with running(home, port, make_model(), "serve", "--hint", SAGEMAKER_TS_BATCH_SIZE="5") as run:
        run.wait_for("curl -s localhost:")
        assert re.search(r"INFO ready in \d+\.\d s on 127\.0\.0\.1:\d+ \(.* CPUs", run.output)
        assert "batch_size=5 (SAGEMAKER_TS_BATCH_SIZE) max_batch_delay=1 " in run.output
        assert "task=text-classification" in run.output
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 0
        assert "ERROR" not in run.output


def test_two_lines_in_the_file_change_the_batches(home: Path, port: int, make_model: MakeModel) -> None:
    path = home / "config" / "config.properties"
    edited = path.read_text().replace("batch_size=32", "batch_size=3").replace("max_batch_delay=1", "max_batch_delay=70")
    path.write_text(edited)
    with running(home, port, make_model()) as run:
        run.wait_for("ready in")
        assert "batch_size=3 (config.properties) max_batch_delay=70 (config.properties)" in run.output


def test_a_setting_that_did_not_take_effect_stops_the_start(home: Path, port: int, make_model: MakeModel) -> None:
    with running(home, port, make_model(), STAND_IN="batch=9") as run:
        assert run.end() == 1
        assert run.last_line.endswith("TorchServe did not take the model's settings: batchSize 9 instead of 32")


def test_ctrl_c_drains_and_a_second_one_does_not_wait(home: Path, port: int, make_model: MakeModel) -> None:
    with running(home, port, make_model(), STAND_IN="deaf", SAGEMAKER_CONTAINER_LOG_LEVEL="DEBUG") as run:
        run.wait_for("ready in")
        run.process.send_signal(signal.SIGINT)
        run.wait_for("SIGINT: answers what is in flight")
        assert run.process.poll() is None
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 137


def test_signals_that_mean_nothing_here_do_nothing(home: Path, port: int, make_model: MakeModel) -> None:
    with running(home, port, make_model()) as run:
        run.wait_for("ready in")
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
            run.process.send_signal(number)
        time.sleep(0.1)
        assert run.process.poll() is None


def test_a_stop_that_comes_before_the_model_is_ready_is_in_order(home: Path, port: int, make_model: MakeModel) -> None:
    with running(home, port, make_model(), STAND_IN="late end=143") as run:
        time.sleep(0.4)
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 0


def test_what_the_worker_said_is_the_last_line(home: Path, port: int, make_model: MakeModel) -> None:
    with running(home, port, make_model(), STAND_IN="fail=3") as run:
        assert run.end() == 3
        assert run.last_line.endswith("ERROR the weights do not fit the architecture")


def test_javas_code_is_ours_when_it_ends_by_itself(home: Path, port: int, make_model: MakeModel) -> None:
    with running(home, port, make_model(), STAND_IN="exit=77") as run:
        assert run.end() == 77
        assert run.last_line.endswith("java ended by itself with code 77")


def test_requests_that_were_lost_show_in_the_exit_code(home: Path, port: int, make_model: MakeModel) -> None:
    with running(home, port, make_model(), STAND_IN="end=5") as run:
        run.wait_for("ready in")
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 5
        assert "still unanswered" in run.last_line


def test_the_import_error_of_a_foreign_handler_is_shown(home: Path, port: int, make_archive: Callable[..., Path]) -> None:
    path = make_archive({"handler.py": "import os\nimport not_there_at_all\n"}, handler="handler.py")
    with running(home, port, path.parent, STAND_IN="exit=3") as run:
        assert run.end() == 3
        expected = "ModuleNotFoundError: No module named 'not_there_at_all' (handler.py, line 2)"
        assert run.last_line.endswith(f"the handler handler.py cannot be imported: {expected}")


def test_no_process_and_no_file_is_left_behind(home: Path, port: int, make_model: MakeModel, tmp_path: Path) -> None:
    pid_file = tmp_path / "orphan"
    with running(home, port, make_model(), STAND_IN="orphan", STAND_IN_FILE=str(pid_file)) as run:
        run.wait_for("ready in")
        work = Path(f"/proc/{pid_file.read_text()}/cwd").readlink()
        assert work.stat().st_mode & 0o777 == 0o700
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 0
    assert not Path(f"/proc/{pid_file.read_text()}").exists()
    assert not work.exists()


@pytest.mark.parametrize(
    ("variable", "value", "code", "said"),
    [
        ("SAGEMAKER_TS_BATCH_SIZE", "many", 2, "SAGEMAKER_TS_BATCH_SIZE='many' is not accepted: use a whole number"),
        ("SAGEMAKER_SAFE_PORT_RANGE", "9000-9000", 2, "2 are needed"),
        ("SAGEMAKER_MULTI_MODEL", "perhaps", 2, "use true or false"),
        ("BYOC_MODEL_DIR", "/does/not/exist", 3, "there is no model directory /does/not/exist"),
        ("HF_TASK", "telepathy", 2, "HF_TASK=telepathy is not a task of this image: use one of sentence-embeddings, "),
        ("BYOC_LOG_FORMAT", "xml", 2, "BYOC_LOG_FORMAT='xml' is not accepted: use text or json"),
    ],
)
def test_a_bad_value_stops_the_start_with_one_sentence(
    home: Path, port: int, make_model: MakeModel, variable: str, value: str, code: int, said: str
) -> None:
    with running(home, port, make_model(), **{variable: value}) as run:
        assert run.end() == code
        assert said in run.last_line
        assert len(run.output.splitlines()) == 1
        assert "Traceback" not in run.output


def test_a_relative_path_is_told_from_a_hub_id(
    home: Path, port: int, make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_model()
    with running(home, port, Path("artefact")) as run:
        assert run.end() == 2
        assert run.last_line.endswith(
            f"BYOC_MODEL_DIR='artefact' is not accepted: use an absolute path, such as {tmp_path}/artefact"
        )
    with running(home, port, Path("org/model")) as run:
        assert run.end() == 2
        assert "nothing is downloaded at start" in run.last_line


@pytest.mark.parametrize("level", ["20", "10"])
def test_what_the_system_refuses_is_one_sentence_and_a_traceback_for_developers(
    home: Path, port: int, make_model: MakeModel, level: str
) -> None:
    java = home / "jre" / "bin" / "java"
    java.unlink()
    java.mkdir()
    with running(home, port, make_model(), SAGEMAKER_CONTAINER_LOG_LEVEL=level) as run:
        assert run.end() == 1
        assert f"ERROR the start failed: {java}: Permission denied" in run.last_line
        assert ("Traceback" in run.output) is (level == "10")


def test_an_unknown_sagemaker_variable_is_a_warning(home: Path, port: int, make_model: MakeModel) -> None:
    with running(home, port, make_model(), SAGEMAKER_TS_BATCHSIZE="3") as run:
        run.wait_for("ready in")
        assert "WARN SAGEMAKER_TS_BATCHSIZE is not a setting of this server" in run.output


def test_every_line_is_an_object_when_json_is_asked_for(home: Path, port: int, make_model: MakeModel) -> None:
    with running(home, port, make_model(), BYOC_LOG_FORMAT="json") as run:
        run.wait_for("ready in")
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 0
        entries = [json.loads(line) for line in run.output.splitlines()]
        assert {entry["level"] for entry in entries} == {"INFO"}
        assert entries[0]["settings"]["batch_size"] == "32"


def test_the_health_check_asks_the_serving_port(home: Path, port: int, make_model: MakeModel) -> None:
    with running(home, port, make_model()) as run:
        run.wait_for("ready in")
        with running(home, port, make_model(), "healthcheck") as check:
            assert check.end() == 0
    with running(home, port, make_model(), "healthcheck") as check:
        assert check.end() == 1
        assert "no answer from 127.0.0.1" in check.last_line


def test_any_other_command_is_run_instead(home: Path, port: int, make_model: MakeModel) -> None:
    with running(home, port, make_model(), "sh", "-c", "echo hello; exit 7") as run:
        assert run.end() == 7
        assert run.output == "hello\n"
    with running(home, port, make_model(), "no-such-command") as run:
        assert run.end() == 127
        assert "no-such-command: command not found" in run.last_line


def test_nothing_heavy_is_imported(home: Path) -> None:
    code = "import entrypoint.serve, sys; print({'torch', 'transformers', 'numpy', 'orjson'} & set(sys.modules))"
    path = f"{home / 'lib'}:{os.pathsep.join(entry for entry in sys.path if 'site-packages' in entry)}"
    shown = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"
