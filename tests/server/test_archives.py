"""A foreign translation archive runs as it is, and the project's own translation serves the same payload without a handler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from models import flores, scripts
from models.flores import body
from running import RunningServer, at_once

LINES = flores.MEDIA_TYPE
TOGETHER = {"SAGEMAKER_TS_BATCH_SIZE": "4", "SAGEMAKER_TS_MAX_BATCH_DELAY": "300"}


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripts.save_translator(tmp_path_factory.mktemp("translator") / "model")


@pytest.fixture(scope="module")
def samples() -> list[dict[str, str]]:
    return flores.samples()


@pytest.fixture(scope="module")
def expected(translator: Path, samples: list[dict[str, str]]) -> list[str]:
    return flores.translations(translator, samples)


def test_the_archive_runs_as_it_is_and_batches_over_requests(
    translator: Path, samples: list[dict[str, str]], expected: list[str], tmp_path: Path
) -> None:
    archive = scripts.save_translation_archive(translator, tmp_path / "archive")
    with RunningServer(archive) as server:
        assert "batch_size=4 (model-config.yaml)" in server.output
        parts = [samples[:2], samples[2:3], samples[3:]]
        answers = at_once([lambda part=part: server.invoke(body(part), LINES) for part in parts])
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    rows = [json.loads(line) for answer in answers for line in answer.text.splitlines()]
    assert [row["id"] for row in rows] == [sample["uid"] for sample in samples]
    assert [row["translatedText"] for row in rows] == expected
    assert rows[1]["signed"] == "from fr to de"


def test_our_translation_serves_the_same_payload_by_a_setting(
    translator: Path, samples: list[dict[str, str]], expected: list[str]
) -> None:
    settings = {**TOGETHER, "BYOC_FIELDS": json.dumps(flores.FIELDS), "BYOC_ON_BAD_RECORD": "placeholder"}
    unknown = {**samples[0], "uid": "elsewhere", "targetLanguage": "klingon"}
    first = [samples[0], "{not json", samples[1], unknown, samples[2]]
    with RunningServer(translator, settings) as server:
        answers = at_once([lambda part=part: server.invoke(body(part), LINES) for part in (first, samples[3:], samples)])
    rows, others, whole = ([json.loads(line) for line in answer.text.splitlines()] for answer in answers)
    assert [row.get("uid") for row in rows] == ["id-0", None, "id-1", "elsewhere", "id-2"]
    assert rows[1]["error"]["record"] == 2
    assert "'klingon' in 'tgt_lang' is unknown" in rows[3]["error"]["message"]
    assert [rows[place]["translation_text"] for place in (0, 2, 4)] == expected[:3]
    assert [row["translation_text"] for row in others] == expected[3:]
    assert [(row["uid"], row["translation_text"]) for row in whole] == [
        (sample["uid"], text) for sample, text in zip(samples, expected, strict=True)
    ]
