"""The fork server without TorchServe: what a fork prints, is given and leaves behind, told on the pipe to whoever ordered it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from entrypoint.becoming import hidden, search_path
from running import ROOT, command_line

LIMIT_S = 20.0
ROOM = "-" * 400
# The server as the template runs it, without the imports that take seconds.
SERVER = """
import os, sys, random, resource
import numpy.random
from entrypoint.becoming import become, search_path
from entrypoint.forking import ForkServer
from entrypoint import template
orders, reports = template._take_standard_streams()
pid, inherited = os.getpid(), search_path(os.environ.get("PYTHONPATH", ""))
order = ForkServer(orders, reports).run()
if order is not None:
    become(order, pid, inherited)
"""


class Template:
    """A fork server as a child process; ``reports`` by order."""

    def __init__(self, prelude: str = "") -> None:
        path = os.pathsep.join(str(ROOT / folder) for folder in ("docker", "handler"))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", prelude + SERVER, ROOM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "2"},
        )
        self.path = path
        self.reports: dict[int, list[dict[str, Any]]] = {}
        self._unread = b""

    def order(self, number: int, script: Path, *arguments: str, **environment: str) -> None:
        assert self.process.stdin is not None
        own = {"PATH": os.environ["PATH"], "PYTHONPATH": self.path, "OMP_NUM_THREADS": "2", **environment}
        order = {"id": number, "arguments": [str(script), *arguments], "environment": own, "directory": str(script.parent)}
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, number: int, what: str) -> Any:
        """The first report of this kind about this order."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            for report in self.reports.get(number, []):
                if what in report:
                    return report[what]
            assert time.monotonic() < deadline, f"no {what} of {number}: {self.reports}"
            self._read()

    def told(self, number: int, what: str) -> list[Any]:
        return [report[what] for report in self.reports.get(number, []) if what in report]

    def _read(self) -> None:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], 0.2)[0]:
            return
        received = os.read(self.process.stdout.fileno(), 65_536)
        assert received, "the template ended"
        *lines, self._unread = (self._unread + received).split(b"\n")
        for line in lines:
            report = json.loads(line)
            self.reports.setdefault(report["id"], []).append(report)

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(LIMIT_S)
        self.process.stdout.close()


@pytest.fixture
def template() -> Iterator[Template]:
    server = Template()
    yield server
    server.end()


