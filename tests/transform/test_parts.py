"""The parts of the runner by themselves: where payloads are cut, what paths select, what an answer's placeholders are."""

from __future__ import annotations

import io
import json
import struct
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transform import paths, sharding
from transform.answers import CHUNK, Answer, Scan
from transform.description import Job
from transform.faults import FileError, JobError
from transform.limits import Measured, agreed, chosen
from transform.objects import Address, InputObject
from transform.payloads import Limits
from transform.splitting import RECORDIO_MAGIC, cuts

MIB = 1024 * 1024
LINES = st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b" ")), max_size=40)


def recordio(contents: list[bytes]) -> bytes:
    """RecordIO as its writer frames it, parts at the magic number included."""
    magic = struct.pack("<I", RECORDIO_MAGIC)
    framed = b""
    for content in contents:
        parts = content.split(magic)
        for number, part in enumerate(parts):
            kind = 0 if len(parts) == 1 else 1 if number == 0 else 3 if number == len(parts) - 1 else 2
            framed += magic + struct.pack("<I", kind << 29 | len(part)) + part + b"\0" * (-len(part) % 4)
    return framed


def tfrecord(contents: list[bytes]) -> bytes:
    return b"".join(struct.pack("<Q", len(content)) + b"crc!" + content + b"crc!" for content in contents)


@given(LINES, st.integers(31, 200), st.booleans())
def test_packed_lines_are_the_input_cut_at_newlines_and_no_fuller_would_fit(lines: list[bytes], limit: int, ends: bool) -> None:
    body = b"\n".join(lines) + (b"\n" if ends else b"")
    found = list(cuts(io.BytesIO(body), "Line", "MultiRecord", limit))
    assert b"".join(cut.body for cut in found) == body
    assert all(len(cut.body) <= limit and cut.body.endswith(b"\n") for cut in found[:-1])
    for cut, following in pairwise(found):
        assert len(cut.body) + following.body.find(b"\n") + 1 > limit or b"\n" not in following.body
    assert sum(cut.records for cut in found) == len(list(io.BytesIO(body)))


@given(LINES, st.integers(1, 40))
def test_a_line_over_the_wanted_size_goes_alone_while_it_is_under_the_limit(lines: list[bytes], wanted: int) -> None:
    body = b"".join(line + b"\n" for line in lines)
    found = list(cuts(io.BytesIO(body), "Line", "MultiRecord", 100, wanted))
    assert b"".join(cut.body for cut in found) == body
    assert all(len(cut.body) <= wanted or cut.records == 1 for cut in found)


@given(LINES)
def test_single_records_are_the_lines_with_their_newlines(lines: list[bytes]) -> None:
    body = b"\n".join(lines)
    assert [cut.body for cut in cuts(io.BytesIO(body), "Line", "SingleRecord", 100)] == list(io.BytesIO(body))


@pytest.mark.parametrize(("split", "frame"), [("RecordIO", recordio), ("TFRecord", tfrecord)])
@given(contents=st.lists(st.binary(max_size=40), max_size=20), magic=st.integers(0, 20))
def test_framing_is_kept_for_many_records_and_taken_off_for_one(
    split: str, frame: Any, contents: list[bytes], magic: int
) -> None:
    contents = [
        content + struct.pack("<I", RECORDIO_MAGIC) + content if n == magic else content for n, content in enumerate(contents)
    ]
    body = frame(contents)
    packed = list(cuts(io.BytesIO(body), split, "MultiRecord", 220))
    assert b"".join(cut.body for cut in packed) == body
    assert sum(cut.records for cut in packed) == len(contents)
    assert [cut.body for cut in cuts(io.BytesIO(body), split, "SingleRecord", 220)] == contents


@pytest.mark.parametrize(("split", "frame"), [("RecordIO", recordio), ("TFRecord", tfrecord)])
def test_broken_framing_is_a_sentence(split: str, frame: Any) -> None:
    body = frame([b"one", b"two"])
    with pytest.raises(FileError, match="ends in the middle of a record"):
        list(cuts(io.BytesIO(body[:-3]), split, "SingleRecord", 100))
    with pytest.raises(FileError, match=r"no RecordIO file|no TFRecord file"):
        list(cuts(io.BytesIO(b"\xff" * 100), split, "SingleRecord", 100))


