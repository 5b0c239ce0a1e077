from __future__ import annotations

import json
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from batch_handler import unpacking
from batch_handler.artefact import ArtefactError, detect
from entrypoint import model
from entrypoint.model import Source, build, open_artefact

MakeArchive = Callable[..., Path]
MakeModel = Callable[..., Path]
EFFECTIVE = {"minWorkers": 1, "batchSize": 8}


def opened(path: Path, tmp_path: Path) -> Source:
    work = tmp_path / "work"
    work.mkdir()
    return open_artefact(detect(path if path.is_dir() else path.parent), work)


def built(source: Source, tmp_path: Path) -> Path:
    build(source, EFFECTIVE, tmp_path / "model")
    return tmp_path / "model"


def manifest_of(directory: Path) -> dict[str, str]:
    model_part: dict[str, str] = json.loads((directory / "MAR-INF/MANIFEST.json").read_text())["model"]
    return model_part


def test_a_hugging_face_directory_is_linked_and_served_by_our_handler(make_model: MakeModel, tmp_path: Path) -> None:
    artefact = make_model(model__config_yaml="batchSize: 4\nresponseTimeout: 9\nhandler:\n  own: key\n")
    source = opened(artefact, tmp_path)
    directory = built(source, tmp_path)
    assert source.ours
    assert source.task == "text-classification"
    assert (directory / "model.safetensors").resolve() == artefact / "model.safetensors"
    assert manifest_of(directory)["handler"] == "batch_handler.service:handle"
    assert manifest_of(directory)["modelVersion"] == "1.0"
    merged = yaml.safe_load((directory / "model-config.yaml").read_text())
    assert merged == {"batchSize": 8, "minWorkers": 1, "responseTimeout": 9, "handler": {"own": "key"}}
    assert (artefact / "model-config.yaml").read_text().startswith("batchSize: 4")


def test_a_foreign_archive_keeps_its_handler_and_its_manifest(make_archive: MakeArchive, tmp_path: Path) -> None:
    path = make_archive(
        {"handler.py": "x = 1", "weights.pt": b"12345", "conf.yaml": "batchSize: 2\nmine: {a: 1}"},
        handler="handler.py",
        serializedFile="weights.pt",
        configFile="conf.yaml",
    )
    source = opened(path, tmp_path)
    directory = built(source, tmp_path)
    assert not source.ours
    assert source.task is None
    assert source.config == {"batchSize": 2, "mine": {"a": 1}}
    manifest = manifest_of(directory)
    assert manifest["handler"] == "handler.py"
    assert manifest["serializedFile"] == "weights.pt"
    assert manifest["modelName"] == "model"
    assert manifest["configFile"] == "model-config.yaml"
    assert (directory / "weights.pt").read_bytes() == b"12345"
    assert yaml.safe_load((directory / "model-config.yaml").read_text())["mine"] == {"a": 1}


def test_of_our_own_archive_only_the_model_is_used(make_archive: MakeArchive, make_model: MakeModel, tmp_path: Path) -> None:
    files = {entry.name: entry.read_bytes() for entry in make_model().iterdir()}
    (tmp_path / "artefact" / "config.json").unlink()
    packaged = {"byoc_handler.py": "", "batch_handler/service.py": "an old one"}
    source = opened(make_archive(files | packaged, handler="byoc_handler.py"), tmp_path)
    directory = built(source, tmp_path)
    assert source.ours
    assert source.handler == "batch_handler.service:handle"
    assert source.task == "text-classification"
    assert not (directory / "batch_handler").exists()
    assert not (directory / "byoc_handler.py").exists()
    assert (directory / "tokenizer.json").exists()


def test_a_fault_in_an_archive_names_the_archive(make_archive: MakeArchive, tmp_path: Path) -> None:
    path = make_archive({"config.json": "{", "byoc_handler.py": ""}, handler="byoc_handler.py")
    with pytest.raises(ArtefactError, match=r"some\.mar/config\.json is not valid JSON"):
        opened(path, tmp_path)


def test_keys_that_break_torchserve_are_left_out_and_told(make_model: MakeModel, tmp_path: Path) -> None:
    text = "asyncCommunication: true\nclientTimeoutInMills: 5\nuseVenv: false\n"
    source = opened(make_model(model__config_yaml=text), tmp_path)
    assert source.unusable_keys == ["asyncCommunication", "clientTimeoutInMills"]
    merged = yaml.safe_load((built(source, tmp_path) / "model-config.yaml").read_text())
    assert not set(merged) & set(model.UNUSABLE_KEYS)


@pytest.mark.parametrize(("text", "said"), [("a: [", "not valid YAML, line"), ("- 1\n- 2", "must hold keys")])
def test_a_broken_yaml_stops_the_start(make_model: MakeModel, tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ArtefactError, match=rf"model-config\.yaml.*{said}"):
        opened(make_model(model__config_yaml=text), tmp_path)


def test_an_empty_yaml_is_no_yaml(make_model: MakeModel, tmp_path: Path) -> None:
    assert opened(make_model(model__config_yaml="# nothing\n"), tmp_path).config == {}


