"""Packs as we write them: git must find no fault in one, and nothing may be left of one that failed."""

import os
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import settings as effort_settings
from hypothesis import strategies as st

from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.objects.deflate import MOST_PLAIN_BYTES, deflate, holds_plain, wrap
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.objects.indexform import format_index, note
from ckptd.shadow.objects.pack import HashOnly, PackWriter
from ckptd.shadow.objects.packindex import PackIndex
from support import isolation
from support.bare import Bare
from support.effort import examples
from support.tiny_disk import fill, tiny_disk
from support.worktrees import run_git

pytestmark = pytest.mark.core

# Where an entry's header grows by a byte, and where content is read and written in pieces.
SIZES = [0, 1, 15, 16, 17, 2047, 2048, 2049, (1 << 18) - 1, (1 << 18) + 1, (1 << 20) + 1, 3_000_000]


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return Bare(os.fsencode(tmp_path))


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def pieces(data: bytes, length: int) -> Iterator[bytes]:
    for at in range(0, len(data), length):
        yield data[at : at + length]


def check(bare: Bare, expected: dict[bytes, bytes]) -> None:
    """Assert that git takes the one pack there is, and finds exactly these blobs in it."""
    (name,) = bare.packs()
    pack, index = bare.path(name, b".pack"), bare.path(name, b".idx")
    listed = run_git("verify-pack", "-v", index)
    assert {bytes.fromhex(line.split()[0].decode()) for line in listed.splitlines() if b" blob " in line} == set(
        expected
    )
    # What git itself makes of the pack is our index, byte for byte.
    again = pack + b".again.idx"
    assert run_git("index-pack", "--strict", b"-o", again, pack).strip() == name.removeprefix(b"pack-")
    with open(again, "rb") as theirs, open(index, "rb") as ours:
        assert theirs.read() == ours.read()
    os.unlink(again)
    for oid, data in expected.items():
        assert bare.git("cat-file", "blob", oid.hex()) == data


@pytest.mark.parametrize("stream", [False, True])
def test_sizes_around_the_edges_of_an_entrys_header(bare: Bare, stream: bool):
    writer = bare.writer()
    expected = {}
    for size in SIZES:
        data = noise(size)
        oid = writer.add_stream(size, pieces(data, 100_000)) if stream else writer.add(b"blob", data)
        assert oid == hash_object(b"blob", data)
        expected[oid] = data
    assert writer.object_count == len(SIZES)
    assert writer.oids == set(expected)
    writer.finish()
    check(bare, expected)


@given(
    st.lists(
        st.tuples(st.binary(max_size=300), st.sampled_from(["plain", "stream", "short", "long", "broken"])), max_size=12
    )
)
@example([(b"", "stream"), (b"", "plain"), (b"x", "short"), (b"y", "long"), (b"z", "broken"), (b"x", "plain")])
@effort_settings(max_examples=examples(25))
def test_any_blobs_and_streams(items: list[tuple[bytes, str]]):
    place = isolation.short_directory("ckp")
    try:
        bare = Bare(os.fsencode(place))
        writer = bare.writer()
        expected: dict[bytes, bytes] = {}
        for data, how in items:
            add_one(writer, data, how, expected)
        assert (writer.finish() is None) == (not expected)
        if expected:
            check(bare, expected)
        assert len(os.listdir(bare.pack_dir)) == (2 if expected else 0)
    finally:
        isolation.remove(place)


def add_one(writer: PackWriter, data: bytes, how: str, expected: dict[bytes, bytes]) -> None:
    oid = hash_object(b"blob", data)
    if how == "short":
        assert writer.add_stream(len(data) + 1, pieces(data, 7)) is None
    elif how == "long":
        assert writer.add_stream(max(0, len(data) - 1), pieces(data, 7)) is None or not data
        if not data:
            expected[oid] = data
    elif how == "broken":
        with pytest.raises(OSError, match="the file's fault"):
            writer.add_stream(len(data), broken(data))
    else:
        added = writer.add(b"blob", data) if how == "plain" else writer.add_stream(len(data), pieces(data, 7))
        assert added == oid
        expected[oid] = data


def broken(data: bytes) -> Iterator[bytes]:
    yield data
    raise OSError(5, "the file's fault")


