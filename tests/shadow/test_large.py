"""Files too large to be held: they go through every operation in constant memory, and come out as they went in."""

import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ckpt_protocol.checkpoint import DropParams
from ckpt_protocol.store import GcParams
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import CHUNK_BYTES, hash_object
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.objects.stream import LARGE_BYTES
from ckptd.shadow.patch.pair import HUGE_BYTES
from support.bare import Bare
from support.merged import merge_packs
from support.worktrees import Desk

pytestmark = pytest.mark.core

SIZE = LARGE_BYTES + 3 * CHUNK_BYTES + 17
MOST_BYTES = 10 * CHUNK_BYTES
"""What an operation may hold at once: pieces, never such a file, neither as it is nor deflated."""


def content(seed: int) -> Iterator[bytes]:
    # Noise: what is deflated is as large as what is not.
    block = (b"%d" % seed) + os.urandom(CHUNK_BYTES - len(b"%d" % seed))
    for at in range(0, SIZE, CHUNK_BYTES):
        yield block[: min(CHUNK_BYTES, SIZE - at)]


def put(desk: Desk, name: bytes, seed: int) -> bytes:
    data = b"".join(content(seed))
    desk.write(name, data)
    return hash_object(b"blob", data)


def id_on_disk(desk: Desk, name: bytes) -> bytes:
    with open(desk.path(name), "rb") as file:
        return hash_object(b"blob", file.read())


@contextmanager
def held() -> Iterator[None]:
    """Assert that no more than a few pieces are held at any moment."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES, f"{peak} bytes were held at once"


def test_there_and_back_in_constant_memory(desk: Desk):
    desk.write(b"small", b"1")
    oid = put(desk, b"big", 1)
    with held():
        first = desk.save("first").id
    other = put(desk, b"big", 2)
    with held():
        desk.save("second")
        desk.reset(first)
    assert id_on_disk(desk, b"big") == oid
    with held():
        desk.undo()
    assert id_on_disk(desk, b"big") == other
    desk.remove(b"big")
    with held():
        desk.rollback(first, b"big")
    assert id_on_disk(desk, b"big") == oid
    with held():
        desk.status()


def test_cat_gives_it_piece_by_piece(desk: Desk):
    put(desk, b"big", 1)
    saved = desk.save("m").id
    with open(desk.path(b"big"), "rb") as file, held():
        for at in range(0, SIZE, CHUNK_BYTES):
            assert desk.cat(saved, b"big", offset=at, length=CHUNK_BYTES) == file.read(CHUNK_BYTES)
        assert desk.cat(saved, b"big", offset=SIZE) == b""
        # An answer that was lost, and a reader who jumps.
        for at, length in ((SIZE - 9, 5), (SIZE - 9, 5), (SIZE - 4, 100), (3, 10), (CHUNK_BYTES - 2, 4), (0, 1)):
            file.seek(at)
            assert desk.cat(saved, b"big", offset=at, length=length) == file.read(length)


def test_a_diff_tells_of_it_without_showing_it(desk: Desk):
    put(desk, b"big", 1)
    desk.write(b"text", b"1\n")
    first = desk.save("first").id
    put(desk, b"big", 2)
    put(desk, b"new", 3)
    desk.write(b"text", b"2\n")
    with held():
        patch = desk.diff()
        stat = desk.diff(format="stat")
    assert b"\nBinary files a/big and b/big differ\n" in patch
    assert b"\nBinary files /dev/null and b/new differ\n" in patch
    assert b"-1\n+2\n" in patch
    assert b" Bin %d -> %d bytes\n" % (SIZE, SIZE) in stat
    assert len(patch) < 2000
    with held():
        desk.save("second")
        assert desk.diff(from_id=first, to_id="HEAD") == patch


def test_a_diff_says_that_it_left_something_out(desk: Desk):
    put(desk, b"big", 1)
    desk.save("first")
    put(desk, b"big", 2)
    notes = desk.diff_result().notes
    assert notes == [f"big is larger than {HUGE_BYTES >> 20} MiB: the patch says that it differs, and not how"]
    assert desk.diff_result(format="stat").notes == []


def test_a_diff_says_where_lines_are_too_many_to_compare(desk: Desk):
    desk.write(b"text", b"line\n" * 300_000)
    desk.save("first")
    desk.write(b"text", b"line\n" * 300_001)
    shown = desk.diff_result()
    assert shown.notes == ["text is larger than 1 MiB: the patch holds it whole, in binary form"]
    assert b"GIT binary patch" in desk.diff()


def damage(path: bytes, at: int) -> None:
    os.chmod(path, 0o600)
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x55]))


def stored(bare: Bare, seed: int) -> tuple[bytes, bytes]:
    """Store such a blob in a pack of its own; give its id and the pack's path."""
    before = set(bare.packs())
    writer = bare.writer()
    oid = writer.add_stream(SIZE, content(seed))
    writer.finish()
    (name,) = set(bare.packs()) - before
    return oid, bare.path(name, b".pack")


