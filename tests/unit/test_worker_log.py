"""A worker's words as records, in a process of its own: what it prints, logs, warns of and dies of, and at which level."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from batch_handler.internal import LOG_MARK

ROOT = Path(__file__).resolve().parents[2]
MARK = "c0ffee"


def told(code: str, level: str = "INFO", form: str = "json") -> list[str]:
    """The lines that a program prints once the log is installed, without their mark; each must have it."""
    program = "import os, sys, logging, warnings\nfrom batch_handler import worker_log\nassert worker_log.install(os.environ)\n"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "handler"),
        LOG_MARK: MARK,
        "BYOC_LOG_FORMAT": form,
        "SAGEMAKER_CONTAINER_LOG_LEVEL": level,
    }
    done = subprocess.run(
        [sys.executable, "-c", program + textwrap.dedent(code)], env=environment, capture_output=True, check=False, timeout=60
    )
    assert done.stderr == b""
    lines = done.stdout.decode("utf-8").splitlines()
    assert all(line.startswith(f"\x1e{MARK}") for line in done.stdout.decode("utf-8").split("\n")[:-1]), lines
    return [line.removeprefix(MARK) for line in done.stdout.decode("utf-8").replace("\x1e", "").split("\n")[:-1]]


def records(code: str, level: str = "INFO") -> list[dict[str, Any]]:
    return [json.loads(line) for line in told(code, level)]


def short(code: str, level: str = "INFO") -> list[tuple[str, str, str]]:
    return [(entry["level"], entry["logger"], entry["message"]) for entry in records(code, level)]


def test_prints_are_records_line_by_line() -> None:
    assert short("print('one\\ntwo'); print('half', end=''); print(' whole'); print('bad', file=sys.stderr); print()") == [
        ("INFO", "stdout", "one"),
        ("INFO", "stdout", "two"),
        ("INFO", "stdout", "half whole"),
        ("WARN", "stderr", "bad"),
    ]


def test_logging_keeps_its_level_and_its_name() -> None:
    code = "for level in (10, 20, 30, 40, 50): logging.getLogger('mine').log(level, 'at %d', level)"
    whole = [("INFO", "at 20"), ("WARN", "at 30"), ("ERROR", "at 40"), ("FATAL", "at 50")]
    for count, level in enumerate(("INFO", "WARNING", "ERROR", "CRITICAL")):
        assert [(one, message) for one, _, message in short(code, level)] == whole[count:]
    assert short(code, "DEBUG")[0] == ("DEBUG", "mine", "at 10")


def test_a_print_is_worth_what_info_is() -> None:
    assert short("print('chatter'); print('trouble', file=sys.stderr)", "WARNING") == [("WARN", "stderr", "trouble")]


def test_a_traceback_is_one_record() -> None:
    ((level, _, message),) = short("try: 1 / 0\nexcept ZeroDivisionError: logging.exception('divided')")
    assert level == "ERROR"
    assert message.startswith("divided\nTraceback (most recent call last):\n")
    assert message.endswith("ZeroDivisionError: division by zero")


def test_an_exception_that_nobody_catches_is_one_record_of_the_end() -> None:
    ((level, logger, message),) = short("raise RuntimeError('done for')")
    assert (level, logger) == ("FATAL", "uncaught")
    assert message.endswith("RuntimeError: done for")


def test_an_exception_in_a_thread_is_one_record() -> None:
    ((level, _, message),) = short("import threading; t = threading.Thread(target=lambda: 1 / 0, name='T'); t.start(); t.join()")
    assert level == "ERROR"
    assert message.startswith("the thread T ended")


def test_a_warning_is_one_record() -> None:
    ((level, logger, message),) = short("warnings.warn('old news')")
    assert (level, logger) == ("WARN", "py.warnings")
    assert "UserWarning: old news" in message


def test_what_is_said_about_requests_carries_their_ids() -> None:
    code = """
        with worker_log.about(["r-1"]):
            print("for one")
            logging.warning("too")
        with worker_log.about(["r-1", "r-2"]):
            print("for two")
        print("for nobody")
        """
    assert [(entry.get("id"), entry.get("ids")) for entry in records(code)] == [
        ("r-1", None), ("r-1", None), (None, ["r-1", "r-2"]), (None, None),
    ]  # fmt: skip


def test_a_users_own_handler_on_stdout_ends_in_one_record() -> None:
    code = "logging.basicConfig(stream=sys.stdout, format='mine: %(message)s', force=True); logging.warning('once')"
    assert [entry["message"] for entry in records(code)] == ["mine: once"]


def test_what_looks_like_a_marked_line_is_a_print_like_any_other() -> None:
    (entry,) = records('print(\'\\x1ec0ffee{"level":"FATAL"}\')')
    assert (entry["level"], entry["logger"]) == ("INFO", "stdout")


def test_the_mark_is_not_left_for_other_programs() -> None:
    assert [entry["message"] for entry in records(f"print({LOG_MARK!r} in os.environ)")] == ["False"]


def test_a_text_record_of_several_lines_crosses_the_pipe_as_one() -> None:
    (line,) = told("logging.error('one\\ntwo')", form="text")
    assert line.endswith("ERROR one\x1f  two")


def test_a_message_whose_arguments_do_not_fit_costs_nobody_anything() -> None:
    assert short("logging.warning('%d words', 'many'); print('goes on')")[-1] == ("INFO", "stdout", "goes on")


def test_without_the_frontends_mark_nothing_changes(monkeypatch: Any) -> None:
    from batch_handler import worker_log

    stdout = sys.stdout
    assert not worker_log.install({})
    assert sys.stdout is stdout
