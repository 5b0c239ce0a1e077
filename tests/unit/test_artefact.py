"""What is in the model directory, and the sentences about directories that cannot be served."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from batch_handler.artefact import ArtefactError, Kind, default_task, detect, tree


@pytest.fixture
def directory(artefact: Callable[..., Path], tmp_path: Path) -> Path:
    """A copy of a whole artefact, to be spoilt."""
    return Path(shutil.copytree(artefact("bert"), tmp_path / "model"))


def refused(directory: Path) -> str:
    with pytest.raises(ArtefactError) as caught:
        detect(directory)
    return str(caught.value)


def test_a_whole_directory_is_found_with_its_task(directory: Path) -> None:
    found = detect(directory)
    assert (found.kind, found.path, found.task) == (Kind.HUGGING_FACE, directory, "text-classification")
    assert detect(directory, "feature-extraction").task == "feature-extraction"


def test_a_lone_archive_is_found_and_two_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "one.mar").write_bytes(b"x")
    assert detect(tmp_path).kind is Kind.ARCHIVE
    (tmp_path / "two.mar").write_bytes(b"x")
    assert "holds 2 archives (one.mar, two.mar): leave exactly one" in refused(tmp_path)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert f"there is no model directory {tmp_path / 'none'}" in refused(tmp_path / "none")


def test_an_empty_directory_says_what_is_expected(tmp_path: Path) -> None:
    sentence = refused(tmp_path)
    assert "holds no model" in sentence
    assert "config.json" in sentence
    assert "(nothing)" in sentence


def test_a_model_one_level_too_deep_is_pointed_at(directory: Path) -> None:
    sentence = refused(directory.parent)
    assert "one level too deep, in model/" in sentence
    assert "model.safetensors" in sentence


@pytest.mark.parametrize("kept", [0, 5, 7, 8, 100, 0.5, -1])
def test_a_cut_safetensors_file_is_told_with_its_name(directory: Path, kept: float) -> None:
    path = directory / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept) if isinstance(kept, float) else kept])
    sentence = refused(directory)
    assert str(path) in sentence
    assert "damaged or incomplete" in sentence


@pytest.mark.parametrize(
    "header", [b"[]", b"{}", b"1", b'{"a": 1}', b'{"a": {"data_offsets": []}}', b"nonsense", b"[" * 3_000, b"\xff"]
)
def test_a_safetensors_file_with_a_wrong_header_is_told(directory: Path, header: bytes) -> None:
    (directory / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"data")
    assert "not a readable safetensors file" in refused(directory)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("config.json", "{", "config.json is not valid JSON"),
        ("config.json", '{"a": 1,\n oops}', "line 2 column 2"),
        ("config.json", "[]", "must hold a JSON object"),
        ("tokenizer.json", "{'a': 1}", "tokenizer.json is not valid JSON"),
    ],
)
def test_wrong_json_is_told_with_its_place(directory: Path, name: str, text: str, words: str) -> None:
    (directory / name).write_text(text, "utf-8")
    assert words in refused(directory)


def test_json_that_is_not_utf8_is_told(directory: Path) -> None:
    (directory / "config.json").write_bytes(b'{"a": "\xff"}')
    assert "config.json is not UTF-8 text" in refused(directory)


def test_missing_weights_are_told_with_the_tree(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    sentence = refused(directory)
    assert "no weights (model.safetensors)" in sentence
    assert "config.json" in sentence


def test_a_missing_tokenizer_is_told(directory: Path) -> None:
    for path in directory.glob("tokenizer*"):
        path.unlink()
    assert "has no tokenizer files" in refused(directory)


def test_a_missing_shard_is_told_by_name(directory: Path) -> None:
    weight_map = {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}), "utf-8")
    assert "names model-00002-of-00002.safetensors, which is not there" in refused(directory)


@pytest.mark.parametrize(
    ("config", "task"),
    [
        ({"architectures": ["BertForSequenceClassification"]}, "text-classification"),
        ({"architectures": ["MarianMTModel"], "model_type": "marian"}, "translation"),
        ({"architectures": ["M2M100ForConditionalGeneration"], "model_type": "m2m_100"}, "translation"),
        ({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"}, "text2text-generation"),
        ({"architectures": ["BertModel"]}, "feature-extraction"),
        ({"architectures": []}, "feature-extraction"),
        ({"architectures": None}, "feature-extraction"),
        ({}, "feature-extraction"),
    ],
)
def test_the_task_follows_from_the_architecture(tmp_path: Path, config: dict[str, object], task: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    assert default_task(tmp_path) == task


def test_sentence_transformers_files_make_sentence_embeddings(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["BertForSequenceClassification"]}', "utf-8")
    (tmp_path / "modules.json").write_text("[]", "utf-8")
    assert default_task(tmp_path) == "sentence-embeddings"


def test_the_tree_is_cut_and_survives_broken_links(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inner").write_text("abc", "utf-8")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    assert "broken  broken link" in tree(tmp_path)
    assert "    inner  3 bytes" in tree(tmp_path)
    for number in range(100):
        (tmp_path / f"file{number:03}").touch()
    assert tree(tmp_path).endswith("… and more")
    assert len(tree(tmp_path).splitlines()) == 41