def drained(pieces: Iterator[bytes]) -> int:
    return sum(map(len, pieces))


@pytest.mark.parametrize("at", [1000, SIZE // 2, SIZE])
def test_of_a_damaged_one_the_end_is_never_given(tmp_path: Path, at: int):
    bare = Bare(os.fsencode(tmp_path))
    oid, pack = stored(bare, 1)
    damage(pack, at)
    objects = ObjectStore(bare.folder)
    objects.refresh()
    given: list[int] = []
    with pytest.raises(DomainError) as caught:
        given.extend(map(len, objects.chunks(oid)))
    assert caught.value.kind == "store_damaged"
    assert sum(given) < SIZE
    assert oid in objects.suspects
    with pytest.raises(DomainError):
        objects.check(oid)
    objects.close()


@pytest.mark.parametrize("spoil", [lambda _path: None, lambda path: damage(path, SIZE // 2)])
def test_a_good_copy_is_found_beside_a_damaged_one(tmp_path: Path, spoil: Callable[[bytes], None]):
    bare = Bare(os.fsencode(tmp_path))
    data = b"".join(content(1))
    oid = bare.put_loose(data)
    writer = bare.writer()
    assert writer.add_stream(SIZE, iter([data])) == oid
    writer.finish()
    spoil(bare.path(bare.packs()[0], b".pack"))
    objects = ObjectStore(bare.folder)
    objects.refresh()
    with held():
        assert objects.size(oid) == SIZE == drained(objects.chunks(oid))
        objects.check(oid)
    objects.close()


def test_a_loose_one_is_streamed(tmp_path: Path):
    bare = Bare(os.fsencode(tmp_path))
    oid = bare.put_loose(b"".join(content(1)))
    objects = ObjectStore(bare.folder)
    with held():
        assert objects.size(oid) == SIZE == drained(objects.chunks(oid))
    objects.close()


def test_one_that_git_has_repacked_is_streamed(tmp_path: Path):
    bare = Bare(os.fsencode(tmp_path))
    oids = [stored(bare, seed)[0] for seed in (1, 2)]
    for seq, oid in enumerate(oids, 1):
        bare.git("update-ref", f"refs/tags/t{seq}", oid.hex())
    bare.git("repack", "-a", "-d", "-f", "-q")
    objects = ObjectStore(bare.folder)
    objects.refresh()
    with held():
        assert [drained(objects.chunks(oid)) for oid in oids] == [SIZE, SIZE]
    objects.close()


def test_the_size_of_a_small_one_made_of_deltas(tmp_path: Path):
    bare = Bare(os.fsencode(tmp_path))
    base = os.urandom(5000)
    oids = bare.put(base, base + b"more")
    for seq, oid in enumerate(oids, 1):
        bare.git("update-ref", f"refs/tags/t{seq}", oid.hex())
    bare.git("repack", "-a", "-d", "-f", "-q")
    objects = ObjectStore(bare.folder)
    objects.refresh()
    assert [objects.size(oid) for oid in oids] == [5000, 5004]
    with pytest.raises(DomainError) as caught:
        objects.size(b"x" * 20)
    assert caught.value.kind == "object_missing"
    objects.close()


def test_packs_are_merged_a_piece_at_a_time(tmp_path: Path):
    bare = Bare(os.fsencode(tmp_path))
    oids = [stored(bare, seed)[0] for seed in (1, 2, 3)]
    with held():
        assert merge_packs(bare.pack_dir) == 3
    assert len(bare.packs()) == 1
    objects = bare.objects()
    objects.refresh()
    assert [drained(objects.chunks(oid)) for oid in oids] == [SIZE] * 3
    objects.close()


def test_what_is_dropped_is_collected_a_piece_at_a_time(desk: Desk):
    ids = []
    for seed in (1, 2, 3):
        put(desk, b"big%d" % (seed % 2), seed)
        ids.append(desk.save().id)
    # The first of both names; the third checkpoint still has the second one's file.
    desk.writer.drop(DropParams(**desk.common(), token=desk.token(), ids=ids[:2]), Caller("test"))
    with held():
        run = desk.writer.gc(GcParams(**desk.common(), token=desk.token()), Caller("test"))
        while (result := run.step()) is None:
            continue
    assert SIZE < result.removed_bytes < 2 * SIZE
    for name in (b"big0", b"big1"):
        assert id_on_disk(desk, name).hex() == desk.paths_of(ids[2])[name][1].decode()


def test_a_stream_outlives_its_pack(tmp_path: Path):
    bare = Bare(os.fsencode(tmp_path))
    oid, pack = stored(bare, 1)
    objects = ObjectStore(bare.folder)
    objects.refresh()
    pieces = objects.chunks(oid)
    given = len(next(pieces))
    os.unlink(pack[: -len(b".pack")] + b".idx")
    os.unlink(pack)
    objects.refresh()
    assert given + drained(pieces) == SIZE
    objects.close()
