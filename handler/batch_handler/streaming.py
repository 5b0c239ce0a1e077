"""Answers that leave piece by piece: how a piece is written, and the threads in which they are computed.

A stream runs beside the lanes and never holds one: its neighbours wait for nothing but their share of the processor.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import orjson

from batch_handler import negotiation
from batch_handler.application import echoed, failed
from batch_handler.errors import ServiceError
from batch_handler.microbatch import guarded
from batch_handler.request import Part, Request, Response
from batch_handler.worker_log import about

log = logging.getLogger(__name__)

EVENTS = "text/event-stream"
KEY = "generated_text"
PER_LANE = 4
"""Streams at once for every lane; more of them wait for their turn."""
END = object()


@dataclass(frozen=True, slots=True)
class Form:
    """How the pieces of a stream are written, and the error that breaks one off."""

    media_type: str
    piece: Callable[[str], bytes]
    error: Callable[[ServiceError], bytes]


def _line(piece: str) -> bytes:
    return orjson.dumps({KEY: piece}) + b"\n"


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


LINES = Form("application/jsonlines", _line, lambda error: error.body() + b"\n")
FORMS = (
    LINES,
    # HTML, section 9.2: an event is a line of data and an empty line; JSON has no line break in it.
    Form(EVENTS, lambda piece: _event(orjson.dumps({KEY: piece})), lambda error: _event(error.body())),
    Form("text/plain", str.encode, lambda _: b""),
)


def form(accept: str | None) -> Form:
    """What a stream is written as: lines of JSON, unless server-sent events or plain text are asked for."""
    wanted = negotiation.preferred(accept, LINES.media_type) if accept else LINES.media_type
    return next((one for one in FORMS if one.media_type == wanted), LINES)


@dataclass(slots=True)
class Stream:
    """One answer on its way: where its pieces come from and go to. `left` is set when nobody waits for it any more."""

    request: Request
    form: Form
    pieces: Iterator[str]
    emit: Callable[[Response], None]
    left: threading.Event


class Streams:
    """The threads of all streams."""

    def __init__(self, lanes: int) -> None:
        self._threads = ThreadPoolExecutor(PER_LANE * lanes, "stream")

    def begin(self, stream: Stream) -> None:
        """Compute and emit the pieces of a stream, the last of them marked as such, in a thread of its own."""
        self._threads.submit(self._run, stream)

    def _run(self, stream: Stream) -> None:
        with about((stream.request.callers_id,)):
            try:
                self._emit_all(stream)
            except Exception:
                log.exception("the stream of request %s could not be sent", stream.request.callers_id)

    def _emit_all(self, stream: Stream) -> None:
        headers = echoed(stream.request.headers)
        begun = False
        while not stream.left.is_set():
            (piece,) = guarded(lambda _: [next(stream.pieces, END)], [0])
            if isinstance(piece, ServiceError):
                stream.emit(self._broken(stream, piece) if begun else failed(stream.request, piece))
                return
            if piece is END:
                break
            body = stream.form.piece(piece)
            stream.emit(Response(200, stream.form.media_type, body, headers, records=0, part=Part.MORE))
            begun = True
        stream.emit(Response(200, stream.form.media_type, b"", headers, part=Part.LAST))

    def _broken(self, stream: Stream, error: ServiceError) -> Response:
        """The status is sent already: the error is the last piece, and the connection ends without the sign of a whole answer."""
        body, kind = stream.form.error(error), error.type.label
        return Response(200, stream.form.media_type, body, records=0, bad_records=1, part=Part.BROKEN, error=kind)
