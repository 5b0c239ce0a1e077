"""What may be asked of the metrics for CloudWatch, and what is refused before the start."""

from __future__ import annotations

import json

import pytest

from batch_handler.settings import SettingError, resolve


def test_unasked_nothing_goes_to_cloudwatch() -> None:
    settings = resolve({})
    assert (settings.emf_namespace, settings.emf_dimensions, settings.emf_seconds) == (None, None, 60)


def test_namespace_and_dimensions_are_taken_as_written() -> None:
    settings = resolve(
        {"BYOC_EMF_NAMESPACE": "team/models#1", "BYOC_EMF_DIMENSIONS": '{"EndpointName": "sentences", "Stage": "a b"}'}
    )
    assert settings.emf_namespace == "team/models#1"
    assert settings.emf_dimensions == {"EndpointName": "sentences", "Stage": "a b"}


@pytest.mark.parametrize("name", ["AWS/SageMaker", ":models", "a b", "ü", "n" * 256])
def test_a_namespace_that_cloudwatch_refuses_stops_the_start(name: str) -> None:
    with pytest.raises(SettingError, match=r"BYOC_EMF_NAMESPACE=.* is not accepted: use a CloudWatch namespace"):
        resolve({"BYOC_EMF_NAMESPACE": name})


@pytest.mark.parametrize(
    "dimensions",
    [
        "[]",
        "{",
        '{"Model": "mine"}',
        '{"Requests": "many"}',
        '{"_aws": "x"}',
        '{"Stage": 1}',
        '{"Stage": ""}',
        '{"Stage": " "}',
        '{"Stage": ":a"}',
        '{"Stüfe": "a"}',
        json.dumps({f"d{number}": "x" for number in range(9)}),
    ],
)
def test_dimensions_that_cloudwatch_refuses_or_that_hide_a_metric_stop_the_start(dimensions: str) -> None:
    with pytest.raises(SettingError, match=r"BYOC_EMF_DIMENSIONS=.* is not accepted: use a JSON object of at most 8"):
        resolve({"BYOC_EMF_DIMENSIONS": dimensions})
