"""DataProcessing: what of a record is sent, how the answer joins the record, what of both is kept. Line by line, one line each.

The rules are those of the platform's page "Associate Prediction Results with Input Records". Beyond them, a record that
cannot be read is sent as it is, one in which the filter finds nothing is not sent, and the error of either stands where
its result would.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from batch_handler.formats import exact
from transform import media, paths
from transform.description import Job
from transform.faults import FileError

INPUT = "SageMakerInput"
OUTPUT = "SageMakerOutput"
NOT_SENT = "InvalidRecord"
"""The type of the error of a record in which the input filter finds nothing: the container's for a bad record."""
csv.field_size_limit(1 << 30)


@dataclass(frozen=True, slots=True)
class Processing:
    """The compiled DataProcessing of a job. ``document``: each body is one JSON value, not lines."""

    kind: str
    document: bool
    join: bool
    input_filter: paths.Path
    output_filter: paths.Path

    @property
    def idle(self) -> bool:
        """Whether answers are kept as they come."""
        return not self.join and self.output_filter.whole

    def sent(self, body: bytes) -> tuple[bytes, dict[int, str]]:
        """What of a body is sent, and why records are not, by their number from 0."""
        if self.input_filter.whole:
            return body, {}
        refused: dict[int, str] = {}
        chosen = []
        for number, line in enumerate(self._records(body)):
            try:
                value = self._read(line)
            except ValueError:
                chosen.append(line)  # the container says best what is wrong with it
                continue
            try:
                chosen.append(self._write(self.input_filter.select(value)))
            except paths.NothingSelectedError as nothing:
                refused[number] = f"InputFilter {nothing}"
        end = b"\n" if chosen and body.endswith(b"\n") and not self.document else b""
        return b"\n".join(chosen) + end, refused

    def kept(self, original: bytes, refused: dict[int, str], answered: Iterable[bytes]) -> Iterator[bytes]:
        """The output lines, without newlines, of one request: its records beside the lines of its answer.

        Raises FileError when the answer has not one line for each record that was sent, or one that cannot be read.
        """
        records = self._records(original)
        lines = iter(answered)
        for number, record in enumerate(records):
            line = self._refusal(number, refused[number]) if number in refused else next(lines, None)
            if line is None:
                raise FileError(f"the answer has fewer lines than the {len(records):,} records of its request: no joining them")
            yield self._kept(record, line)
        if next(lines, None) is not None:
            raise FileError(f"the answer has more lines than the {len(records):,} records of its request: no joining them")

    def _kept(self, record: bytes, line: bytes) -> bytes:
        if self.idle:
            return line
        if self.kind == media.CSV:
            return self._kept_row(record, line)
        try:
            result = exact.loads(line)
        except orjson.JSONDecodeError:
            raise FileError(f"the answer holds a line that is not JSON, which DataProcessing needs: {line[:80]!r}") from None
        joined = self._joined(record, result) if self.join else result
        if self.output_filter.whole:
            return exact.dumps(joined)
        try:
            return exact.dumps(self.output_filter.select(joined))
        except paths.NothingSelectedError:
            return exact.dumps(_without(joined, result))

    def _joined(self, record: bytes, result: Any) -> Any:
        try:
            value = exact.loads(record)
        except orjson.JSONDecodeError:
            return {INPUT: record.decode("utf-8", "replace"), OUTPUT: result}
        return {**value, OUTPUT: result} if isinstance(value, dict) else {INPUT: value, OUTPUT: result}

    def _kept_row(self, record: bytes, line: bytes) -> bytes:
        joined = record + b"," + line if self.join else line
        if self.output_filter.whole:
            return joined
        try:
            cells = [*(_cells(record) if self.join else ()), *_cells(line)]
            return _row(self.output_filter.select(cells))
        except (paths.NothingSelectedError, ValueError):
            return line

    def _records(self, body: bytes) -> list[bytes]:
        """The records without their newlines, LF or CRLF."""
        if self.document:
            return [body]
        lines = body.split(b"\n")
        if not lines[-1]:
            lines.pop()
        return [line.removesuffix(b"\r") for line in lines]

    def _read(self, line: bytes) -> Any:
        return _cells(line) if self.kind == media.CSV else exact.loads(line)

    def _write(self, value: Any) -> bytes:
        return _row(value) if self.kind == media.CSV else exact.dumps(value)

    def _refusal(self, number: int, why: str) -> bytes:
        error = orjson.dumps({"error": {"type": NOT_SENT, "message": why, "record": number + 1}})
        return _row([error.decode()]) if self.kind == media.CSV else error


def processing(job: Job) -> Processing:
    """Compile what a checked job says about its records."""
    kind = media.kind(job.content_type)
    document = kind == media.JSON and job.split == "None"
    return Processing(kind, document, job.join, paths.compiled(job.input_filter), paths.compiled(job.output_filter))


def _without(joined: Any, result: Any) -> Any:
    """What stands for a record of which the output filter keeps nothing: its error, where it has one. Raises FileError."""
    if isinstance(result, dict) and isinstance(result.get("error"), dict):
        return result
    shown = exact.dumps(joined)[:80]
    raise FileError(f"OutputFilter selects nothing in {shown.decode('utf-8', 'replace')}…: correct it")


def _cells(line: bytes) -> list[str]:
    """The cells of a row that is one line. Raises ValueError."""
    try:
        rows = list(csv.reader([line.decode("utf-8")], strict=True))
    except csv.Error as error:
        raise ValueError(str(error)) from None
    return rows[0] if rows else []


def _row(value: Any) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="").writerow(value if isinstance(value, list) else [value])
    return buffer.getvalue().encode("utf-8")
