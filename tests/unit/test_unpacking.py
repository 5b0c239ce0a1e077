"""scripts/unpack_model.py: what is in a model's tar archive lies there as it was, or nothing does and one sentence says why."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from batch_handler import unpacking
from batch_handler.artefact import Artefact, ArtefactError, Kind
from bounded import bounded
from running import ROOT
from tarballs import MIB, REFUSED, compressed, entry, packed

sys.path.insert(0, str(ROOT / "scripts"))
from packages import write_tar
from transform import artefacts
from transform.faults import JobError
from unpack_model import unpack

MOST_MIB = 64


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_archive_is_refused_within_bounds_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(unpacking, "ALWAYS_ALLOWED", 8 * MIB)
    monkeypatch.setattr(unpacking, "MOST_ENTRIES", 1_000)
    make, said = REFUSED[name]
    archive = compressed(make(), tmp_path / "model.tar.gz")
    with bounded(MOST_MIB), pytest.raises(ArtefactError, match=said) as caught:
        unpack(archive, tmp_path / "model")
    assert str(archive) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["model.tar.gz"]


@pytest.mark.parametrize("mode", ["w:gz", "w"])
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_files_come_out_as_they_went_in(tmp_path: Path, mode: str, form: int) -> None:
    source = tmp_path / "source"
    for name, content in {"config.json": b"{}", "1_Pooling/ä 日本.json": b"", "code/run": os.urandom(3 * MIB + 7)}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    (source / "code" / "run").chmod(0o755)
    (source / "empty").mkdir()
    with tarfile.open(tmp_path / "model.tar.gz", mode, format=form) as archive:
        archive.add(source, ".")
    unpack(tmp_path / "model.tar.gz", tmp_path / "model")
    assert files(tmp_path / "model") == files(source)
    assert (tmp_path / "model" / "empty").is_dir()
    assert os.access(tmp_path / "model" / "code" / "run", os.X_OK)
    assert not (tmp_path / "model" / "config.json").stat().st_mode & 0o111


def test_what_gnu_tar_writes_is_read(tmp_path: Path) -> None:
    deep = tmp_path / "source" / ("long name " * 15) / ("another " * 15)
    deep.mkdir(parents=True)
    (deep / "weights.bin").write_bytes(b"w")
    command = ["tar", "-C", str(tmp_path / "source"), "-czf", str(tmp_path / "model.tar.gz"), "."]
    subprocess.run(command, check=True)
    unpack(tmp_path / "model.tar.gz", tmp_path / "model")
    assert files(tmp_path / "model") == files(tmp_path / "source")


def test_a_file_of_two_names_is_packaged_as_two_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "one").write_bytes(b"the same")
    (source / "two").hardlink_to(source / "one")
    write_tar(Artefact(Kind.HUGGING_FACE, source), tmp_path / "model.tar.gz")
    unpack(tmp_path / "model.tar.gz", tmp_path / "model")
    assert files(tmp_path / "model") == {"one": b"the same", "two": b"the same"}


def test_a_large_archive_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    archive = compressed(packed(entry("weights.bin", bytes(512 * MIB))), tmp_path / "model.tar.gz")
    with bounded(MOST_MIB):
        unpack(archive, tmp_path / "model")
    assert (tmp_path / "model" / "weights.bin").stat().st_size == 512 * MIB


def test_a_full_disk_is_told_before_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = compressed(packed(entry("weights.bin")), tmp_path / "model.tar.gz")
    monkeypatch.setattr(unpacking, "KEPT_FREE", shutil.disk_usage(tmp_path).total)
    with pytest.raises(ArtefactError, match=r"needs 1 bytes or more for 'weights\.bin' in .* to spare: make room there"):
        unpack(archive, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("cut", [1, 9, 500])
def test_a_download_that_broke_off_is_told(tmp_path: Path, cut: int) -> None:
    body = gzip.compress(packed(entry("weights.bin", os.urandom(100_000))))
    (tmp_path / "model.tar.gz").write_bytes(body[:-cut])
    with pytest.raises(ArtefactError, match="damaged, incomplete"):
        unpack(tmp_path / "model.tar.gz", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_flipped_bit_is_found_by_its_checksum(tmp_path: Path) -> None:
    body = bytearray(gzip.compress(packed(entry("weights.bin", os.urandom(100_000))), 0))
    body[50_000] ^= 1
    (tmp_path / "model.tar.gz").write_bytes(body)
    with pytest.raises(ArtefactError, match="CRC"):
        unpack(tmp_path / "model.tar.gz", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_what_is_there_already_is_not_touched(tmp_path: Path) -> None:
    archive = compressed(packed(entry("weights.bin")), tmp_path / "model.tar.gz")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine").touch()
    with pytest.raises(ArtefactError, match="File exists"):
        unpack(archive, tmp_path / "model")
    assert list(files(tmp_path / "model")) == ["mine"]


def told(*command: str) -> str:
    """The one sentence of a program that failed."""
    done = subprocess.run([*command], capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, "PORT": "0"})
    assert done.returncode == 1
    (sentence,) = done.stderr.strip().splitlines()
    return sentence


def test_every_way_in_refuses_alike(tmp_path: Path) -> None:
    archive = compressed(packed(entry("config.json"), entry("../evil")), tmp_path / "bad.tar.gz")
    said = f"{archive} holds a path that leads out of it, '../evil': pack names relative to the model's directory"
    packaging = ("scripts/package_model.py", str(archive), "--output", str(tmp_path / "out"))
    assert told(sys.executable, *packaging) == f"package_model: {said}"
    assert told("docker/setup.sh", "serve", str(archive)) == f"unpack_model: {said}"
    (tmp_path / "scratch").mkdir()
    with pytest.raises(JobError) as caught:
        artefacts.directory(str(archive), tmp_path / "scratch")
    assert str(caught.value) == said
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["bad.tar.gz", "scratch"]
