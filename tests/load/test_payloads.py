"""What is sent, and when: payloads from files and directories, their mix, and arrivals by chance."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path

import pytest

from loading.arrivals import Step, poisson
from loading.errors import LoadTestError
from loading.payloads import matches, mix, read


def test_a_line_is_a_body_and_blank_lines_are_none(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('{"inputs": "a"}\n\n{"inputs": "b"}\n', "utf-8")
    found = read(tmp_path / "texts.jsonl")
    assert [(one.body, one.content_type) for one in found] == [
        (b'{"inputs": "a"}', "application/json"),
        (b'{"inputs": "b"}', "application/json"),
    ]


def test_lines_may_be_sent_several_at_once(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text("1\n2\n3\n", "utf-8")
    found = read(tmp_path / "texts.jsonl", lines_per_request=2)
    assert [(one.body, one.content_type) for one in found] == [
        (b"1\n2", "application/jsonlines"),
        (b"3", "application/jsonlines"),
    ]


def test_a_directory_is_mixed_by_its_weights(tmp_path: Path) -> None:
    (tmp_path / "short-1.json").write_text('"a"', "utf-8")
    (tmp_path / "long.csv").write_text("b\n", "utf-8")
    (tmp_path / "never.txt").write_text("c", "utf-8")
    (tmp_path / "many.jsonl").write_text('"d"\n"e"\n', "utf-8")
    (tmp_path / "weights.yaml").write_text("short-*: 6\nnever.*: 0\nmany.*: 2\n", "utf-8")
    found = read(tmp_path)
    assert {one.name: one.content_type for one in found} == {
        "long.csv": "text/csv",
        "many.jsonl:1": "application/json",
        "many.jsonl:2": "application/json",
        "short-1.json": "application/json",
    }
    sent = Counter(one.name for one in islice(mix(found, 1), 9_000))
    assert sent["short-1.json"] == pytest.approx(6_000, rel=0.1)
    assert sent["long.csv"] == pytest.approx(1_000, rel=0.2)
    assert sent["many.jsonl:1"] == pytest.approx(1_000, rel=0.2)


def test_equal_weights_go_round_evenly(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text("".join(f"{number}\n" for number in range(7)), "utf-8")
    sent = [one.body for one in islice(mix(read(tmp_path / "texts.jsonl"), 3), 70)]
    assert set(Counter(sent).values()) == {10}
    assert sent[:7] != sent[7:14]


def test_an_expected_answer_lies_beside_its_body(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('"a"', "utf-8")
    (tmp_path / "one.json.expected").write_text("[0.5]", "utf-8")
    (payload,) = read(tmp_path)
    assert payload.expected == b"[0.5]"


@pytest.mark.parametrize(
    ("answer", "expected", "same"),
    [
        (b'{"label": "x", "score": 0.912341}', b'{"score":0.91234,"label":"x"}', True),
        (b'[{"score": 0.9}]', b'[{"score": 0.8}]', False),
        (b'{"a": 1}', b'{"a": 1, "b": 2}', False),
        (b"[1, 2]", b"[1]", False),
        (b"[true]", b"[1]", False),
        (b"a,0.5\n", b"a,0.5\n", True),
        (b"a,0.5\n", b"a,0.6\n", False),
    ],
)
def test_answers_match_by_value_where_they_are_json(answer: bytes, expected: bytes, same: bool) -> None:
    assert matches(answer, expected) is same


@pytest.mark.parametrize(
    ("name", "content", "weights", "sentence"),
    [
        ("empty.jsonl", "\n", None, "holds no payloads"),
        ("body.bin", "x", None, "has no known Content-Type: pass --content-type"),
        ("body.json", "1", "body.*: 0\n", "gives every payload the weight 0"),
        ("body.json", "1", "body.*: -1\n", "must give each pattern a weight of 0 or more"),
        ("body.json", "1", "- a\n", "must give each pattern a weight of 0 or more"),
        ("body.json", "1", "a: [\n", "is not valid YAML"),
    ],
)
def test_what_cannot_be_sent_is_one_sentence(tmp_path: Path, name: str, content: str, weights: str | None, sentence: str) -> None:
    (tmp_path / name).write_text(content, "utf-8")
    if weights is not None:
        (tmp_path / "weights.yaml").write_text(weights, "utf-8")
    with pytest.raises(LoadTestError, match=sentence):
        read(tmp_path)


def test_arrivals_are_poisson() -> None:
    """Gaps of a Poisson process have mean and deviation 1 / rate, and neighbours have nothing to do with each other."""
    moments = list(poisson(50.0, 400.0, 7))
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    together = sum((one - mean) * (other - mean) for one, other in pairwise(gaps)) / len(gaps) / deviation**2
    assert mean == pytest.approx(0.02, rel=0.03)
    assert deviation == pytest.approx(0.02, rel=0.05)
    assert abs(together) < 0.03
    assert moments == sorted(moments)
    assert moments[0] > 0
    assert moments[-1] < 400.0


def test_the_processes_share_a_step_without_losing_a_client() -> None:
    shares = [Step(clients=7).share(number, 3) for number in range(3)]
    assert [share.clients for share in shares] == [3, 2, 2]
    assert sum(Step(rate=90.0).share(number, 3).rate for number in range(3)) == pytest.approx(90.0)


def test_the_bodies_of_the_compose_file_are_valid() -> None:
    texts = Path(__file__).resolve().parents[2] / "docker" / "compose" / "texts.jsonl"
    assert all(set(json.loads(one.body)) == {"inputs"} for one in read(texts))
