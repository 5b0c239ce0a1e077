"""What the benchmark of many models makes of its measurements."""

from __future__ import annotations

import pytest

from benchmarks import multi_model


def test_memory_is_that_of_the_models_alone() -> None:
    found = multi_model.summary(300.0, 500.0, [0.5, 0.1, 0.3, 0.2], [0.05] * 4, [0.01] * 8)
    assert found["mb_per_model"] == 50.0
    assert found["models_per_gb"] == 20.0
    assert found["load_p50_s"] == pytest.approx(0.25)
    assert found["load_p99_s"] == 0.5
    assert found["first_p50_ms"] == pytest.approx(50.0)
    assert found["later_p99_ms"] == pytest.approx(10.0)


def test_the_columns_of_the_table_stand_under_their_titles() -> None:
    result = multi_model.summary(300.0, 500.0, [0.5], [0.05], [0.01])
    lines = multi_model.table({"one": result, "a longer name": result}).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[2].split("|")[2].strip() == "5.00"
    assert lines[0].index("models/GB") + len("models/GB") == lines[2].index("5.00") + len("5.00")
