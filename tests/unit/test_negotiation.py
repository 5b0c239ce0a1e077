"""Content-Type, charset, Content-Encoding and Accept by RFC 9110."""

from __future__ import annotations

import gc
import gzip
import time
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocations import allocating_at_most
from batch_handler.errors import ServiceError
from batch_handler.negotiation import LONGEST_ACCEPT, content, preferred, request_choice, response_choice, utf8
from batch_handler.settings import MIB

HOLDS = ("value", "text")
WRITES = ("json", "json_lines", "csv")
LIMIT = 1024 * 1024


def chosen(accept: str | None, own: str = "application/json", default: str | None = None) -> str:
    return response_choice(accept, default, request_choice(own, HOLDS)[0], WRITES).media_type


def refused(accept: str) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        chosen(accept)
    return caught.value


def status(read: Callable[..., object], *arguments: object) -> int:
    try:
        read(*arguments)
    except ServiceError as error:
        return error.status
    return 200


@pytest.mark.parametrize(
    ("content_type", "name", "charset"),
    [
        (None, "json", "utf-8"),
        ("", "json", "utf-8"),
        ("application/json", "json", "utf-8"),
        ("Application/JSON", "json", "utf-8"),
        ("application/json; charset=latin-1", "json", "latin-1"),
        ('application/json;charset="UTF-8"', "json", "UTF-8"),
        ("application/json; boundary=x; charset=utf-16; q=1", "json", "utf-16"),
        ("application/jsonlines", "json_lines", "utf-8"),
        ("application/x-ndjson", "json_lines", "utf-8"),
        ("text/csv; header=present", "csv", "utf-8"),
        ("text/plain;charset=us-ascii", "text", "us-ascii"),
    ],
)
def test_a_content_type_is_found_in_any_case_with_its_charset(content_type: str | None, name: str, charset: str) -> None:
    choice, found = request_choice(content_type, HOLDS)
    assert choice.format.name == name
    assert found == charset


@pytest.mark.parametrize(
    "content_type",
    ["application/octet-stream", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "image/png",
     "json", "*/*", ";;;", "application/json, text/csv", "application/x-npy", "\x00", "text/csvx"],
)  # fmt: skip
def test_a_type_that_cannot_be_read_is_415_and_names_those_that_can(content_type: str) -> None:
    with pytest.raises(ServiceError) as caught:
        request_choice(content_type, HOLDS)
    assert caught.value.status == 415
    assert "application/json, application/jsonlines, text/csv, text/plain" in caught.value.message


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/json", "application/json"),
        ("text/csv", "text/csv"),
        ("application/x-ndjson", "application/x-ndjson"),
        ("TEXT/CSV", "text/csv"),
        ("text/*", "text/csv"),
        ("application/*", "application/json"),
        ("*/*", "application/json"),
        ("*", "application/json"),
        ("text/csv;q=0.5, application/jsonlines;q=0.9", "application/jsonlines"),
        ("text/csv, application/json;q=0.9", "text/csv"),
        ("text/csv; q=0.001", "text/csv"),
        ("application/json;q=0, */*;q=0.1", "application/jsonlines"),
        ("application/*;q=0, */*", "text/csv"),
        ("text/csv;q=0, text/*, application/json;q=0.1", "application/json"),
        ("*/*;q=0.1, application/*;q=0.2, text/csv;q=0.3", "text/csv"),
        ("text/html, application/xhtml+xml, */*;q=0.8", "application/json"),
        ("image/png, text/csv;q=0.2", "text/csv"),
        ("application/json; charset=utf-8", "application/json"),
        ('text/csv; header="a, b;q=0"; q=0.7, application/json;q=0.2', "text/csv"),
        (" , text/csv , ", "text/csv"),
        ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", "application/json"),
        ("garbage, text/csv", "text/csv"),
    ],
)
def test_accept_chooses_by_weight_and_specificity(accept: str, expected: str) -> None:
    assert chosen(accept) == expected


