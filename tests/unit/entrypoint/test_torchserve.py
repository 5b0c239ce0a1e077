from __future__ import annotations

from pathlib import Path

import pytest

from batch_handler.resources import Resources
from batch_handler.settings import MIB, resolve
from entrypoint import torchserve
from entrypoint.capacity import Capacity
from entrypoint.environment import worker_environment
from entrypoint.failure import StartError
from entrypoint.home import Home
from entrypoint.ports import Ports
from entrypoint.properties import read
from entrypoint.report import example, other_settings, settings_in_force, start_line
from entrypoint.torchserve import Launch, check_model, command, model_keys, properties

CONFIGURATION = Path(__file__).parents[3] / "config" / "config.properties"
SHIPPED = read(CONFIGURATION)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    frontend = tmp_path / "venv" / "lib" / "python3.11" / "site-packages" / "ts" / "frontend"
    frontend.mkdir(parents=True)
    (tmp_path / "lib").mkdir()
    for jar in (frontend / "model-server.jar", tmp_path / "lib" / "byoc-endpoints.jar"):
        jar.touch()
    return Home(tmp_path)


def launch(home: Home, **variables: str) -> Launch:
    return Launch(
        settings=resolve(variables, None, SHIPPED),
        capacity=Capacity(1, 2, 3),
        ports=Ports(8081, 9000),
        home=home,
        work=Path("/tmp/byoc-x"),
        response_mb=64,
        heap_mb=300,
        decode=False,
    )


def test_only_the_serving_port_leaves_loopback(home: Home) -> None:
    rendered = properties(launch(home), SHIPPED)
    listening = {key: value for key, value in rendered.items() if "address" in key}
    assert listening.pop("inference_address") == "http://0.0.0.0:8080"
    assert listening == {"management_address": "http://127.0.0.1:8081"}
    assert rendered["enable_metrics_api"] == "false"


def test_what_a_user_writes_into_the_file_cannot_open_it(home: Home) -> None:
    opened = {"enable_envvars_config": "true", "enable_model_api": "true", "management_address": "http://0.0.0.0:8081"}
    rendered = properties(launch(home), SHIPPED | opened | {"models": "{}", "cors_allowed_origin": "*"})
    assert rendered["enable_envvars_config"] == rendered["enable_model_api"] == "false"
    assert rendered["management_address"] == "http://127.0.0.1:8081"
    assert rendered["disable_token_authorization"] == "true"
    assert "models" not in rendered
    assert rendered["cors_allowed_origin"] == "*", "what is none of our business passes"


def test_the_limits_are_bytes_and_the_times_are_the_jobs(home: Home) -> None:
    rendered = properties(launch(home, SAGEMAKER_MAX_PAYLOAD_IN_MB="7", SAGEMAKER_BATCH="True"), SHIPPED)
    assert rendered["max_request_size"] == str(7 * MIB)
    assert rendered["max_response_size"] == str(64 * MIB)
    assert rendered["default_response_timeout"] == "3600"
    assert properties(launch(home), SHIPPED)["default_response_timeout"] == "60"


def test_the_models_keys_are_torchserves_own(home: Home) -> None:
    started = launch(home, SAGEMAKER_TS_BATCH_SIZE="4", SAGEMAKER_TS_RESPONSE_TIMEOUT="9")
    keys = model_keys(started.settings, started.capacity)
    assert keys == {
        "minWorkers": 1,
        "maxWorkers": 2,
        "batchSize": 4,
        "maxBatchDelay": 1,
        "responseTimeout": 9,
        "startupTimeout": 480,
        "maxRetryTimeoutInSec": 960,
    }


def test_java_gets_its_limits_and_no_current_directory(home: Home) -> None:
    line = command(launch(home, SAGEMAKER_MAX_CONCURRENT_TRANSFORMS="3"), Path("/jre/bin/java"), Path("/c"))
    assert line[0] == "/jre/bin/java"
    assert "-Xmx300m" in line
    assert "-Dbyoc.execution.max-payload-mb=6" in line
    assert "-Dbyoc.execution.max-concurrent-transforms=3" in line
    assert "-Djava.io.tmpdir=/tmp/byoc-x/tmp" in line
    class_path = line[line.index("-cp") + 1].split(":")
    assert len(class_path) == 2
    assert all(Path(entry).is_absolute() for entry in class_path)
    assert line[line.index("-cp") + 2] == "byoc.endpoints.Frontend"


