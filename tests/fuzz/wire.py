"""What holds for any header, any content coding, any picture and any message of the frontend's."""

from __future__ import annotations

import base64
import gzip
import io
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch

from PIL import Image

from batch_handler import formats, negotiation, streaming, worker_protocol
from batch_handler.errors import ErrorType, ServiceError
from batch_handler.formats import Layout
from batch_handler.formats.images import MEDIA_TYPES
from batch_handler.reading import Batch, Reader, Work
from batch_handler.request import Headers, Record, Request
from batch_handler.settings import Settings, resolve
from batch_handler.tasks import Encoded, pictures
from batch_handler.worker_protocol import Conversation, DisconnectedError
from fuzz.bodies import LAYOUT, refusal

LIMIT = 1 << 16
"""What a body may inflate to here."""
HOLDS = (("value", "text"), ("value", "tensor", formats.NUMBERS), ("image", "value"))
WRITES = (("json", "json_lines", "csv", "text"), ("json", "json_lines", "csv", "npy"), ("json",))
DEFAULTS = (None, "text/csv", "application/jsonlines")
FOR_EVER = 1e18
MOST_PIXELS = 1 << 22


def negotiated(data: bytes) -> None:
    """Content-Type, Accept and charset from any characters that a header can hold: a format that can do it, or 406 or 415."""
    chosen, _, rest = data.partition(b"\n")
    content_type, _, accept = (part.decode("latin-1") for part in rest.partition(b"\n"))
    number = chosen[0] if chosen else 0
    holds, writes = HOLDS[number % 3], WRITES[number % 3]
    own = negotiation.DEFAULT
    try:
        own, charset = negotiation.request_choice(content_type, holds)
        assert own.format.suits(holds)
        negotiation.text(b"\xe4bc", charset)
    except ServiceError as error:
        refusal(error)
    try:
        choice = negotiation.response_choice(accept, DEFAULTS[number // 3 % 3], own, writes)
    except ServiceError as error:
        refusal(error, ErrorType.NOT_ACCEPTABLE)
    else:
        assert choice.format.name in writes
        assert choice.media_type in choice.format.media_types
    assert streaming.form(accept) in streaming.FORMS
    assert negotiation.preferred(accept, "application/json")


def inflated(data: bytes) -> None:
    """A gzip body is what Python's own reader makes of it, up to the limit, or the caller's error."""
    try:
        plain = negotiation.content(data, "gzip", LIMIT)
    except ServiceError as error:
        refusal(error)
        return
    assert len(plain) <= LIMIT
    assert plain == gzip.decompress(data)


def compressed(data: bytes) -> None:
    """Whatever is compressed, in one member or in two, is read again up to the limit and refused beyond it."""
    if not data:
        return
    plain = data * (1 + data[0] * 8)
    half = len(plain) // 2
    for body in (gzip.compress(plain, 1), gzip.compress(plain[:half]) + gzip.compress(plain[half:])):
        try:
            assert negotiation.content(body, "gzip", LIMIT) == plain
        except ServiceError as error:
            refusal(error, ErrorType.PAYLOAD_TOO_LARGE)
            assert len(plain) > LIMIT


def picture(data: bytes) -> None:
    """Any bytes as a picture: one of a few pixels in RGB, or the caller's error."""
    if len(data) < 2:
        return
    try:
        decoded = pictures.decoded(pictures.opened(data[1:] if data[0] % 2 else base64.b64encode(data[1:]).decode()))
    except ServiceError as error:
        refusal(error)
        return
    assert decoded.mode == "RGB"
    assert decoded.width * decoded.height <= pictures.PIXEL_LIMIT


def picture_text(data: bytes) -> None:
    """Any text where base64 belongs."""
    try:
        pictures.opened(data.decode("utf-8", "replace"))
    except ServiceError as error:
        refusal(error)


def samples() -> Iterator[bytes]:
    """Small pictures of every kind to begin with."""
    for mode in ("RGB", "L", "P", "RGBA", "1", "CMYK", "I;16"):
        for kind in MEDIA_TYPES.values():
            buffer = io.BytesIO()
            try:
                Image.new(mode, (3, 2)).save(buffer, kind)
            except OSError:
                continue
            yield b"\x01" + buffer.getvalue()


class Bytes:
    """The frontend's end of the socket: so many bytes at a time, and then nothing."""

    def __init__(self, data: bytes, at_once: int) -> None:
        self._data = memoryview(data)
        self._at_once = at_once

    def recv_into(self, view: memoryview) -> int:
        """As a socket does."""
        count = min(len(view), len(self._data), self._at_once)
        view[:count] = self._data[:count]
        self._data = self._data[count:]
        return count


def conversation(data: bytes, at_once: int) -> Conversation:
    """A conversation that hears only this."""
    heard: Any = Bytes(data, at_once)
    return Conversation(heard)


def message(data: bytes) -> None:
    """Any bytes for a message: batches of requests until it breaks off, or an error that ends the worker's conversation."""
    if not data:
        return
    talk = conversation(data[1:], 1 + data[0])
    with patch.object(worker_protocol, "LONGEST", LIMIT):  # what is announced is allocated, and filled with zeros
        try:
            while True:
                for request in talk.batch():
                    assert isinstance(request.id, str)
        except (DisconnectedError, ValueError):
            return


def batch(data: bytes) -> None:
    """Requests written in TorchServe's format are read as they were, however the kernel cuts them."""
    if not data:
        return
    words = data[1:].split(b"\n")
    written, expected = b"I", []
    for start in range(0, len(words), 4):
        name, value, identifier, body = [*words[start : start + 4], b"", b"", b""][:4]
        key, said = name.decode("latin-1"), value.decode("latin-1")
        expected.append((identifier.hex(), said, body))
        fields = [identifier.hex().encode(), key.encode(), said.encode()]
        written += b"".join(map(_field, fields)) + _END + _field(b"body") + _field(b"text/plain") + _field(body) + _END
        (found,) = conversation(b"I" + written[1:] + _END, 1 + data[0]).batch()[-1:]
        assert (found.id, found.headers.get(key), bytes(found.body)) == expected[-1]
    assert len(conversation(written + _END, 1 + data[0]).batch()) == len(expected)


_END = struct.pack("!i", -1)


def _field(value: bytes) -> bytes:
    return struct.pack("!i", len(value)) + value


class Anything:
    """A task that takes every record there is, and has no model."""

    holds = ("value", "text", "tensor", "image", formats.NUMBERS)
    writes = ("json", "json_lines", "csv", "text")
    layout: Layout = LAYOUT
    result_keys = ("label", "score")

    def encode(self, records: Sequence[Record]) -> list[Encoded | ServiceError]:
        """Every record is ready as it is."""
        return [Encoded(record, 1) for record in records]


def readers() -> Iterator[tuple[Settings, Reader]]:
    """At an endpoint and in a job."""
    for variables in ({}, {"SAGEMAKER_BATCH": "true"}, {"BYOC_CSV_HEADER": "true", "BYOC_FIELDS": '{"text": "inputs"}'}):
        settings = resolve({"BYOC_DEVICE": "cpu", "BYOC_THREADS": "1", "SAGEMAKER_MAX_PAYLOAD_IN_MB": "1", **variables})
        task: Any = Anything()
        yield settings, Reader(task, settings)


READERS = tuple(readers())


def request(data: bytes) -> None:
    """A whole request, three headers and a body, read and answered as the pipeline does."""
    number, content_type, accept, encoding, body = [*data.split(b"\n", 4), b"", b"", b"", b""][:5]
    named = {"Content-Type": content_type, "Accept": accept, "Content-Encoding": encoding}
    headers = Headers((name, value.decode("latin-1")) for name, value in named.items() if value)
    settings, reader = READERS[len(number) % len(READERS)]
    work = Work(Request("id", headers, body), Batch(lambda *_: None, 1, 0.0, FOR_EVER, 1), 0)
    reader.read([work])
    if work.error is not None:
        refusal(work.error)
        return
    results = [record if isinstance(record, ServiceError) else 0.5 for record in work.encoded]
    if not settings.placeholders:
        assert not any(isinstance(result, ServiceError) for result in results)
    try:
        work.choice.format.write(work.payload, results, LAYOUT)
    except ServiceError as error:
        refusal(error)


WIRE: Mapping[str, Any] = {
    "negotiated": negotiated,
    "inflated": inflated,
    "compressed": compressed,
    "picture": picture,
    "picture_text": picture_text,
    "message": message,
    "batch": batch,
    "request": request,
}