@pytest.mark.parametrize(
    ("path", "selected"),
    [
        ("$", {"id": 1, "a": {"b": [1, 2, 3], "c": "x"}}),
        ("$.a.c", "x"),
        ("$['id']", 1),
        ("$['id','a']", {"id": 1, "a": {"b": [1, 2, 3], "c": "x"}}),
        ("$.a['b','c']", {"b": [1, 2, 3], "c": "x"}),
        ("$.a.['b','c']", {"b": [1, 2, 3], "c": "x"}),
        ("$.a.b[1:]", [2, 3]),
        ("$.a.b[-1]", 3),
        ("$.a.b[0,-1]", [1, 3]),
        ("$.a.b[0,1:]", [1, 2, 3]),
        ("$.a.*", [[1, 2, 3], "x"]),
    ],
)
def test_a_path_selects_what_the_platform_passes_on(path: str, selected: Any) -> None:
    assert paths.compiled(path).select({"id": 1, "a": {"b": [1, 2, 3], "c": "x"}}) == selected


@pytest.mark.parametrize("path", ["$.b", "$['id','b']", "$.a[0]", "$[0]"])
def test_a_path_that_leads_nowhere_selects_nothing(path: str) -> None:
    with pytest.raises(paths.NothingSelectedError):
        paths.compiled(path).select({"id": 1, "a": {}})


@given(st.integers(0, 5), st.integers(CHUNK - 200, CHUNK + 200))
def test_placeholders_are_found_wherever_chunks_end(before: int, length: int) -> None:
    bad = b'{"id":[1],"error":{"type":"InvalidRecord","message":"made up"}}'
    lines = [b'"%s"' % (b"x" * length), *([b"{}"] * before), bad, b"{}", bad, b'{"a":{"error":{"type":"not"}}}', bad]
    answer = Answer("application/jsonlines")
    answer.write(b"\n".join(lines))
    scan = Scan(answer)
    assert b"".join(scan.chunks()) == b"\n".join(lines)
    assert scan.lines == len(lines)
    assert [found.record for found in scan.placeholders] == [number for number, line in enumerate(lines, 1) if line == bad]


def sized(size: int) -> list[InputObject]:
    return [InputObject(Address("x", "", "x"), "x", size, "1")]


def test_limits_are_the_jobs_then_the_containers_then_the_defaults() -> None:
    asks = {"MaxConcurrentTransforms": 8, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": 3}
    assert agreed(Job("a", "b"), {}) == Limits("MultiRecord", 6 * MIB, 6 * MIB, 1)
    assert agreed(Job("a", "b"), asks) == Limits("SingleRecord", 3 * MIB, 3 * MIB, 8)
    assert agreed(Job("a", "b", strategy="MultiRecord", max_payload_mb=50, concurrency=2), asks).concurrency == 2
    assert agreed(Job("a", "b", max_payload_mb=50), asks).concurrency == 2  # 100 MB in flight at most
    assert agreed(Job("a", "b", max_payload_mb=0), asks).largest == 0


def test_a_size_is_chosen_that_ends_in_time_and_brings_an_answer_that_fits() -> None:
    limits = agreed(Job("a", "b"), {"MaxConcurrentTransforms": 16, "MaxPayloadInMB": 6})
    slow = Measured(32_768, 600, 3_000_000, 2.0)
    found = chosen(Job("a", "b"), limits, slow, sized(10**9))
    assert slow.seconds_for(found.payload, 16) <= 30
    assert found.payload * slow.growth <= 64 * MIB
    assert found.largest == 6 * MIB
    assert any("requests are cut at" in sentence for sentence in found.said)
    assert any("say MaxPayloadInMB: " in sentence for sentence in found.said)
    fast = chosen(Job("a", "b"), limits, Measured(32_768, 600, 3_000, 0.001), sized(10**9))
    assert fast.payload == 6 * MIB
    warned = chosen(Job("a", "b", max_payload_mb=6), limits, slow, sized(10**9))
    assert warned.payload == 6 * MIB
    assert any("the timeout is 600 s" in sentence for sentence in warned.said)


def test_the_arithmetic_of_shards_adds_up() -> None:
    one = sharding.plan(3_600_000, 100, 1, 2.0)
    assert (one.hours, one.cost) == (pytest.approx(10.1), pytest.approx(20.2))
    assert sharding.plan(3_600_000, 100, 10, None).hours == pytest.approx(1.1)
    assert sharding.enough(3_600_000, 100, 1.1) == 10
    with pytest.raises(JobError, match="take about"):
        sharding.enough(1, 1, 0.05)
    assert json.dumps(sharding.table(3_600_000, 100, 10, 2.0))
