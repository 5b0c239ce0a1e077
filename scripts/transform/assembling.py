"""The output of one object, put together in the order of its records: answers written, failures listed, the journal kept."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import IO

from transform import media
from transform.answers import JSON_MARK, MARKS, Answer, Placeholder, Scan, failed
from transform.description import Job
from transform.joining import NOT_SENT, Processing
from transform.journal import ObjectJournal, Progress
from transform.objects import InputObject
from transform.outputs import Output
from transform.payloads import Payload, Place

SAFE_EVERY_S = 0.1
"""Small answers are made safe together: the work between two of these is what an end without warning costs."""
SAFE_BYTES = 256 * 1024
CLOSING = "closing"
LINES_AT_ONCE = 1000


@dataclass(slots=True)
class Assembly:
    """One object's output. ``start`` is where this run goes on; ``place`` how far it is; ``failure`` why it has no output.

    ``uneven`` counts answers with another number of lines than their requests had.
    """

    found: InputObject
    job: Job
    processing: Processing
    output: Output
    journal: ObjectJournal
    start: Place = field(default_factory=Place)
    place: Place = field(default_factory=Place)
    complete: bool = False
    failure: str | None = None
    failed: int = 0
    uneven: int = 0
    _errors: IO[bytes] | None = None
    _unsafe_bytes: int = 0
    _safe_at: float = field(default_factory=time.monotonic)

    @property
    def document(self) -> bool:
        """Whether the object is one JSON value, whose records have numbers and no lines."""
        return self.processing.document

    def open(self, restart: bool) -> None:
        """Go on where an earlier run ended, or begin. Raises JobError."""
        journal = self.journal
        whole = journal.current and journal.complete and self.output.present(journal.progress.output)
        if whole and not restart:
            self.start = self.place = journal.progress.place
            self.failed, self.complete = journal.progress.failed, True
            return
        usable = journal.current and not journal.complete and not restart
        if not (usable and self._continued()):
            if self.complete:
                return
            self.output.discard()
            journal.begin()
            self.output.resume({})
        self.start = self.place = journal.progress.place
        self.failed = journal.progress.failed
        path = journal.errors_path
        self._errors = path.open("r+b" if path.exists() else "w+b")
        self._errors.truncate(journal.progress.errors)
        self._errors.seek(0, 2)

    def add(self, payload: Payload, answer: Answer) -> int:
        """Write the answer to the next request; how many of its records failed. Raises FileError and JobError."""
        found = list(
            self._plain(payload, answer) if self.processing.idle and not payload.refused else self._processed(payload, answer)
        )
        if self.job.assemble == "Line":
            self.output.write(b"\n")
        for placeholder in found:
            self._list(payload, placeholder)
        self.failed += len(found)
        self.place = payload.end
        self._unsafe_bytes += payload.size + answer.size
        if self._unsafe_bytes > SAFE_BYTES or time.monotonic() - self._safe_at > SAFE_EVERY_S:
            self.make_safe()
        return len(found)

    def make_safe(self) -> None:
        """All that was added survives any end from here on."""
        if self._errors is None or self.place == self.journal.progress.place:
            return
        self._keep()

    def finish(self) -> None:
        """The output is whole: it gets its name. Raises JobError."""
        assert self._errors is not None  # noqa: S101 -- open comes first
        self._keep(**{CLOSING: True})
        self.output.complete(self.journal.errors_path if self._errors.tell() else None)
        self.journal.finish()
        self.complete = True
        self.close()

    def close(self) -> None:
        """Let the files go."""
        if self._errors is not None:
            self._errors.close()
            self._errors = None
        self.output.close()
        self.journal.close()

    def _continued(self) -> bool:
        progress = self.journal.progress
        if self.output.resume(progress.output):
            return True
        if any(self.journal.facts(CLOSING)) and self.output.present(progress.output):
            # The last run ended between giving the output its name and noting it.
            self.journal.finish()
            self.start = self.place = progress.place
            self.failed, self.complete = progress.failed, True
        return False

    def _keep(self, **facts: bool) -> None:
        assert self._errors is not None  # noqa: S101 -- open comes first
        self._errors.flush()
        position = self.output.sync()
        self.journal.keep(Progress(self.place, self.failed, self._errors.tell(), position), **facts)
        self._unsafe_bytes = 0
        self._safe_at = time.monotonic()

    def _plain(self, payload: Payload, answer: Answer) -> Iterator[Placeholder]:
        scan = Scan(answer)
        for chunk in scan.chunks():
            self.output.write(chunk)
        if self.job.split == "Line" and scan.lines != payload.end.records - payload.start.records:
            self.uneven += 1
        yield from scan.placeholders

    def _processed(self, payload: Payload, answer: Answer) -> Iterator[Placeholder]:
        """Joined or filtered, line by line; the placeholders of the answer are found on the way."""
        found: list[Placeholder] = []
        lines = self.processing.kept(payload.original, payload.refused, self._answered(answer, found))
        separator = b""
        while some := list(islice(lines, LINES_AT_ONCE)):
            self.output.write(separator + b"\n".join(some))
            separator = b"\n"
        if self.document:
            yield from found
            return
        records = payload.end.records - payload.start.records
        sent = [number for number in range(1, records + 1) if number - 1 not in payload.refused]
        failures = [replace(one, record=sent[min(one.record, len(sent)) - 1]) for one in found]
        failures += [Placeholder(number + 1, NOT_SENT, why) for number, why in payload.refused.items()]
        yield from sorted(failures, key=lambda one: one.record)

    def _answered(self, answer: Answer, found: list[Placeholder]) -> Iterator[bytes]:
        answer.file.seek(0)
        if self.processing.document:
            scan = Scan(answer)
            yield b"".join(scan.chunks())
            found += scan.placeholders
            return
        kind = media.kind(answer.media_type)
        mark = MARKS.get(kind, JSON_MARK)
        for number, line in enumerate(answer.file, 1):
            bare = line.removesuffix(b"\n")
            if mark in bare:
                found += failed(bare, kind, number)
            yield bare

    def _list(self, payload: Payload, placeholder: Placeholder) -> None:
        assert self._errors is not None  # noqa: S101 -- open comes first
        where = "record" if self.document else "line"
        number = placeholder.record + (0 if self.document else payload.start.records)
        row = {where: number, "type": placeholder.type, "message": placeholder.message}
        self._errors.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
