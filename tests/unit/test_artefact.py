"""What is in the model directory, and the sentences about directories that cannot be served."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from batch_handler import artefact
from batch_handler.artefact import Artefact, ArtefactError, Kind, declares, default_task, detect, tree


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
    sentence = refused(tmp_path)
    assert "holds 2 models (one.mar: a TorchServe archive" in sentence
    assert "two.mar" in sentence


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
        ({"architectures": ["BertForMaskedLM"]}, "fill-mask"),
        ({"architectures": ["GPT2LMHeadModel"]}, "text-generation"),
        ({"architectures": ["LlamaForCausalLM"]}, "text-generation"),
        ({"architectures": ["ViTForImageClassification"]}, "image-classification"),
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
    assert len(tree(tmp_path).splitlines()) == 20


def test_the_tree_is_two_levels_deep(tmp_path: Path) -> None:
    (tmp_path / "first" / "second" / "third").mkdir(parents=True)
    assert tree(tmp_path) == "  first/\n    second/  …"


def torchscript(path: Path) -> Path:
    """What torch.jit.save writes, as far as detection looks."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/constants.pkl", b"")
        archive.writestr("model/code/__torch__.py", b"")
    return path


def state_dict(path: Path) -> Path:
    """What torch.save writes, as far as detection looks."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", b"")
    return path


def script(directory: Path, name: str = "inference.py", text: str = "") -> Path:
    (directory / "code").mkdir(exist_ok=True)
    (directory / "code" / name).write_text(text, "utf-8")
    return directory / "code" / name


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "anything.pt"])
def test_a_torchscript_file_is_a_model_of_numbers_whatever_task_is_asked_for(tmp_path: Path, name: str) -> None:
    torchscript(tmp_path / name)
    found = detect(tmp_path, "text-classification")
    assert (found.kind, found.path, found.task) == (Kind.TORCHSCRIPT, tmp_path, "tensor")
    assert default_task(tmp_path) == "tensor"


def test_an_exported_program_is_found_and_a_broken_one_told(tmp_path: Path) -> None:
    torchscript(tmp_path / "model.pt2")
    assert (detect(tmp_path).kind, detect(tmp_path).task) == (Kind.EXPORTED, "tensor")
    (tmp_path / "model.pt2").write_bytes(b"cut")
    assert "model.pt2 is not a readable exported program" in refused(tmp_path)


@pytest.mark.parametrize("beside", ["state.pth", "some.mar", "config.json"])
def test_a_script_goes_before_whatever_lies_beside_it(tmp_path: Path, beside: str) -> None:
    (tmp_path / beside).write_bytes(b"{}")
    script(tmp_path)
    assert detect(tmp_path, "text-classification") == Artefact(Kind.SCRIPT, tmp_path)


def test_a_script_by_another_name_is_found_by_it_and_hinted_at_without(tmp_path: Path) -> None:
    script(tmp_path, "serve.py")
    assert detect(tmp_path, program="serve.py").kind is Kind.SCRIPT
    assert "Its code/ has no inference.py but serve.py: name the script in SAGEMAKER_PROGRAM" in refused(tmp_path)


@pytest.mark.parametrize("name", ["state.pth", "pytorch_model.bin", "model.safetensors"])
def test_weights_without_the_code_that_builds_their_model_are_told(tmp_path: Path, name: str) -> None:
    state_dict(tmp_path / name)
    assert f"{name} holds weights but not the model that they belong to: add a code/inference.py" in refused(tmp_path)


def test_a_program_that_is_asked_for_and_missing_is_told(directory: Path) -> None:
    with pytest.raises(ArtefactError, match=r"SAGEMAKER_PROGRAM is serve\.py, and .* has no code/serve\.py"):
        detect(directory, program="serve.py")


def test_an_archive_is_found_beside_other_files(tmp_path: Path) -> None:
    (tmp_path / "some.mar").write_bytes(b"x")
    (tmp_path / "README.md").write_text("hello", "utf-8")
    (tmp_path / "config.json").write_text("{}", "utf-8")
    assert detect(tmp_path).path == tmp_path / "some.mar"


def test_two_candidates_are_both_named_with_the_tree(directory: Path) -> None:
    (directory / "some.mar").write_bytes(b"x")
    sentence = refused(directory)
    assert "holds 2 models (some.mar: a TorchServe archive (one .mar file); config.json: a Hugging Face directory" in sentence
    assert "leave exactly one" in sentence
    assert "model.safetensors" in sentence


def test_files_of_training_do_not_count_beside_a_whole_model(directory: Path) -> None:
    torchscript(directory / "traced.pt")
    state_dict(directory / "optimizer.pt")
    assert detect(directory).kind is Kind.HUGGING_FACE
    assert default_task(directory) == "text-classification"


@pytest.mark.parametrize("folder", ["", "0_Transformer"])
def test_sentence_transformers_are_found_in_both_layouts(directory: Path, tmp_path: Path, folder: str) -> None:
    root = tmp_path / "sentences"
    shutil.copytree(directory, root / folder)
    (root / "modules.json").write_text(json.dumps([{"idx": 0, "path": folder, "type": "x.Transformer"}]), "utf-8")
    found = detect(root)
    assert (found.kind, found.path, found.task) == (Kind.SENTENCE_TRANSFORMERS, root, "sentence-embeddings")


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ("[]", "does not list the modules"),
        ("{", "does not list"),
        ('[{"path": "0_Gone"}]', "names '0_Gone', which has no config"),
    ],
)
def test_modules_that_are_not_there_are_told(tmp_path: Path, modules: str, said: str) -> None:
    (tmp_path / "modules.json").write_text(modules, "utf-8")
    assert said in refused(tmp_path)


@pytest.mark.parametrize("make", [lambda folder: torchscript(folder / "model.pt"), script])
def test_any_kind_one_level_too_deep_is_pointed_at(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    (tmp_path / "inner").mkdir()
    make(tmp_path / "inner")
    assert "one level too deep, in inner/" in refused(tmp_path)


def test_a_link_that_leaves_the_directory_is_refused_with_its_target(directory: Path, tmp_path: Path) -> None:
    outside = Path(shutil.move(directory / "model.safetensors", tmp_path / "elsewhere"))
    (directory / "model.safetensors").symlink_to(outside)
    sentence = refused(directory)
    assert "model.safetensors is a link that leaves the model directory: put the file itself there" in sentence
    assert f"It leads to {outside}" in sentence
    assert "config.json" in sentence


def test_a_directory_of_very_many_files_is_refused_before_they_are_looked_at(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artefact, "MOST_ENTRIES", 2)
    sentence = refused(directory)
    assert sentence == f"{directory} holds more than 2 files and directories: put the model alone there"


def test_links_inside_the_directory_and_into_the_hub_cache_are_fine(directory: Path, tmp_path: Path) -> None:
    shutil.move(directory / "model.safetensors", directory / "weights")
    (directory / "model.safetensors").symlink_to("weights")
    assert detect(directory).kind is Kind.HUGGING_FACE
    snapshot = tmp_path / "models--some" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    shutil.copytree(directory, tmp_path / "models--some" / "blobs")
    for path in directory.iterdir():
        (snapshot / path.name).symlink_to(Path("..", "..", "blobs", path.name))
    assert detect(snapshot).kind is Kind.HUGGING_FACE


def test_a_file_that_cannot_be_read_is_told(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "tokenizer.json" and honest(path, mode))
    sentence = refused(directory)
    assert "tokenizer.json cannot be read by user" in sentence
    assert "chmod" in sentence


def test_a_model_of_images_needs_no_tokenizer(directory: Path) -> None:
    for path in directory.glob("tokenizer*"):
        path.unlink()
    (directory / "preprocessor_config.json").write_text("{}", "utf-8")
    assert detect(directory).kind is Kind.HUGGING_FACE


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        ("THREAD_SAFE = True", True),
        ("THREAD_SAFE = False", False),
        ("x = 1", False),
        ("def (", False),
        ("'THREAD_SAFE = True'", False),
    ],
)
def test_a_flag_of_a_script_is_read_without_running_it(tmp_path: Path, text: str, declared: bool) -> None:
    assert declares(script(tmp_path, text=f"{text}\n"), "THREAD_SAFE") is declared
