"""What a worker notes of its work, as somebody reads it who comes after its end."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from batch_handler import journal
from batch_handler.journal import ENTRIES, HEADER, ID_BYTES, NUMBER, SLOT_BYTES, SLOTS, Journal

FIRST, SECOND = "1" * ID_BYTES, "2" * ID_BYTES


def left(path: Path) -> tuple[bool, int, dict[str, int]]:
    """Whether it may be run again, how many notes found no room, and what was running."""
    data = path.read_bytes()
    magic, repeatable, slots, entries, unnoted = HEADER.unpack_from(data)
    assert (magic, slots, entries) == (journal.MAGIC, SLOTS, ENTRIES)
    running = {}
    for slot in range(slots):
        start = HEADER.size + slot * SLOT_BYTES
        (count,) = NUMBER.unpack_from(data, start)
        for entry in range(count):
            identifier, number = struct.unpack_from(f"!{ID_BYTES}si", data, start + NUMBER.size + entry * journal.ENTRY_BYTES)
            running[identifier.decode()] = number
    return bool(repeatable), unnoted, running


def test_what_runs_is_there_until_it_is_done(tmp_path: Path) -> None:
    path = tmp_path / "running"
    noted = Journal(path, repeatable=True)
    with noted.running([(FIRST, 0), (FIRST, 0)]):
        with noted.running([(SECOND, 7)]):
            assert left(path) == (True, 0, {FIRST: 0, SECOND: 7})
        assert left(path) == (True, 0, {FIRST: 0})
    assert left(path) == (True, 0, {})


def test_what_finds_no_room_makes_everything_suspect(tmp_path: Path) -> None:
    path = tmp_path / "running"
    noted = Journal(path, repeatable=False)
    with noted.running([(f"{number:036}", 0) for number in range(ENTRIES + 1)]):
        assert left(path) == (False, 1, {})
    assert left(path) == (False, 0, {})


def test_a_pass_that_fails_is_not_running_any_more(tmp_path: Path) -> None:
    noted = Journal(tmp_path / "running", repeatable=True)
    with pytest.raises(ValueError, match="halved"), noted.running([(FIRST, 1)]):
        raise ValueError("halved")
    assert left(tmp_path / "running")[2] == {}


def test_more_lanes_than_slots_are_told_apart_from_none(tmp_path: Path) -> None:
    noted = Journal(tmp_path / "running", repeatable=True)
    held = [noted.running([(f"{number:036}", 0)]) for number in range(SLOTS + 1)]
    for each in held:
        each.__enter__()
    assert left(tmp_path / "running")[1] == 1
    for each in held:
        each.__exit__(None, None, None)
    assert left(tmp_path / "running") == (True, 0, {})