def test_a_stream_that_fails_late_leaves_the_pack_where_it_was(bare: Bare):
    writer = bare.writer()
    expected = {}
    for number in range(4):
        good = noise(700_000, number)
        expected[writer.add(b"blob", good)] = good
        with pytest.raises(OSError, match="the file's fault"):
            writer.add_stream(1_000_000, broken(noise(900_000, 10 + number)))
        assert writer.add_stream(1_000_001, pieces(noise(1_000_000, number), 50_000)) is None
    writer.finish()
    check(bare, expected)


def test_what_is_there_is_not_written_again(bare: Bare):
    known = hash_object(b"blob", b"known")
    writer = PackWriter(bare.pack_dir, lambda oid: oid == known)
    assert writer.add(b"blob", b"known") == known
    assert writer.add_stream(5, [b"known"]) == known
    for _ in range(3):
        assert writer.add(b"blob", b"new") == writer.add_stream(3, [b"ne", b"w"])
    assert writer.object_count == 1
    writer.finish()
    check(bare, {hash_object(b"blob", b"new"): b"new"})


def test_all_kinds_of_objects(bare: Bare):
    commit = bare.commit(1, "text")
    assert bare.git("cat-file", "-t", commit) == b"commit\n"
    bare.git("update-ref", "refs/checkpoints/0000000001", commit)
    bare.verify()


@pytest.mark.parametrize("size", [0, 1, 255, 256, MOST_PLAIN_BYTES])
def test_what_is_wrapped_up_is_a_stream_like_any_other(size: int):
    data = noise(size)
    assert zlib.decompress(wrap(data)) == data
    assert len(wrap(data)) == size + 11
    assert holds_plain(wrap(data))
    assert not holds_plain(deflate(b"line\n" * 20))


def test_so_many_bytes_of_small_objects_are_only_wrapped_up(bare: Bare):
    writer = PackWriter(bare.pack_dir, lambda _oid: False, plain_bytes=20_000)
    blobs = [b"%d\n" % number * 3000 for number in range(5)] + [b"larger\n" * 3000, b"small\n" * 20]
    for blob in blobs:
        writer.add(b"blob", blob)
    name = writer.finish()
    with open(bare.path(name, b".pack"), "rb") as file:
        data = file.read()
    plain = [number for number, blob in enumerate(blobs) if wrap(blob) in data]
    deflated = [number for number, blob in enumerate(blobs) if deflate(blob) in data]
    # One by one as they come, as long as there is room for the next; those that are larger never.
    assert (plain, deflated) == ([0, 1, 2, 6], [3, 4, 5])
    bare.verify()


def test_thousands_of_objects_in_all_buckets(bare: Bare):
    writer = bare.writer()
    expected = {writer.add(b"blob", b"%d" % number): b"%d" % number for number in range(5000)}
    name = writer.finish()
    index = PackIndex(bare.path(name, b".idx"))
    run_git("verify-pack", index.path)
    assert index.count == 5000
    assert index.oids() == sorted(expected)
    assert all(index.find(oid) is not None for oid in expected)
    assert index.find(bytes(20)) is None
    assert index.find(b"\xff" * 20) is None
    # Neighbours of what is there are not there.
    assert all(index.find(oid[:-1] + bytes([oid[-1] ^ 1])) is None for oid in list(expected)[:500])


def test_an_id_that_is_found_across_two_others_is_looked_for_further(tmp_path: Path):
    one, other = b"\5" * 5 + b"\1" + b"\5" * 14, b"\5" * 20
    index = written_index(tmp_path, [(one, 0, 12), (other, 0, 13)])
    assert (index.find(one), index.find(other)) == (12, 13)
    index = written_index(tmp_path, [(one, 0, 12), (b"\5" * 19 + b"\4", 0, 13)])
    assert index.find(other) is None


@pytest.mark.parametrize("first", [0x00, 0x7F, 0xFF])
def test_all_objects_in_one_bucket(tmp_path: Path, first: int):
    written = [(bytes([first]) + noise(19, number), number, 12 + number) for number in range(300)]
    index = written_index(tmp_path, written)
    assert [index.find(oid) for oid, _, _ in written] == [offset for _, _, offset in written]
    assert index.find(bytes([first]) + bytes(19)) is None
    assert index.entries() == sorted((oid, offset, crc) for oid, crc, offset in written)


