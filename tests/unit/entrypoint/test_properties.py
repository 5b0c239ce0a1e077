from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from entrypoint.properties import read, render

CONFIGURATION = Path(__file__).parents[3] / "config" / "config.properties"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("batch_size=32\n", {"batch_size": "32"}),
        ("  batch_size : 32  \n", {"batch_size": "32  "}),
        ("batch_size 32", {"batch_size": "32"}),
        ("# batch_size=1\n! batch_size=2\n\n", {}),
        ("key=\n", {"key": ""}),
        ("key", {"key": ""}),
        ('models={\\\n    "a": 1\\\n}\n', {"models": '{"a": 1}'}),
        ("path=C:\\\\temp\r\nnext=1", {"path": "C:\\temp", "next": "1"}),
        ("a\\=b=c\\u00e9", {"a=b": "cé"}),
        ("key=first\nkey=second", {"key": "second"}),
        ("url=http://0.0.0.0:8080", {"url": "http://0.0.0.0:8080"}),
    ],
)
def test_a_file_is_read_as_java_reads_it(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    path = tmp_path / "some.properties"
    path.write_bytes(text.encode("latin-1"))
    assert read(path) == expected


def test_what_is_rendered_is_read_back_unchanged(tmp_path: Path) -> None:
    values = {"a b": " leading", "c": "trailing ", "d": "back\\slash", "e": "é€𝄞", "f": "two\nlines", "g:h": "=:#!"}
    path = tmp_path / "some.properties"
    path.write_text(render(values), "latin-1")
    assert {key: value for key, value in read(path).items() if key != "e"} == {k: v for k, v in values.items() if k != "e"}
    assert read(path)["e"].encode("utf-16-be", "surrogatepass").decode("utf-16-be") == values["e"]


def test_the_shipped_file_has_the_lines_that_users_edit() -> None:
    shipped = read(CONFIGURATION)
    assert (shipped["batch_size"], shipped["max_batch_delay"]) == ("32", "1")
    assert shipped["decode_input_request"] == "false"
    assert "default_response_timeout" not in shipped, "it would hide the longer timeout of transform jobs"


@pytest.mark.skipif(shutil.which("java") is None, reason="needs a Java with a compiler to compare with")
def test_java_itself_agrees(tmp_path: Path) -> None:
    values = {"a": " x", "b c": "é€", "d": "q\\r"}
    (tmp_path / "some.properties").write_text(render(values), "latin-1")
    (tmp_path / "Show.java").write_text(
        """
        public class Show { public static void main(String[] a) throws Exception {
            java.util.Properties p = new java.util.Properties();
            p.load(new java.io.FileInputStream(a[0]));
            for (String k : new java.util.TreeSet<>(p.stringPropertyNames()))
                new java.io.PrintStream(System.out, true, "UTF-8").println(k + "|" + p.getProperty(k));
        } }"""
    )
    shown = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", tmp_path / "Show.java", tmp_path / "some.properties"],
        capture_output=True,
        check=False,
    )
    if shown.returncode != 0 and b"compiler" in shown.stderr.lower():
        pytest.skip("this Java has no compiler")
    assert shown.stdout.decode().splitlines() == [f"{key}|{value}" for key, value in sorted(values.items())]