def test_a_missing_part_of_the_installation_is_named(home: Home, tmp_path: Path) -> None:
    (tmp_path / "lib" / "byoc-endpoints.jar").unlink()
    with pytest.raises(StartError, match=r"byoc-endpoints\.jar is missing"):
        home.class_path()
    with pytest.raises(StartError, match="there is no TorchServe"):
        Home(tmp_path / "nowhere").torchserve()


def test_a_machine_without_java_gets_a_sentence(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(StartError, match="there is no Java"):
        home.java()


def test_a_difference_to_the_settings_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchserve, "describe", lambda _port: {"batchSize": 1, "maxBatchDelay": 5, "modelName": "model"})
    check_model({"batchSize": 1, "maxBatchDelay": 5}, 8081)
    with pytest.raises(StartError, match="batchSize 1 instead of 32"):
        check_model({"batchSize": 32, "maxBatchDelay": 5}, 8081)


def test_a_worker_reads_effective_values_under_the_first_name_of_each_setting(tmp_path: Path) -> None:
    given = {"SAGEMAKER_MODEL_SERVER_TIMEOUT": "7", "TS_BATCH_SIZE": "3", "TS_CONFIG_FILE": "/elsewhere", "KEPT": "yes"}
    settings = resolve(given, {"maxBatchDelay": 44})
    effective = {"threads": 2, "max_response_mb": 64, "response_timeout": 7, "model_dir": tmp_path / "model"}
    variables = worker_environment(given, settings, effective, library=Path("/lib/python"), work=tmp_path, pool_threads=1)
    expected = {
        "SAGEMAKER_TS_BATCH_SIZE": "3",
        "SAGEMAKER_TS_MAX_BATCH_DELAY": "44",
        "SAGEMAKER_TS_RESPONSE_TIMEOUT": "7",
        "BYOC_THREADS": "2",
        "BYOC_MAX_RESPONSE_MB": "64",
        "BYOC_TRUNCATION": "true",
        "BYOC_MODEL_DIR": str(tmp_path / "model"),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": "/lib/python",
        "KEPT": "yes",
    }
    assert expected.items() <= variables.items()
    assert "TS_CONFIG_FILE" not in variables, "TorchServe would obey it"
    assert "HF_TASK" not in variables
    assert resolve(variables).batch_size == 3, "the worker's own reading agrees"


def test_only_what_somebody_chose_shows_its_source() -> None:
    settings = resolve({"TS_BATCH_SIZE": "3"}, {"maxBatchDelay": 44}, SHIPPED)
    shown = settings_in_force(settings, {"threads": 2})
    assert shown["batch_size"] == "3 (TS_BATCH_SIZE)"
    assert shown["max_batch_delay"] == "44 (model-config.yaml)"
    assert shown["queue_size"] == "1000", "the shipped file repeats the default"
    assert shown["threads"] == "2"
    assert "fields" not in shown


def test_the_start_lines_tell_what_matters_or_was_chosen_and_then_the_rest() -> None:
    settings = resolve({"TS_BATCH_SIZE": "3", "BYOC_QUEUE_SIZE": "9"}, {"maxBatchDelay": 44}, SHIPPED)
    in_force = {"task": "fill-mask", **settings_in_force(settings, {"threads": 1})}
    first = start_line(4.24, settings, Resources(1.0, None, False), in_force).split()
    other = other_settings(in_force).split()
    assert first[6:8] == ["(1", "CPU):"]
    at = first.index("task=fill-mask")
    assert first[at + 2 : at + 6] == ["batch_size=3", "(TS_BATCH_SIZE)", "max_batch_delay=44", "(model-config.yaml)"]
    assert first[-2:] == ["queue_size=9", "(BYOC_QUEUE_SIZE)"]
    assert "truncation=true" in other
    told = [word.partition("=")[0] for word in (*first, *other) if "=" in word]
    assert sorted(told) == sorted(in_force), "each once"


def test_the_start_line_is_one_line_and_the_example_can_be_copied() -> None:
    settings = resolve({"BYOC_BIND_ADDRESS": "127.0.0.1", "SAGEMAKER_BIND_TO_PORT": "8099"})
    line = start_line(4.24, settings, Resources(1.5, 1_500 * MIB, True), {"batch_size": "3"})
    assert line == "ready in 4.2 s on 127.0.0.1:8099 (1.5 CPUs, 1,500 MiB): batch_size=3"
    assert example(settings).startswith("curl -s localhost:8099/invocations ")
