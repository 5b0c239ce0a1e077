"""The form of a log line: one record is one line, or in text one line and lines set in below it, whatever it holds."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from batch_handler.log_lines import MESSAGE_LIMIT, line

SEPARATORS = re.compile("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
TIME = r"2026-01-02T03:04:05\.678Z"


def test_text_is_time_level_message_and_ids() -> None:
    assert re.fullmatch(f"{TIME} WARN careful id=a", line("text", "WARN", "x", "careful", seconds=1767323045.678, ids=["a"]))
    assert line("text", "INFO", "x", "two", ids=["a", "b"]).endswith(" INFO two ids=a,b")
    assert line("text", "INFO", "x", "request a failed", ids=["a"]).endswith(" INFO request a failed")


def test_the_lines_of_a_message_are_set_in_so_that_only_a_record_begins_at_the_margin() -> None:
    told = line("text", "ERROR", "x", "it failed\nTraceback:\n2026-01-01T00:00:00.000Z INFO forged\n", ids=["a"])
    assert told.split("\n")[1:] == ["  Traceback:", "  2026-01-01T00:00:00.000Z INFO forged"]
    assert told.split("\n")[0].endswith("ERROR it failed id=a")


def test_json_has_time_level_logger_message_and_fields() -> None:
    entry = json.loads(line("json", "INFO", "a.b", 'say "ä"\n', seconds=1767323045.678, ids=["a"], fields={"n": 1}))
    assert entry == {
        "time": "2026-01-02T03:04:05.678Z", "level": "INFO", "logger": "a.b", "message": 'say "ä"\n', "id": "a", "n": 1,
    }  # fmt: skip


@given(st.text(), st.sampled_from(["text", "json"]))
def test_no_message_ends_its_line_or_moves_the_cursor(message: str, form: str) -> None:
    first, *others = line(form, "INFO", "x", message).encode("utf-8").decode("utf-8").split("\n")
    assert not any(SEPARATORS.search(one) or "\x1b" in one for one in (first, *others))
    assert all(other.startswith("  ") for other in others)
    if form == "json":
        assert json.loads(first)["message"].encode("utf-16", "surrogatepass") == message.encode("utf-16", "surrogatepass")


def test_a_message_of_a_megabyte_is_cut_and_says_by_how_much() -> None:
    told = line("json", "INFO", "x", "a" * 1_000_000)
    assert len(told) < MESSAGE_LIMIT + 200
    assert f"({1_000_000 - MESSAGE_LIMIT} more characters)" in told
