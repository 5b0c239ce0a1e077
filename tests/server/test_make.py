"""The README's first command, as a person at a terminal uses it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time

import pytest

from running import ROOT, free_port

LIMIT_S = 180.0


class Terminal:
    """A command in a terminal of its own: what it prints can be read, and keys can be pressed."""

    def __init__(self, *command: str) -> None:
        self.pid, self._screen = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execvp(command[0], command)
        self.output = ""

    def wait_for(self, words: str) -> None:
        """Read until these words were printed."""
        deadline = time.monotonic() + LIMIT_S
        while words not in self.output:
            assert time.monotonic() < deadline, self.output
            assert self._read(), self.output

    def press(self, key: bytes) -> None:
        """Send a key to whatever runs in the foreground."""
        os.write(self._screen, key)

    def exit_code(self) -> int:
        """Read to the end, then the status."""
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> bool:
        ready, _, _ = select.select([self._screen], [], [], LIMIT_S)
        assert ready, self.output
        try:
            piece = os.read(self._screen, 65_536)
        except OSError:  # Linux says so when the last process has left the terminal
            return False
        self.output += piece.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(piece)


@pytest.mark.timeout(400)
def test_make_serve_prints_a_curl_line_that_works_and_ctrl_c_ends_it_in_order() -> None:
    port = free_port()
    terminal = Terminal("make", "serve", f"PORT={port}")
    terminal.wait_for("\ncurl -s ")
    terminal.wait_for("rain on a tin roof\"]}'")
    (line,) = (line for line in terminal.output.splitlines() if line.startswith("curl "))
    assert f":{port}/" in line
    answer = subprocess.run(line, shell=True, capture_output=True, text=True, check=True).stdout
    assert answer.startswith("[[")
    assert answer.count("[") == 3
    terminal.press(b"\x03")
    assert terminal.exit_code() == 0, terminal.output
    assert "make: ***" not in terminal.output


def test_make_alone_lists_the_targets_a_line_each() -> None:
    printed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("serve", "model", "image", "image-gpu", "test", "test-all", "lint", "lock"):
        assert sum(line.split()[:2] == ["make", target] for line in printed.splitlines()) == 1, printed