@pytest.mark.parametrize("name", ["../evil.py", "/etc/evil.py", "a/../../evil.py", "..\\evil.py"])
def test_a_path_out_of_the_archive_is_refused(make_archive: MakeArchive, tmp_path: Path, name: str) -> None:
    with pytest.raises(ArtefactError, match="leads out"):
        opened(make_archive({name: "x"}, handler="handler.py"), tmp_path)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_what_is_no_file_in_an_archive_is_refused_by_its_name(make_archive: MakeArchive, tmp_path: Path, kind: int) -> None:
    path = make_archive(handler="handler.py")
    entry = zipfile.ZipInfo("handler.py")
    entry.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(entry, "/etc/passwd")
    with pytest.raises(ArtefactError, match=r"some\.mar holds a link, a device or a sparse file, 'handler\.py'"):
        opened(path, tmp_path)


@pytest.mark.parametrize("again", ["handler.py", "./handler.py", ".\\handler.py"])
@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_a_name_that_comes_twice_is_refused(make_archive: MakeArchive, tmp_path: Path, again: str) -> None:
    path = make_archive({"handler.py": "checked"}, handler="handler.py")
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(again, "run")
    with pytest.raises(ArtefactError, match=r"holds '.*handler\.py' twice"):
        opened(path, tmp_path)


def test_a_name_that_no_file_can_have_is_refused(make_archive: MakeArchive, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"holds a name of over 255 bytes, 'a/xxx"):
        opened(make_archive({f"a/{'x' * 256}/b": ""}, handler="handler.py"), tmp_path)


def test_very_many_entries_are_refused_before_any_is_written(make_archive: MakeArchive, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"holds more than 100,000 entries"):
        opened(make_archive({f"{number}/": "" for number in range(100_001)}, handler="handler.py"), tmp_path)


def test_a_truncated_archive_is_named(make_archive: MakeArchive, tmp_path: Path) -> None:
    path = make_archive({"weights.pt": bytes(range(256)) * 40}, handler="handler.py")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ArtefactError, match=r"some\.mar is not a readable archive: it is damaged or incomplete"):
        opened(path, tmp_path)


def test_a_flipped_byte_is_found_by_its_checksum(make_archive: MakeArchive, tmp_path: Path) -> None:
    path = make_archive(handler="handler.py")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as file:
        file.writestr("weights.pt", b"A" * 1_000)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"A" * 1_000, b"A" * 999 + b"B"))
    with pytest.raises(ArtefactError, match="damaged"):
        opened(path, tmp_path)


def test_an_archive_that_blows_up_is_refused(make_archive: MakeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "ALWAYS_ALLOWED", 1_000)
    with pytest.raises(ArtefactError, match="times its own size"):
        opened(make_archive({"zeros": bytes(1_000_000)}, handler="handler.py"), tmp_path)


def test_an_archive_larger_than_the_disk_is_refused(
    make_archive: MakeArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "KEPT_FREE", 1 << 62)
    with pytest.raises(ArtefactError, match="to spare"):
        opened(make_archive({"a": "b"}, handler="handler.py"), tmp_path)


def test_an_archive_without_a_handler_is_refused(make_archive: MakeArchive, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="names no handler"):
        opened(make_archive(), tmp_path)


def test_a_zip_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "artefact").mkdir()
    with zipfile.ZipFile(tmp_path / "artefact" / "some.mar", "w") as file:
        file.writestr("readme", "x")
    with pytest.raises(ArtefactError, match=r"has no MAR-INF/MANIFEST\.json"):
        opened(tmp_path / "artefact" / "some.mar", tmp_path)


@pytest.mark.parametrize(("flag", "shared"), [("THREAD_SAFE = True", True), ("", False)])
def test_a_script_is_run_by_our_handler_and_shares_weights_only_when_it_says_so(
    tmp_path: Path, make_model: MakeModel, flag: str, shared: bool
) -> None:
    artefact = make_model()
    (artefact / "code").mkdir()
    (artefact / "code" / "inference.py").write_text(flag)
    source = opened(artefact, tmp_path)
    assert (source.handler, source.task) == ("batch_handler.service:handle", None)
    assert source.script == artefact / "code" / "inference.py"
    assert source.shares_weights is shared
    assert (built(source, tmp_path) / "code").readlink() == artefact / "code"


def test_only_our_own_models_share_weights_without_a_word(
    tmp_path: Path, make_model: MakeModel, make_archive: MakeArchive
) -> None:
    assert opened(make_model(), tmp_path).shares_weights
    (tmp_path / "other").mkdir()
    archive_path = make_archive({"h.py": ""}, handler="h.py")
    for path in archive_path.parent.iterdir():
        if path != archive_path:
            path.unlink()
    assert not opened(archive_path, tmp_path / "other").shares_weights


def test_a_script_in_our_own_archive_is_found_again(tmp_path: Path, make_archive: MakeArchive) -> None:
    path = make_archive({"code/inference.py": "", "byoc_handler.py": ""}, handler="byoc_handler.py")
    source = opened(path, tmp_path)
    assert source.script == tmp_path / "work" / "archive" / "code" / "inference.py"
    assert source.task is None