def written_index(place: Path, written: list[tuple[bytes, int, int]]) -> PackIndex:
    path = place / "pack-of.idx"
    path.write_bytes(format_index([note(*one) for one in written], bytes(20)))
    return PackIndex(os.fsencode(path))


def test_offsets_of_more_than_two_gibibytes(tmp_path: Path):
    offsets = [12, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0x100000000, 1 << 45]
    written = [(noise(20, number), number, offset) for number, offset in enumerate(offsets)]
    index = written_index(tmp_path, written)
    assert [index.find(oid) for oid, _, _ in written] == offsets
    listed = run_git("show-index", data=Path(os.fsdecode(index.path)).read_bytes())
    theirs = {(line.split()[1].decode(), int(line.split()[0])) for line in listed.splitlines()}
    assert theirs == {(oid.hex(), offset) for oid, _, offset in written}


def test_a_large_offset_that_cannot_be_right_is_none(tmp_path: Path):
    written = [(b"\1" * 20, 1, 12), (b"\2" * 20, 2, 1 << 40)]
    data = bytearray(format_index([note(*one) for one in written], bytes(20)))
    (tmp_path / "pack-a.idx").write_bytes(data[:-48] + struct.pack(">Q", 1 << 63) + data[-40:])
    small_at = 8 + 1024 + 2 * 24
    data[small_at + 4 : small_at + 8] = struct.pack(">I", 0x80000007)
    (tmp_path / "pack-b.idx").write_bytes(data)
    for name in ("pack-a.idx", "pack-b.idx"):
        index = PackIndex(os.fsencode(tmp_path / name))
        assert index.find(b"\1" * 20) == 12
        assert index.find(b"\2" * 20) is None
        with pytest.raises(DomainError, match="store_damaged"):
            index.entries()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:500],
        lambda data: data[:-41],
        lambda data: b"\0" * len(data),
        lambda data: data[:7] + b"\3" + data[8:],
        lambda data: data[:8] + b"\xff" + data[9:],
        lambda data: data[: 8 + 1020] + b"\xff\xff\xff\xff" + data[8 + 1024 :],
    ],
    ids=["empty", "header", "cut", "zeros", "version", "fan-out", "count"],
)
def test_a_damaged_index_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]):
    path = tmp_path / "pack-a.idx"
    path.write_bytes(damage(format_index([note(noise(20), 1, 12)], bytes(20))))
    with pytest.raises(DomainError, match="store_damaged"):
        PackIndex(os.fsencode(path))


def test_an_index_that_is_not_there(tmp_path: Path):
    with pytest.raises(DomainError, match="io_error"):
        PackIndex(os.fsencode(tmp_path / "pack-none.idx"))


def test_nothing_is_left_of_what_was_given_up(bare: Bare):
    writer = bare.writer()
    writer.add(b"blob", b"a" * 100_000)
    writer.add_stream(3, [b"abc"])
    assert len(os.listdir(bare.pack_dir)) == 1
    writer.abort()
    assert os.listdir(bare.pack_dir) == []
    assert writer.oids == set()
    writer.abort()
    # It can be used once more: what it wrote before is forgotten.
    oid = writer.add(b"blob", b"again")
    writer.finish()
    check(bare, {oid: b"again"})


def test_an_empty_pack_is_none(bare: Bare):
    writer = bare.writer()
    assert writer.add_stream(9, [b"short"]) is None
    assert writer.finish() is None
    assert os.listdir(bare.pack_dir) == []


def test_nobody_sees_a_pack_before_it_is_finished(bare: Bare):
    writer = bare.writer()
    oid = writer.add(b"blob", b"data")
    objects = bare.objects()
    objects.refresh()
    assert oid not in objects
    writer.finish()
    objects.refresh()
    assert oid in objects
    modes = {os.stat(os.path.join(bare.pack_dir, name)).st_mode & 0o777 for name in os.listdir(bare.pack_dir)}
    assert modes == {0o400}


