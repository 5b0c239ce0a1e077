"""npy and npz: whole numeric arrays, no pickle, no header believed before its data is there."""

from __future__ import annotations

import io
import struct
import time
import zipfile
from typing import Any

import numpy
import pytest

from allocations import allocating_at_most
from batch_handler.errors import ServiceError, invalid_record
from batch_handler.formats import npy, npz
from batch_handler.formats.options import Layout, ReadOptions
from batch_handler.request import Record
from batch_handler.settings import MIB

LAYOUT = Layout(columns=lambda vector: vector, line=str)
Array = numpy.ndarray[Any, Any]


def saved(array: Array, **options: Any) -> bytes:
    buffer = io.BytesIO()
    numpy.save(buffer, array, **options)
    return buffer.getvalue()


def forged(header: str, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """A file whose header says what it likes."""
    text = header.encode("latin-1")
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + data


def status_of(read: Any, body: bytes, **options: Any) -> int:
    with pytest.raises(ServiceError) as caught:
        read(body, ReadOptions(**options))
    return caught.value.status


@pytest.mark.parametrize("kind", ["<f4", ">f8", "<i8", "|u1", "<f2", "|b1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_first_axis_counts_the_records(kind: str, order: str) -> None:
    array = numpy.asarray(numpy.arange(24).reshape(4, 3, 2) % 2, dtype=kind, order=order)  # type: ignore[call-overload]
    records = npy.read(saved(array), ReadOptions()).records
    assert [record.number for record in records if isinstance(record, Record)] == [1, 2, 3, 4]
    assert all(isinstance(record, Record) and (record.inputs == array[i]).all() for i, record in enumerate(records))


def test_a_scalar_is_one_record() -> None:
    payload = npy.read(saved(numpy.array(5.0)), ReadOptions())
    assert not payload.many
    assert len(payload.records) == 1


def test_pickled_objects_are_refused_unopened() -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return pytest.fail, ("the pickle was opened",)

    assert status_of(npy.read, saved(numpy.array([Bomb()], dtype=object), allow_pickle=True)) == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x93NUMPY",
        b"not an array",
        b"\x93NUMPY\x09\x00\x00\x00",
        saved(numpy.arange(10.0))[:-1],
        saved(numpy.arange(10.0)) + b"x",
        saved(numpy.array(["text"])),
        saved(numpy.zeros(2, dtype=[("a", "f4")])),
        saved(numpy.array(["2020-01-01"], dtype="datetime64[D]")),
        saved(numpy.zeros((0, 4))),
        saved(numpy.zeros((4, 0))),
        forged("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 0)}\n"),
        forged("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}\n"),
        forged("{'descr': '<f8', 'fortran_order': False, 'shape': (9" + "9" * 400 + ",)}\n"),
        forged("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}\n", b"12345678"),
        forged("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1)}\n", b"12345678"),
        forged("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1," * 100 + ")}\n", b"12345678"),
        forged("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n", b"cos\nsystem\n"),
        forged("{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,)}\n"),
        forged("__import__('os').getcwd()\n"),
        forged("(" * 3000),
        forged("{'descr': '<f8', \"\"\"\n"),
        forged("[" * 500 + "\n", version=(2, 0)),
    ],
)
def test_damaged_or_lying_arrays_are_refused_at_once(body: bytes) -> None:
    started = time.process_time()
    assert status_of(npy.read, body) == 400
    assert time.process_time() - started < 1


def test_results_are_stacked_and_a_lone_one_is_not() -> None:
    many = npy.read(saved(numpy.zeros((2, 3))), ReadOptions())
    stacked = numpy.load(io.BytesIO(npy.write(many, [numpy.ones(4), numpy.zeros(4)], LAYOUT)))
    assert stacked.tolist() == [[1.0] * 4, [0.0] * 4]
    lone = npy.read(saved(numpy.array(1.0)), ReadOptions())
    assert numpy.load(io.BytesIO(npy.write(lone, [numpy.ones(4)], LAYOUT))).shape == (4,)


def test_an_array_has_no_place_for_an_error_or_for_another_shape() -> None:
    payload = npy.read(saved(numpy.zeros((2, 3))), ReadOptions())
    with pytest.raises(ServiceError) as caught:
        npy.write(payload, [numpy.ones(4), invalid_record("bad", 2)], LAYOUT)
    assert caught.value.record == 2
    with pytest.raises(ServiceError) as caught:
        npy.write(payload, [numpy.ones(4), numpy.ones(5)], LAYOUT)
    assert caught.value.status == 406


def archive(compression: int = zipfile.ZIP_DEFLATED, **members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def test_a_record_of_an_npz_holds_its_place_in_every_array() -> None:
    body = archive(ids=saved(numpy.array([[1, 2], [3, 4]])), mask=saved(numpy.array([1, 0])))
    first, second = npz.read(body, ReadOptions()).records
    assert isinstance(first, Record)
    assert isinstance(second, Record)
    assert first.inputs["ids"].tolist() == [1, 2]
    assert second.inputs["mask"] == 0


def test_a_zip_bomb_is_refused_before_it_unfolds() -> None:
    body = archive(a=saved(numpy.zeros(4_000_000)))
    assert len(body) < 100_000
    with allocating_at_most(4 * MIB):
        assert status_of(npz.read, body, limit=1_000_000) == 413


def test_a_zip_that_lies_about_its_size_is_damaged() -> None:
    body = bytearray(archive(a=saved(numpy.zeros(4_000_000))))
    directory = body.rindex(b"PK\x01\x02")
    body[directory + 24 : directory + 28] = struct.pack("<I", 1_000)
    assert status_of(npz.read, bytes(body), limit=1_000_000) == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"PK\x03\x04junk",
        archive(a=saved(numpy.zeros(3)))[:-30],
        archive(),
        archive(a=b"no array"),
        archive(a=saved(numpy.zeros(3)), b=saved(numpy.zeros(4))),
        archive(a=saved(numpy.array(1.0))),
        archive(a=saved(numpy.array([None]), allow_pickle=True)),
    ],
)
def test_a_broken_or_uneven_npz_is_refused(body: bytes) -> None:
    assert status_of(npz.read, body) == 400


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_stream_of_any_compression_is_refused(compression: int) -> None:
    body = bytearray(archive(compression, a=saved(numpy.arange(200.0))))
    for place in range(50, 120):
        body[place] ^= 0xA5
    assert status_of(npz.read, bytes(body)) == 400