def test_of_very_many_ranges_only_the_first_are_read() -> None:
    many = "a/b;q=0.5," * (LONGEST_ACCEPT // 10)
    assert chosen("text/csv," + many) == "text/csv"
    assert refused(many + "text/csv").status == 406


@pytest.mark.parametrize(
    "accept", ["image/png", "text/html", "*/*;q=0", "application/json;q=0", "application/json;q=0.000", "garbage", ",", ";q=1"]
)
def test_nothing_acceptable_is_406_and_names_what_can_be_written(accept: str) -> None:
    error = refused(accept)
    assert error.status == 406
    assert "application/json, application/jsonlines, text/csv" in error.message


@pytest.mark.parametrize("accept", [None, "", "  ", "*/*"])
def test_without_a_wish_the_default_counts_then_the_requests_own_type_then_json(accept: str | None) -> None:
    assert chosen(accept, own="text/csv", default="application/jsonlines") == "application/jsonlines"
    assert chosen(accept, own="text/csv") == "text/csv"
    assert chosen(accept, own="application/x-ndjson") == "application/x-ndjson"
    assert chosen(accept, own="text/plain") == "application/json"
    assert chosen(accept, own="text/csv", default="text/plain") == "text/csv"


def test_of_equal_wishes_the_requests_own_type_wins() -> None:
    assert chosen("application/json, text/csv", own="text/csv") == "text/csv"
    assert chosen("text/csv, application/json", own="application/json") == "application/json"


@settings(max_examples=300, deadline=2_000)
@given(st.text(max_size=60) | st.lists(st.sampled_from(list('*/;,q=01. "a')), max_size=30).map("".join))
def test_any_header_gives_a_choice_or_our_own_error(header: str) -> None:
    assert status(chosen, header) in (200, 406)
    assert status(request_choice, header, HOLDS) in (200, 415)
    assert status(content, b"x", header, LIMIT) in (200, 400, 415)
    assert status(utf8, b"x", header) in (200, 400, 415)


@pytest.mark.parametrize(
    ("text", "charset"),
    [
        ("größe 日本", "utf-8"),
        ("größe 日本", "utf-16"),
        ("größe 日本", "UTF-16LE"),
        ("größe 日本", "utf-16-be"),
        ("größe 日本", "utf-32"),
        ("größe", "latin-1"),
        ("größe", "ISO-8859-1"),
        ("größe €", "windows-1252"),
        ("日本", "shift_jis"),
        ("日本", "euc-jp"),
        ("plain", "us-ascii"),
    ],
)
def test_text_in_another_charset_becomes_utf8(text: str, charset: str) -> None:
    assert utf8(text.encode(charset), charset) == text.encode()


@pytest.mark.parametrize(
    "charset",
    ["klingon", "", "zip", "zlib", "bz2", "hex", "base64", "rot13", "uu", "quopri", "unicode_escape", "raw_unicode_escape",
     "idna", "punycode", "utf-7", "undefined", "mbcs", "os", "../utf_8", "a\x00b", "\ud800", "x" * 10_000],
)  # fmt: skip
def test_a_charset_that_is_unknown_or_no_text_is_415(charset: str) -> None:
    with pytest.raises(ServiceError) as caught:
        utf8(b"abc", charset)
    assert caught.value.status == 415
    assert len(caught.value.message) <= 400


def test_made_up_charsets_leave_nothing_in_memory() -> None:
    known = [f"utf{'-' * number}8" for number in range(1, 1_000)]
    unknown = [f"klingon{number}" for number in range(1_000)]
    utf8(b"abc", known[0])
    assert status(utf8, b"abc", unknown[0]) == 415
    tracemalloc.start()
    for charset in known[1:]:
        assert utf8(b"abc", charset) == b"abc"
    for charset in unknown[1:]:
        assert status(utf8, b"abc", charset) == 415
    del known, unknown, charset
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 50_000


@pytest.mark.parametrize(
    ("body", "charset"), [(b"abc", "utf-16"), (b"\x00\xd8", "utf-16-le"), (b"\x81", "cp1252"), (b"\xff", "shift_jis")]
)
def test_bytes_that_are_not_in_their_charset_are_400(body: bytes, charset: str) -> None:
    with pytest.raises(ServiceError) as caught:
        utf8(body, charset)
    assert caught.value.status == 400


@pytest.mark.parametrize("coding", [None, "", "identity", " Identity "])
def test_a_plain_body_stays_as_it_is(coding: str | None) -> None:
    assert content(bytearray(b"body"), coding, LIMIT) == b"body"


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZip"])
def test_a_gzip_body_is_inflated(coding: str) -> None:
    assert content(gzip.compress(b"body" * 1_000), coding, LIMIT) == b"body" * 1_000


def test_all_members_of_a_gzip_stream_count() -> None:
    large = bytes(range(256)) * 100
    body = b"".join(gzip.compress(part) for part in (b"one ", b"", large, b"two"))
    assert content(body, "gzip", LIMIT) == b"one " + large + b"two"


@pytest.mark.parametrize("coding", ["br", "deflate", "zstd", "gzip, gzip", "nonsense"])
def test_another_coding_is_415_and_says_what_is_accepted(coding: str) -> None:
    with pytest.raises(ServiceError) as caught:
        content(b"x", coding, LIMIT)
    assert caught.value.status == 415
    assert caught.value.headers == {"Accept-Encoding": "gzip"}


@pytest.mark.parametrize(
    "body",
    [
        b"plain",
        gzip.compress(b"body" * 1_000, mtime=0)[:-1],
        gzip.compress(b"body" * 1_000, mtime=0)[:12],
        gzip.compress(b"body", mtime=0) + b"rubbish",
        gzip.compress(b"body", mtime=0) + gzip.compress(b"more", mtime=0)[:-3],
        gzip.compress(b"body", mtime=0)[:-8] + b"\x00" * 8,
        zlib.compress(b"body"),
    ],
)
def test_a_stream_that_is_not_whole_is_400(body: bytes) -> None:
    with pytest.raises(ServiceError) as caught:
        content(body, "gzip", LIMIT)
    assert caught.value.status == 400


@pytest.mark.parametrize(("body", "coding"), [(b"", None), (gzip.compress(b"", mtime=0), "gzip"), (b"", "gzip")])
def test_an_empty_body_is_400(body: bytes, coding: str | None) -> None:
    with pytest.raises(ServiceError) as caught:
        content(body, coding, LIMIT)
    assert caught.value.status == 400


def test_the_limit_is_the_last_size_that_is_accepted() -> None:
    assert len(content(gzip.compress(bytes(LIMIT)), "gzip", LIMIT)) == LIMIT
    for body in (gzip.compress(bytes(LIMIT + 1)), gzip.compress(bytes(LIMIT)) + gzip.compress(b"x")):
        with pytest.raises(ServiceError) as caught:
            content(body, "gzip", LIMIT)
        assert caught.value.status == 413
        assert "limit of 1 MB" in caught.value.message


def test_a_bomb_is_stopped_at_the_limit_not_after_it() -> None:
    compressor = zlib.compressobj(1, wbits=31)
    block = bytes(1 << 20)
    bomb = b"".join(compressor.compress(block) for _ in range(200)) + compressor.flush()
    with allocating_at_most(8 * MIB), pytest.raises(ServiceError) as caught:
        content(bomb, "gzip", LIMIT)
    assert caught.value.status == 413


def test_a_stream_of_very_many_tiny_members_takes_linear_time() -> None:
    started = time.process_time()
    with pytest.raises(ServiceError):
        content(gzip.compress(b"") * 200_000, "gzip", LIMIT)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("accept", [";text/html", "text/html;q=0, ;a/b", ";;q=1", "html"])
def test_a_range_without_a_type_is_no_type_to_prefer(accept: str) -> None:
    assert preferred(accept, "application/json") == "application/json"
