"""Two public examples inside the image, from what their users have to answers: a classifier's tarball, a translation archive."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from containers import DOCKER, Container, readable
from models import flores, scripts
from models.language import BAD, GOOD
from running import ROOT, at_once

OLDER = "torchserve-byoc:cpu-transformers4"
BUILD_LIMIT_S = 900


@pytest.fixture(scope="module")
def older_image() -> str:
    """The image with version 4 of transformers, built from this tree; layers that are there already cost seconds."""
    path = f"{Path(DOCKER).parent}:{os.environ['PATH']}" if "/" in DOCKER else os.environ["PATH"]
    built = subprocess.run(
        ["make", "image", "TRANSFORMERS=4"],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_LIMIT_S,
    )
    assert built.returncode == 0, built.stderr[-4_000:]
    return OLDER


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What SageMaker makes of the classifier's tarball: script, configuration and labels as since version 4."""
    folder = tmp_path_factory.mktemp("classifier")
    tarball = scripts.save_tarball(scripts.save_classifier(folder / "made", old_api=True), folder / "model.tar.gz")
    return readable(scripts.unpack_as_sagemaker(tarball, folder / "model"))


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return readable(scripts.save_translator(tmp_path_factory.mktemp("translator") / "model"))


@pytest.mark.timeout(BUILD_LIMIT_S + 300)
def test_the_classifiers_tarball_answers_three_processes_in_one_batch(older_image: str, classifier: Path) -> None:
    with Container(classifier, scripts.EXAMPLE, image=older_image) as container:
        assert "SAGEMAKER_TS_MAX_BATCH_DELAY lets a request wait up to 100 s for a batch of 3" in container.logs()
        for words in ([GOOD[0], BAD[0], GOOD[1]], [BAD[2], BAD[1], GOOD[2]]):
            answers = scripts.asked_by_processes(container.base_url, words)
            assert answers == ["Good" if word in GOOD else "Bad" for word in words]
        metrics = container.metrics()
        assert "4." in container.python("import transformers; print(transformers.__version__)")[:2]
    assert (metrics["byoc_batch_requests_count"], metrics["byoc_batch_requests_sum"]) == (2, 6)


def test_the_newest_image_says_what_the_classifiers_script_misses(classifier: Path) -> None:
    with Container(classifier) as container:
        response = container.invoke(json.dumps(GOOD[0]))
        logs = container.logs()
    assert response.status_code == 500
    message = response.json()["error"]["message"]
    assert "has no 'encode_plus' any more (write: call the tokenizer itself; or use an image with version 4)" in message
    assert "Traceback" not in response.text
    assert "inference.py uses what transformers 5" in logs
    assert "pad_to_max_length → padding='max_length'" in logs


@pytest.mark.timeout(BUILD_LIMIT_S + 300)
def test_the_projects_own_tasks_serve_in_the_older_image_too(older_image: str, encoder: Path) -> None:
    with Container(encoder, image=older_image) as container:
        together = container.invoke(["kami", "a longer text of some more words"])
        alone = [container.invoke(json.dumps(text)) for text in ("kami", "a longer text of some more words")]
    assert together.status_code == 200
    for one, other in zip(together.json(), alone, strict=True):
        assert one == pytest.approx(other.json(), abs=1e-5)


def test_the_translation_archive_runs_unmodified_and_batches_over_requests(translator: Path, tmp_path: Path) -> None:
    archive = readable(scripts.save_translation_archive(translator, tmp_path / "archive"))
    assert [path.suffix for path in archive.iterdir()] == [".mar"]
    samples = flores.samples()
    with Container(archive) as container:
        parts = [samples[:2], samples[2:3], samples[3:]]
        answers = at_once([lambda part=part: container.invoke(flores.body(part), flores.MEDIA_TYPE) for part in parts])
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    rows = [json.loads(line) for answer in answers for line in answer.text.splitlines()]
    assert [row["id"] for row in rows] == [sample["uid"] for sample in samples]
    assert [row["translatedText"] for row in rows] == flores.translations(translator, samples)


def test_the_projects_own_translation_serves_the_same_payload_by_a_setting(translator: Path) -> None:
    samples = flores.samples()
    expected = flores.translations(translator, samples)
    unknown = {**samples[0], "uid": "elsewhere", "targetLanguage": "klingon"}
    settings = {"BYOC_FIELDS": json.dumps(flores.FIELDS), "SAGEMAKER_BATCH": "true"}
    with Container(translator, settings) as container:
        bodies = ([samples[0], "{not json", samples[1], unknown, "", samples[2]], samples)
        answers = at_once([lambda part=part: container.invoke(flores.body(part), flores.MEDIA_TYPE) for part in bodies])
    rows, whole = ([json.loads(line) for line in answer.text.splitlines()] for answer in answers)
    assert [row.get("uid") for row in rows] == ["id-0", None, "id-1", "elsewhere", None, "id-2"]
    assert [rows[place]["error"]["record"] for place in (1, 3, 4)] == [2, 4, 5]
    assert "'klingon' in 'tgt_lang' is unknown" in rows[3]["error"]["message"]
    assert [rows[place]["translation_text"] for place in (0, 2, 5)] == expected[:3]
    assert [(row["uid"], row["translation_text"]) for row in whole] == [
        (sample["uid"], text) for sample, text in zip(samples, expected, strict=True)
    ]