def script(folder: Path, text: str, name: str = "program.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_fork_is_a_program_with_arguments_environment_and_directory_of_its_own(template: Template, tmp_path: Path) -> None:
    told = "import json, os, sys\nprint(json.dumps([__name__, sys.argv, dict(os.environ), os.getcwd(), os.getppid(), sys.path]))"
    program = script(tmp_path, told)
    template.order(1, program, "--port", "9", GREETING="grüß dich")
    name, arguments, environment, directory, parent, path = json.loads(template.wait(1, "out"))
    assert (name, arguments) == ("__main__", [str(program), "--port", "9"])
    assert environment["GREETING"] == "grüß dich"
    assert "HOME" not in environment
    assert (directory, parent) == (str(tmp_path), template.process.pid)
    assert path[:2] == template.path.split(os.pathsep)
    assert template.wait(1, "ended") == 0


def test_every_line_comes_with_its_worker_and_before_the_end(template: Template, tmp_path: Path) -> None:
    program = script(
        tmp_path,
        "import sys\nfor n in range(2_000): print(sys.argv[1], n)\n"
        "print('sorry', file=sys.stderr)\nsys.stdout.buffer.write(b'\\xff no end')",
    )
    for number in (1, 2):
        template.order(number, program, f"w{number}")
    for number in (1, 2):
        template.wait(number, "ended")
        assert template.told(number, "out") == [f"w{number} {n}" for n in range(2_000)] + ["\ufffd no end"]
        assert template.told(number, "err") == ["sorry"]
        assert list(template.reports[number][-1]) == ["id", "ended"]


@pytest.mark.parametrize(
    ("text", "code"),
    [("import sys; sys.exit(3)", 3), ("raise ValueError('no')", 1), ("import os; os.kill(os.getpid(), 9)", 137), ("", 0)],
)
def test_the_exit_code_is_the_program_s_own(template: Template, tmp_path: Path, text: str, code: int) -> None:
    template.order(1, script(tmp_path, text))
    assert template.wait(1, "ended") == code


def test_a_fork_that_is_killed_leaves_the_others_alone(template: Template, tmp_path: Path) -> None:
    program = script(tmp_path, "import sys\nprint('here', flush=True)\nsys.stdin.read()\nimport time; time.sleep(60)")
    for number in (1, 2):
        template.order(number, program)
        template.wait(number, "out")
    os.kill(template.wait(1, "pid"), signal.SIGKILL)
    assert template.wait(1, "ended") == 137
    assert Path(f"/proc/{template.wait(2, 'pid')}").exists()
    assert not template.told(2, "ended")


def test_a_fork_ends_with_its_template(tmp_path: Path) -> None:
    server = Template()
    server.order(1, script(tmp_path, "import time\nprint('here', flush=True)\ntime.sleep(60)"))
    server.wait(1, "out")
    pid = server.wait(1, "pid")
    server.process.kill()
    server.process.wait(LIMIT_S)
    deadline = time.monotonic() + LIMIT_S
    while Path(f"/proc/{pid}").exists() and "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    server.process.stdout.close()  # type: ignore[union-attr]
    server.process.stdin.close()  # type: ignore[union-attr]


def test_what_the_system_refuses_costs_one_order(tmp_path: Path) -> None:
    refusal = """
import os
real, left = os.fork, [11]
def fork():
    if left:
        raise OSError(left.pop(), "Resource temporarily unavailable")
    return real()
os.fork = fork
"""
    server = Template(refusal)
    program = script(tmp_path, "print('here')")
    server.order(1, program)
    assert server.wait(1, "refused") == "Resource temporarily unavailable"
    server.order(2, program)
    assert server.wait(2, "out") == "here"
    server.end()


def test_a_fork_holds_no_descriptor_of_the_server_or_of_another(template: Template, tmp_path: Path) -> None:
    waiting = script(tmp_path, "import time\nprint('here', flush=True)\ntime.sleep(60)")
    template.order(1, waiting)
    template.wait(1, "out")
    looking = script(tmp_path, "import os\nfor n in os.listdir('/proc/self/fd'): print(n)", "look.py")
    template.order(2, looking)
    template.wait(2, "ended")
    assert {"0", "1", "2"} <= set(template.told(2, "out"))
    assert len(template.told(2, "out")) == 4  # and the listing's own


def test_its_command_line_is_the_one_it_was_ordered_with(template: Template, tmp_path: Path) -> None:
    program = script(tmp_path, "import time\nprint('here', flush=True)\ntime.sleep(60)", "model_service_worker.py")
    template.order(1, program, "--sock-name", "/tmp/x.9000")
    template.wait(1, "out")
    assert command_line(template.wait(1, "pid")).rstrip() == f"{sys.executable} {program} --sock-name /tmp/x.9000"


def test_numbers_drawn_by_chance_differ_between_forks(template: Template, tmp_path: Path) -> None:
    program = script(tmp_path, "import random, numpy\nprint(random.random(), numpy.random.rand())")
    for number in (1, 2):
        template.order(number, program)
        template.wait(number, "ended")
    first, second = (template.told(number, "out")[0].split() for number in (1, 2))
    assert first[0] != second[0]
    assert first[1] != second[1]


def test_a_module_that_hides_an_imported_one_is_imported_as_by_a_new_interpreter(template: Template, tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("WHOSE = 'the model\\'s own'")
    program = script(tmp_path, "import random, os\nprint(random.WHOSE, os.getpid())")
    template.order(1, program, PYTHONPATH=f"{template.path}{os.pathsep}{tmp_path}")
    assert template.wait(1, "out") == f"the model's own {template.wait(1, 'pid')}"
    assert template.wait(1, "ended") == 0


def test_a_script_s_neighbour_hides_an_imported_module_too(template: Template, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "random.py").touch()
    program = script(tmp_path, "import sys\nprint('random' in sys.modules and hasattr(sys.modules['random'], 'seed'))\n")
    template.order(1, program)
    assert template.wait(1, "out") == "False"


def test_a_folder_without_modules_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "json").mkdir()
    assert not hidden([str(tmp_path), str(tmp_path / "absent")])
    (tmp_path / "json" / "__init__.py").touch()
    assert hidden([str(tmp_path)])


def test_a_search_path_is_read_as_the_interpreter_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert search_path("") == []
    assert search_path("/a:b:/a:") == ["/a", str(tmp_path / "b"), str(tmp_path)]