def test_the_same_pack_twice(bare: Bare):
    first, second = bare.writer(), bare.writer()
    for writer in (first, second):
        writer.add(b"blob", b"same")
    assert first.finish() == second.finish()
    check(bare, {hash_object(b"blob", b"same"): b"same"})


def test_a_folder_that_is_gone(tmp_path: Path):
    writer = PackWriter(os.fsencode(tmp_path / "none"), lambda _oid: False)
    with pytest.raises(DomainError, match="io_error"):
        writer.add(b"blob", b"x")
    writer.abort()


def test_hashing_alone():
    sink = HashOnly()
    assert sink.add(b"blob", b"abc") == sink.add_stream(3, [b"a", b"bc"]) == hash_object(b"blob", b"abc")
    assert sink.add_stream(4, [b"abc"]) is None
    assert sink.add_stream(2, [b"abc"]) is None


class TestFullDisk:
    @pytest.fixture
    def full(self, tmp_path: Path) -> Iterator[bytes]:
        with tiny_disk(os.fsencode(tmp_path), 1024) as place:
            yield place

    @staticmethod
    def _nothing_left(place: bytes) -> None:
        assert [name for name in os.listdir(place) if name != b"filler"] == []

    def test_while_objects_are_added(self, full: bytes):
        writer = PackWriter(full, lambda _oid: False)
        with pytest.raises(DomainError, match="no_space"):
            [writer.add(b"blob", noise(50_000, number)) for number in range(100)]
        writer.abort()
        self._nothing_left(full)

    def test_while_a_stream_is_added(self, full: bytes):
        writer = PackWriter(full, lambda _oid: False)
        with pytest.raises(DomainError, match="no_space"):
            writer.add_stream(5_000_000, pieces(noise(5_000_000), 100_000))
        writer.abort()
        self._nothing_left(full)

    @pytest.mark.parametrize("leave_bytes", [0, 4096, 8192])
    def test_when_it_is_finished(self, full: bytes, leave_bytes: int):
        writer = PackWriter(full, lambda _oid: False)
        for number in range(1000):
            writer.add(b"blob", b"%d" % number)
        filler = fill(full, leave_bytes=leave_bytes)
        with pytest.raises(DomainError, match="no_space"):
            writer.finish()
        self._nothing_left(full)
        os.unlink(filler)
        oid = writer.add(b"blob", b"there is room again")
        name = writer.finish()
        assert PackIndex(os.path.join(full, name + b".idx")).oids() == [oid]

    def test_that_shows_when_a_file_fails(self, full: bytes):
        # What was buffered is written out when the stream is taken back: that is the disk's fault, not the file's.
        def failing() -> Iterator[bytes]:
            yield noise(200_000)
            fill(full)
            raise OSError(5, "the file's fault")

        writer = PackWriter(full, lambda _oid: False)
        with pytest.raises(DomainError, match="no_space"):
            writer.add_stream(400_000, failing())
        writer.abort()
        self._nothing_left(full)


@pytest.mark.parametrize("size", [0, 1, 300, 3_800, 3_801, 7_900, 7_901, 16_000, 16_001, 100_000])
@pytest.mark.parametrize("kind", ["text", "noise"])
def test_what_is_deflated_comes_back_and_is_small(size: int, kind: str):
    text = b"".join(b"line %d of a file with words in it\n" % number for number in range(size // 20 + 1))
    data = text[:size] if kind == "text" else noise(size)
    packed = deflate(data)
    assert zlib.decompress(packed) == data
    # A small window finds what a large one would, give or take a block's end.
    assert len(packed) <= len(zlib.compress(data, 1)) * 1.01 + 16


@pytest.mark.parametrize("step", ["pack-written", "index-synced", "pack-named"])
def test_git_takes_no_notice_of_a_pack_in_the_making(bare: Bare, step: str):
    """Whoever looks meanwhile, or after a crash, finds neither its objects nor a fault."""
    seen: list[bytes] = []

    def look(name: str, _path: bytes) -> None:
        if name == step:
            bare.verify()
            seen.append(bare.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)"))

    end = listen(look)
    try:
        bare.put(b"not there yet")
    finally:
        end()
    assert seen == [b""]
    bare.verify()
