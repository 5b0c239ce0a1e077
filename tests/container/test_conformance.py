"""The conformance cases against the image, one test a case and one container a group."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from containers import Container
from running import (
    CONFORMANCE_GROUPS,
    conformance_artefact,
    conformance_cases,
    conformance_settings,
    conformance_verdicts,
)


@pytest.fixture(scope="module")
def verdict(encoder: Path) -> Callable[[str, str], str]:
    """Runs a group at its first case and remembers the report."""

    @cache
    def report(group: str) -> dict[str, str]:
        with Container(conformance_artefact(group, encoder), conformance_settings(group)) as container:
            return conformance_verdicts(container.base_url, group, Path("/opt/ml/model"))

    return lambda group, case: report(group)[case]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("group", "case"), [(group, case) for group in CONFORMANCE_GROUPS for case in conformance_cases(group)])
def test_the_image_answers_as_the_case_allows(verdict: Callable[[str, str], str], group: str, case: str) -> None:
    assert verdict(group, case).startswith("PASS")
