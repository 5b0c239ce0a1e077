"""Cutting an input into balanced files for several instances, since the platform gives each instance whole files.

Cuts are at records and the order is kept: the shards, read one after the other, are the input. The arithmetic of how many
instances, hours and what they cost is printed with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import BinaryIO, Self

from transform import aws
from transform.faults import FileError, JobError
from transform.objects import Address, InputObject, address, opened
from transform.splitting import FRAMES

COPY_BYTES = 1 << 20
START_HOURS = 0.1
"""An instance is paid for from its start; images and models take minutes to arrive."""
PART_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Shard:
    """One written file."""

    address: str
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    """``hours`` is each instance's, start included; ``cost`` is of all of them, in the currency of the price."""

    instances: int
    hours: float
    cost: float | None


def plan(records: float, rate: float, instances: int, price: float | None) -> Plan:
    """What that many instances take for that many records at `rate` records per second each."""
    hours = records / rate / instances / 3600 + START_HOURS
    return Plan(instances, hours, None if price is None else instances * hours * price)


def enough(records: float, rate: float, within_hours: float) -> int:
    """The fewest instances that end in time. Raises JobError when not even starting them leaves time."""
    if within_hours <= START_HOURS:
        raise JobError(f"instances alone take about {START_HOURS:g} h to start: allow more with --within-hours")
    return max(1, math.ceil(records / rate / 3600 / (within_hours - START_HOURS)))


def table(records: float, rate: float, chosen: int, price: float | None) -> list[str]:
    """The arithmetic in lines: half, as many, and twice the instances."""
    counts = sorted({max(1, chosen // 2), chosen, chosen * 2})
    lines = [f"about {records:,.0f} records at {rate:,.0f} a second and instance, {START_HOURS * 60:.0f} minutes to start each:"]
    for one in (plan(records, rate, count, price) for count in counts):
        cost = "" if one.cost is None else f", {one.cost:,.2f} in all"
        lines.append(f"{'→' if one.instances == chosen else ' '} {one.instances:>4} × {one.hours:.2f} h{cost}")
    return lines


def estimated_records(objects: Sequence[InputObject], split: str, compression: str, sample: int = 4 << 20) -> float:
    """Records of the input, from the mean size of those in the first few mebibytes. Raises JobError."""
    total = sum(found.size for found in objects)
    first = next((found for found in objects if found.size), None)
    if first is None:
        return 0
    seen = count = 0
    try:
        with closing(opened(first, compression, 0)) as stream:
            for frame in FRAMES[split](stream):
                seen += len(frame.raw)
                count += 1
                if seen >= sample:
                    break
    except FileError as failure:
        raise JobError(f"{first.address.text}: {failure}") from None
    return total * count / seen if seen else 0


def cut(objects: Sequence[InputObject], split: str, compression: str, count: int, target: str) -> Iterator[Shard]:
    """Write `count` files of nearly equal size, each as it is done. Raises JobError.

    A last line without a newline gets one where another line follows. Fewer files come out of fewer records than files.
    """
    if compression != "None":
        raise JobError("compressed input cannot be cut evenly without inflating it: give it inflated")
    if split not in FRAMES:
        raise JobError("SplitType None has no records to cut at: say SplitType Line, RecordIO or TFRecord")
    total = sum(found.size for found in objects)
    stem, suffix = _named(objects)
    width = len(str(count))
    records = _records(objects, split)
    written, held = 0, next(records, b"")
    for number in range(1, count + 1):
        if not held:
            return
        with Writer(address(f"{target.rstrip('/')}/{stem}-{number:0{width}}-of-{count}{suffix}")) as writer:
            while held and (number == count or written + len(held) / 2 <= total * number / count or not writer.size):
                writer.write(held)
                written += len(held)
                held = next(records, b"")
        yield Shard(writer.text, writer.size)


class Writer:
    """A file here or in S3 that appears when it is whole."""

    def __init__(self, target: Address) -> None:
        self.text = target.text
        self.size = 0
        self._target = target
        self._scratch = TemporaryDirectory(prefix="shard-")
        self._part = Path(self._scratch.name) / "part"
        if not target.bucket:
            target.path.parent.mkdir(parents=True, exist_ok=True)
            self._part = target.path.with_name(f".{target.path.name}.part")
        self._file: BinaryIO = self._part.open("wb", buffering=COPY_BYTES)

    def __enter__(self) -> Self:
        return self

    def write(self, data: bytes) -> None:
        """Add bytes to the end."""
        self._file.write(data)
        self.size += len(data)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._file.close()
        try:
            if kind is None:
                self._place()
            elif not self._target.bucket:
                self._part.unlink(missing_ok=True)
        finally:
            self._scratch.cleanup()

    def _place(self) -> None:
        if not self._target.bucket:
            self._part.replace(self._target.path)
            return
        try:
            aws.client("s3").upload_file(str(self._part), self._target.bucket, self._target.key)
        except aws.FAULTS as error:
            raise JobError(f"{self.text} cannot be written: {aws.sentence(error)}") from None


def _records(objects: Sequence[InputObject], split: str) -> Iterator[bytes]:
    """Every record of every object as it stands there, lines with their newlines."""
    open_line = False
    for found in objects:
        try:
            with closing(opened(found, "None", 0)) as stream:
                for frame in FRAMES[split](stream):
                    yield b"\n" + frame.raw if open_line else frame.raw
                    open_line = split == "Line" and not frame.raw.endswith(b"\n")
        except FileError as failure:
            raise JobError(f"{found.address.text}: {failure}") from None


def _named(objects: Sequence[InputObject]) -> tuple[str, str]:
    """Shards are called after the only object, else `part`, with the first one's ending."""
    name = PurePosixPath(objects[0].name)
    return (name.stem if len(objects) == 1 else "part"), name.suffix
