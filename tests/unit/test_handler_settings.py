"""Settings: precedence, types, and sentences about values that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batch_handler.settings import (
    MIB,
    TABLE,
    SettingError,
    Settings,
    resolve,
    response_limit_mb,
    unknown_sagemaker_variables,
)


def refused(**environment: str) -> str:
    with pytest.raises(SettingError) as caught:
        resolve(environment)
    return str(caught.value)


def test_without_anything_set_the_documented_defaults_hold() -> None:
    settings = resolve({})
    assert (settings.batch_size, settings.max_batch_delay, settings.queue_size) == (32, 1, 1_000)
    assert (settings.model_dir, settings.port, settings.bind_address) == (Path("/opt/ml/model"), 8080, "0.0.0.0")
    assert (settings.request_limit_mb, settings.response_timeout_s, settings.transform_payload_mb) == (25, 60, 6)
    assert (settings.truncation, settings.placeholders, settings.csv_header) == (True, False, False)
    assert set(settings.sources.values()) == {"default"}


def test_each_place_wins_over_all_that_come_after_it() -> None:
    environment = {"SAGEMAKER_TS_BATCH_SIZE": "7", "TS_BATCH_SIZE": "6"}
    places: list[Any] = [environment, {"batchSize": 5}, {"batch_size": "4"}]
    assert resolve(*places).batch_size == 7
    assert resolve(*places).sources["batch_size"] == "SAGEMAKER_TS_BATCH_SIZE"
    del environment["SAGEMAKER_TS_BATCH_SIZE"]
    assert resolve(*places).batch_size == 6
    environment.clear()
    assert resolve(*places).batch_size == 5
    assert resolve({}, {}, {"batch_size": "4"}).batch_size == 4
    assert resolve({}, {}, {"batch_size": "4"}).sources["batch_size"] == "config.properties batch_size"


def test_a_variable_set_to_nothing_is_not_set() -> None:
    assert resolve({"SAGEMAKER_TS_BATCH_SIZE": " ", "TS_BATCH_SIZE": "3"}).batch_size == 3
    assert resolve({"HF_TASK": ""}).task is None


ANY_TEXT = {"bind_address", "default_accept", "task"}
"""Whether these are known is decided where they are used."""


@pytest.mark.parametrize("name", sorted(set(TABLE) - ANY_TEXT))
def test_every_setting_answers_a_bad_value_with_variable_value_and_what_is_accepted(name: str) -> None:
    setting = TABLE[name]
    bad = "relative/path" if name == "model_dir" else "~nonsense~"
    for variable in setting.variables:
        assert refused(**{variable: bad}) == f"{variable}={bad!r} is not accepted: use {setting.accepts}"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SAGEMAKER_TS_BATCH_SIZE", "0"),
        ("SAGEMAKER_TS_BATCH_SIZE", "1025"),
        ("SAGEMAKER_TS_BATCH_SIZE", "3.5"),
        ("SAGEMAKER_TS_BATCH_SIZE", "-1"),
        ("SAGEMAKER_TS_BATCH_SIZE", "٣"),
        ("SAGEMAKER_TS_BATCH_SIZE", "1_0"),
        ("SAGEMAKER_TS_BATCH_SIZE", "9" * 5_000),
        ("SAGEMAKER_SAFE_PORT_RANGE", "9000"),
        ("SAGEMAKER_SAFE_PORT_RANGE", "9100-9000"),
        ("SAGEMAKER_SAFE_PORT_RANGE", "1-2-3"),
        ("SAGEMAKER_SAFE_PORT_RANGE", "9000-70000"),
        ("SAGEMAKER_CONTAINER_LOG_LEVEL", "15"),
        ("SAGEMAKER_BATCH", "maybe"),
        ("BYOC_FIELDS", "[]"),
        ("BYOC_FIELDS", '{"a": "outputs"}'),
        ("BYOC_FIELDS", '{"a": 1}'),
        ("BYOC_FIELDS", '{"a": "inputs", "b": "inputs"}'),
        ("BYOC_FIELDS", '{"a": "parameters."}'),
        ("BYOC_FIELDS", '{"a": "parameters. "}'),
        ("BYOC_FIELDS", '{"a": "parameters"}'),
        ("BYOC_FIELDS", '{"a": "inputs.x"}'),
        ("BYOC_FIELDS", "{"),
        ("HF_MODEL_ID", "org/name"),
        ("BYOC_ON_BAD_RECORD", "ignore"),
    ],
)
def test_a_bad_value_stops_with_one_short_sentence(variable: str, value: str) -> None:
    sentence = refused(**{variable: value})
    assert sentence.startswith(f"{variable}=")
    assert "is not accepted: use " in sentence
    assert value[:60] in sentence
    assert len(sentence) < 300
    assert "\n" not in sentence


def test_a_bad_value_in_the_artefact_or_the_properties_names_its_file() -> None:
    with pytest.raises(SettingError, match=r"model-config\.yaml batchSize='many' is not accepted"):
        resolve({}, {"batchSize": "many"})
    with pytest.raises(SettingError, match=r"config\.properties job_queue_size='-3' is not accepted"):
        resolve({}, {}, {"job_queue_size": "-3"})


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [("BYOC_TOKEN_BUGDET", "BYOC_TOKEN_BUDGET"), ("BYOC_FIELD", "BYOC_FIELDS"), ("BYOC_ENGIN", "BYOC_ENGINE")],
)
def test_an_unknown_variable_of_ours_stops_and_names_the_nearest(variable: str, nearest: str) -> None:
    sentence = refused(**{variable: "1"})
    assert sentence.startswith(f"{variable} is not a setting: did you mean {nearest}")


def test_an_unknown_sagemaker_variable_is_only_told() -> None:
    environment = {"SAGEMAKER_TS_BATCHSIZE": "4", "SAGEMAKER_TS_BATCH_SIZE": "4", "SAGEMAKER_REGION": "x"}
    assert unknown_sagemaker_variables(environment) == ["SAGEMAKER_TS_BATCHSIZE"]
    assert resolve(environment).batch_size == 4


def test_the_minimum_of_workers_may_not_exceed_the_maximum() -> None:
    sentence = refused(SAGEMAKER_TS_MIN_WORKERS="4", SAGEMAKER_TS_MAX_WORKERS="2")
    assert "SAGEMAKER_TS_MIN_WORKERS is 4" in sentence
    assert "SAGEMAKER_TS_MAX_WORKERS, which is 2" in sentence
    both = resolve({"SAGEMAKER_MODEL_SERVER_WORKERS": "3"})
    assert (both.min_workers, both.max_workers) == (3, 3)


@pytest.mark.parametrize(
    ("variables", "name", "expected"),
    [
        ({"SAGEMAKER_BATCH": "True"}, "batch_transform", True),
        ({"SAGEMAKER_BATCH": "0"}, "batch_transform", False),
        ({"SAGEMAKER_SAFE_PORT_RANGE": "9000-9999"}, "safe_port_range", (9000, 9999)),
        ({"SAGEMAKER_CONTAINER_LOG_LEVEL": "20"}, "log_level", "INFO"),
        ({"SAGEMAKER_CONTAINER_LOG_LEVEL": "warning"}, "log_level", "WARN"),
        ({"BYOC_ENGINE": "PACKED"}, "engine", "packed"),
        ({"BYOC_FIELDS": '{"s": "inputs", "k": "parameters.top_k"}'}, "fields", {"s": "inputs", "k": "parameters.top_k"}),
        ({"BYOC_MODEL_DIR": "/a", "HF_MODEL_ID": "/b"}, "model_dir", Path("/a")),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}, "request_limit_mb", 100),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "10"}, "request_limit_mb", 10),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "10"}, "concurrent_transforms", 10),
        ({}, "concurrent_transforms", 16),
        ({"SAGEMAKER_TS_BATCH_SIZE": "4"}, "concurrent_transforms", 4),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "500"}, "concurrent_transforms", 1),
        ({"SAGEMAKER_BATCH": "true"}, "response_timeout_s", 3_600),
        ({"SAGEMAKER_BATCH": "true", "SAGEMAKER_MODEL_SERVER_TIMEOUT": "9"}, "response_timeout_s", 9),
        ({"SAGEMAKER_BATCH": "true"}, "placeholders", True),
        ({"SAGEMAKER_BATCH": "true", "BYOC_ON_BAD_RECORD": "reject"}, "placeholders", False),
        ({"BYOC_ON_BAD_RECORD": "placeholder"}, "placeholders", True),
    ],
)
def test_values_become_what_they_mean(variables: dict[str, str], name: str, expected: Any) -> None:
    assert getattr(resolve(variables), name) == expected


@pytest.mark.parametrize(("memory_mb", "expected"), [(None, 512), (100, 64), (1_500, 93), (64_000, 512)])
def test_the_response_limit_follows_the_memory_within_bounds(memory_mb: int | None, expected: int) -> None:
    assert response_limit_mb(resolve({}), None if memory_mb is None else memory_mb * MIB) == expected
    assert response_limit_mb(resolve({"BYOC_MAX_RESPONSE_MB": "7"}), MIB) == 7


def test_every_field_has_an_entry_in_the_table() -> None:
    assert set(TABLE) | {"sources"} == set(Settings.__slots__)
