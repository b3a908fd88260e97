"""Content that lives for one request: in memory, or in a file without a name."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as effort_settings
from hypothesis import strategies as st

from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.objects.spool import Spool, SpoolSink
from support.effort import examples
from support.tiny_disk import fill, tiny_disk

pytestmark = pytest.mark.core


@pytest.fixture
def folder(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path)


@given(
    st.lists(st.binary(max_size=50), max_size=8),
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=5),
)
@effort_settings(max_examples=examples(100))
def test_any_place_can_be_read(pieces: list[bytes], places: list[tuple[int, int]]):
    spool = Spool(b"/")
    for number, piece in enumerate(pieces):
        spool.append(piece)
        # Reading in between does not disturb the writing.
        spool.read(number, 3)
    whole = b"".join(pieces)
    assert spool.size == len(whole)
    assert all(spool.read(offset, length) == whole[offset : offset + length] for offset, length in places)
    spool.close()


def test_beyond_the_end_is_nothing(folder: bytes):
    spool = Spool(folder)
    spool.append(b"abc")
    assert spool.read(3, 10) == spool.read(1 << 40, 10) == spool.read(1 << 70, 10) == b""
    spool.close()


def test_a_large_one_is_a_file_without_a_name(folder: bytes):
    spool = Spool(folder)
    data = random.Random(1).randbytes(1 << 20)
    for _ in range(10):
        spool.append(data)
    assert spool.read((9 << 20) + 5, 100) == data[5:105]
    assert os.listdir(folder) == []
    before = len(os.listdir("/proc/self/fd"))
    spool.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_a_small_one_needs_no_place(tmp_path: Path):
    spool = Spool(os.fsencode(tmp_path / "none"))
    spool.append(b"x" * 1000)
    assert spool.read(0, 2000) == b"x" * 1000
    with pytest.raises(DomainError, match="io_error"):
        spool.append(bytes(9 << 20))
    spool.close()


def test_a_full_disk(tmp_path: Path):
    with tiny_disk(os.fsencode(tmp_path)) as place:
        fill(place)
        spool = Spool(place)
        with pytest.raises(DomainError, match="no_space"):
            spool.append(bytes(20 << 20))
        spool.close()
        assert os.listdir(place) == [b"filler"]


def pieces(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), 1000):
        yield data[at : at + 1000]


def test_blobs_come_back_and_other_objects_do_not(folder: bytes):
    sink = SpoolSink(folder)
    blobs = [random.Random(size).randbytes(size) for size in (0, 1, 999, 1000, 1001, 100_000)]
    for number, data in enumerate(blobs):
        oid = hash_object(b"blob", data)
        assert oid not in sink
        added = sink.add(b"blob", data) if number % 2 else sink.add_stream(len(data), pieces(data))
        assert added == oid
        assert oid in sink
    assert sink.add(b"blob", blobs[3]) == hash_object(b"blob", blobs[3])
    tree = sink.add(b"tree", b"")
    assert tree == hash_object(b"tree", b"")
    assert tree not in sink
    assert [sink.load(hash_object(b"blob", data)) for data in blobs] == blobs
    for oid in (tree, b"\1" * 20):
        with pytest.raises(DomainError, match="object_missing"):
            sink.load(oid)
    sink.close()


def test_a_stream_that_is_not_as_long_as_it_said_is_not_kept(folder: bytes):
    def broken() -> Iterator[bytes]:
        yield b"abc"
        raise OSError(5, "the file's fault")

    sink = SpoolSink(folder)
    assert sink.add_stream(4, [b"abc"]) is None
    assert sink.add_stream(2, [b"abc"]) is None
    with pytest.raises(OSError, match="the file's fault"):
        sink.add_stream(3, broken())
    assert hash_object(b"blob", b"abc") not in sink
    oid = sink.add_stream(3, [b"a", b"bc"])
    assert oid is not None
    assert sink.load(oid) == b"abc"
    sink.close()
