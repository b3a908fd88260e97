"""Reading objects: plain, delta and loose ones, damaged ones, and packs that come and go meanwhile."""

import hashlib
import os
import random
import resource
import struct
import zlib
from pathlib import Path

import pytest

from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.objects.indexform import format_index, note
from ckptd.shadow.objects.packindex import PackIndex
from ckptd.shadow.objects.store import ObjectStore
from support.bare import Bare
from support.mapped import needs_maps, resident_bytes
from support.merged import merge_packs
from support.worktrees import in_child, somebody

pytestmark = pytest.mark.core


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return Bare(os.fsencode(tmp_path))


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def opened(bare: Bare) -> ObjectStore:
    objects = bare.objects()
    objects.refresh()
    return objects


def offset_of(bare: Bare, name: bytes, oid: bytes) -> int:
    found = PackIndex(bare.path(name, b".idx")).find(oid)
    assert found is not None
    return found


def refused(objects: ObjectStore, oid: bytes, kind: bytes = b"blob") -> str:
    with pytest.raises(DomainError) as caught:
        objects.read(oid, kind)
    return caught.value.kind


def test_plain_ones_of_every_size(bare: Bare):
    blobs = [noise(size, size) for size in (0, 1, 15, 16, 2047, 2048, 5000, 1 << 20, 2_500_000)]
    blobs.append(bytes(9_000_000))
    oids = bare.put(*blobs)
    objects = opened(bare)
    for oid, data in zip(oids, blobs, strict=True):
        assert oid in objects
        assert objects.read(oid, b"blob") == data
        assert b"".join(objects.chunks(oid)) == data
    assert objects.suspects == set()
    objects.close()


def test_deltas_that_git_has_made(bare: Bare):
    text = b"".join(b"line %d\n" % number for number in range(2000))
    blobs = [text, text + b"one more\n", text.replace(b"line 7\n", b"seven\n"), noise(100)]
    oids = bare.put(*blobs)
    tree = "".join(f"100644 blob {oid.hex()}\tf{number}\n" for number, oid in enumerate(oids)).encode()
    root = bare.git("mktree", data=tree).decode().strip()
    commit = bare.git("commit-tree", root, "-m", "x").decode().strip()
    bare.git("update-ref", "refs/checkpoints/0000000001", commit)
    before = opened(bare)
    before.read(oids[0], b"blob")
    bare.git("repack", "-adfq", "--window=10")
    assert b"chain length = 1" in bare.git("verify-pack", "-v", bare.path(bare.packs()[0], b".idx"))
    for objects in (before, opened(bare)):
        assert [objects.read(oid, b"blob") for oid in oids] == blobs
        assert objects.read(bytes.fromhex(root), b"tree").startswith(b"100644 f0\0")
        assert objects.suspects == set()


def test_loose_ones(bare: Bare):
    objects = opened(bare)
    oid = bare.put_loose(b"loose")
    assert oid in objects
    assert objects.read(oid, b"blob") == b"loose"
    assert refused(objects, oid, b"tree") == "object_missing"


def test_a_damaged_loose_one(bare: Bare):
    oid = bare.put_loose(noise(1000))
    path = os.path.join(bare.folder, b"objects", oid.hex()[:2].encode(), oid.hex()[2:].encode())
    bare.overwrite(path, 200, b"damage")
    objects = opened(bare)
    assert refused(objects, oid) in ("object_missing", "store_damaged")
    assert oid in objects.suspects


def test_one_that_is_missing(bare: Bare):
    bare.put(b"other")
    objects = opened(bare)
    assert b"\1" * 20 not in objects
    assert refused(objects, b"\1" * 20) == "object_missing"
    assert b"\1" * 20 in objects.suspects


def test_one_of_another_kind(bare: Bare):
    (oid,) = bare.put(b"a blob")
    assert refused(opened(bare), oid, b"tree") == "store_damaged"


@pytest.mark.parametrize(
    "damage",
    [b"\xff" * 64, b"\0" * 8, b"\x00" * 200, b"\x7f" * 30, b"\xb0\x01", b"\x90\x80\x01x"],
    ids=["ones", "zeros", "many zeros", "a delta's header", "another size", "another kind"],
)
def test_a_damaged_entry_is_damage_of_the_store(bare: Bare, damage: bytes):
    data = noise(1000)
    oid, other = bare.put(data, b"unharmed")
    (name,) = bare.packs()
    bare.overwrite(bare.path(name, b".pack"), offset_of(bare, name, oid), damage)
    objects = opened(bare)
    assert refused(objects, oid) == "store_damaged"
    # From now on it counts as missing, so that the next save writes it again.
    assert oid not in objects
    assert objects.read(other, b"blob") == b"unharmed"
    bare.put(data, b"another, so that the pack is another")
    objects.trust({oid})
    assert objects.read(oid, b"blob") == data


def test_a_good_copy_is_found_behind_a_bad_one(bare: Bare):
    data = noise(1000)
    (oid,) = bare.put(data)
    bare.put(data, b"more")
    bare.put_loose(data)
    for name in bare.packs():
        assert opened(bare).read(oid, b"blob") == data
        bare.overwrite(bare.path(name, b".pack"), offset_of(bare, name, oid) + 20, b"damage")
    objects = opened(bare)
    assert objects.read(oid, b"blob") == data
    assert objects.suspects == set()


def test_a_cut_pack(bare: Bare):
    oid = bare.put(noise(100_000))[0]
    path = bare.path(bare.packs()[0], b".pack")
    for size in (50_000, 12, 0):
        os.chmod(path, 0o600)
        os.truncate(path, size)
        # It vouches for nothing, so that the next save writes again what is still there.
        objects = opened(bare)
        assert oid not in objects
        assert refused(objects, oid) == "object_missing"


def test_what_could_not_be_read_for_a_moment_is_no_suspect_for_ever(bare: Bare):
    oid = bare.put(b"data")[0]
    objects = opened(bare)
    objects.distrust(oid)
    assert oid in objects
    assert not objects.suspects


def test_any_damage_gives_the_content_or_an_error(bare: Bare):
    data = noise(300)
    oid = bare.put(data, b"x" * 400, b"y")[0]
    (name,) = bare.packs()
    chance = random.Random(7)
    for ending in (b".pack", b".idx"):
        path = bare.path(name, ending)
        with open(path, "rb") as file:
            whole = file.read()
        for _ in range(150):
            at = chance.randrange(len(whole))
            bare.overwrite(path, at, chance.randbytes(chance.choice((1, 4, 40)))[: len(whole) - at])
            objects = opened(bare)
            assert read_or_refuse(objects, oid) in (data, "store_damaged", "object_missing")
            objects.close()
            bare.overwrite(path, 0, whole)


def read_or_refuse(objects: ObjectStore, oid: bytes) -> bytes | str:
    try:
        return objects.read(oid, b"blob")
    except DomainError as error:
        return error.kind


def test_a_damaged_index_hurts_only_its_pack(bare: Bare):
    first, second, third = bare.put(b"first"), bare.put(b"second"), bare.put(b"third")
    one, other, _ = (name for oid in (first, second, third) for name in bare.packs() if oid[0] in index(bare, name))
    os.truncate(bare.path(one, b".idx"), 700)
    bare.overwrite(bare.path(other, b".idx"), 0, b"junk")
    objects = opened(bare)
    assert objects.pack_count == 1
    assert objects.read(third[0], b"blob") == b"third"
    assert [refused(objects, oid) for oid in (*first, *second)] == ["object_missing"] * 2


def test_a_damaged_offset_does_not_keep_other_packs_from_being_merged(bare: Bare):
    oids = [bare.put(b"data %d" % number)[0] for number in range(3)]
    (hurt,) = [name for name in bare.packs() if index(bare, name) == [oids[0]]]
    # It says that it is the seventh of the offsets above two gibibytes, of which there are none.
    bare.overwrite(bare.path(hurt, b".idx"), 8 + 1024 + 24, b"\x80\0\0\7")
    assert merge_packs(bare.pack_dir) == 2
    objects = opened(bare)
    assert [oid in objects for oid in oids] == [False, True, True]
    assert objects.pack_count == 2


def test_what_is_known_of_many_is_what_is_known_of_one(bare: Bare, monkeypatch: pytest.MonkeyPatch):
    oids = [bare.put(b"data %d" % number)[0] for number in range(30)]
    loose = bare.put_loose(b"loose")
    objects = opened(bare)
    objects.distrust(oids[3])
    (hurt,) = [name for name in bare.packs() if index(bare, name) == [oids[4]]]
    bare.overwrite(bare.path(hurt, b".pack"), 14, b"junk")
    objects.distrust(oids[4])
    looks: list[bytes] = []
    real = PackIndex.find
    monkeypatch.setattr(PackIndex, "find", lambda self, oid: looks.append(oid) or real(self, oid))
    known = objects.known()
    # Two that are doubted are looked at; of the others nobody looks into thirty packs.
    assert [known(oid) for oid in oids] == [number != 4 for number in range(30)]
    assert set(looks) == {oids[3], oids[4]}
    assert [known(loose), known(bytes(20))] == [True, False]


def index(bare: Bare, name: bytes) -> list[bytes]:
    return PackIndex(bare.path(name, b".idx")).oids()


def test_an_index_that_could_not_be_read_is_tried_again(bare: Bare):
    oid = bare.put(b"data")[0]
    path = bare.path(bare.packs()[0], b".idx")
    with open(path, "rb") as file:
        whole = file.read()
    bare.overwrite(path, 0, b"junk")
    objects = settled(bare)
    assert oid not in objects
    bare.overwrite(path, 0, whole)
    objects.refresh()
    assert objects.read(oid, b"blob") == b"data"


def settled(bare: Bare) -> ObjectStore:
    """Open a store whose folder of packs has not changed for so long that it is not listed twice."""
    os.utime(bare.pack_dir, ns=(1_000_000_000, 1_000_000_000))
    return opened(bare)


def test_a_folder_that_has_not_changed_is_not_listed_again(bare: Bare):
    bare.put(b"data")
    objects = settled(bare)
    other = bare.put(b"other")[0]
    os.utime(bare.pack_dir, ns=(1_000_000_000, 1_000_000_000))
    objects.refresh()
    assert other not in objects
    os.utime(bare.pack_dir)
    objects.refresh()
    assert other in objects


def test_packs_come_and_go_beside_a_reader(bare: Bare):
    objects = opened(bare)
    oids = [bare.put(b"data %d" % number)[0] for number in range(3)]
    assert [objects.read(oid, b"blob") for oid in oids] == [b"data %d" % number for number in range(3)]
    before = objects.fingerprint()
    merged = bare.put(*[b"data %d" % number for number in range(3)])
    keep = next(name for name in bare.packs() if len(index(bare, name)) == 3)
    for name in bare.packs():
        if name != keep:
            os.unlink(bare.path(name, b".idx"))
            os.unlink(bare.path(name, b".pack"))
    assert [objects.read(oid, b"blob") for oid in merged] == [b"data %d" % number for number in range(3)]
    assert objects.fingerprint() != before
    assert objects.pack_count == 1


def test_an_index_without_its_pack_vouches_for_nothing(bare: Bare):
    oid = bare.put(b"data")[0]
    os.unlink(bare.path(bare.packs()[0], b".pack"))
    objects = opened(bare)
    assert oid not in objects
    assert refused(objects, oid) == "object_missing"


def test_suspects_are_shared_between_a_stores_readers(bare: Bare):
    oid = bare.put(b"data")[0]
    one = opened(bare)
    other = ObjectStore(bare.folder, one.suspects)
    other.refresh()
    path = bare.path(bare.packs()[0], b".pack")
    bare.overwrite(path, 14, b"\xff\xff")
    assert refused(other, oid) == "store_damaged"
    assert oid not in one
    writer = one.writer()
    assert writer.add(b"blob", b"data") == oid
    assert writer.object_count == 1
    writer.abort()


def plain_pack(bare: Bare, data: bytes) -> bytes:
    """Put down a pack of one small blob as PackWriter does, but not durably, which takes its time."""
    oid, entry = hash_object(b"blob", data), bytes([3 << 4 | len(data)]) + zlib.compress(data, 1)
    body = struct.pack(">4sII", b"PACK", 2, 1) + entry
    checksum = hashlib.sha1(body, usedforsecurity=False).digest()
    stem = bare.path(b"pack-" + checksum.hex().encode(), b"")
    for ending, content in (
        (b".pack", body + checksum),
        (b".idx", format_index([note(oid, zlib.crc32(entry), 12)], checksum)),
    ):
        with open(stem + ending, "xb") as file:
            file.write(content)
    return oid


def test_thousands_of_packs_with_few_open_files(bare: Bare):
    oids = [plain_pack(bare, b"%d" % number) for number in range(2000)]
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 60, limit[1]))
    try:
        objects = opened(bare)
        before = len(os.listdir("/proc/self/fd"))
        assert objects.pack_count == 2000
        for number, oid in enumerate(oids):
            assert objects.read(oid, b"blob") == b"%d" % number
        assert len(os.listdir("/proc/self/fd")) - before <= 32
        objects.close()
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def test_a_large_index_is_mapped_and_let_go(bare: Bare):
    oid = bare.put(*[b"%d" % number for number in range(12_000)])[5]
    objects = opened(bare)
    assert os.path.getsize(bare.path(bare.packs()[0], b".idx")) > 1 << 18
    assert objects.read(oid, b"blob") == b"5"
    before = len(os.listdir("/proc/self/fd"))
    objects.close()
    assert len(os.listdir("/proc/self/fd")) < before


@needs_maps
def test_an_index_at_rest_takes_no_memory(bare: Bare):
    oids = bare.put(*[b"%d" % number for number in range(12_000)])
    objects = opened(bare)
    index = bare.path(bare.packs()[0], b".idx")
    assert all(oid in objects for oid in oids)
    assert resident_bytes(index) > 12_000 * 20
    objects.rest()
    assert resident_bytes(index) == 0
    assert all(oid in objects for oid in oids)
    assert objects.read(oids[5], b"blob") == b"5"


def test_a_process_without_descriptors_does_not_call_the_store_damaged(bare: Bare):
    oid = bare.put(b"data")[0]

    def work() -> None:
        late, early = bare.objects(), settled(bare)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        assert refused(early, oid) == "too_many_files"
        with pytest.raises(DomainError, match="too_many_files"):
            late.refresh()
        assert early.suspects == late.suspects == set()
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        assert early.read(oid, b"blob") == late.read(oid, b"blob") == b"data"

    assert in_child(work) == 0


def test_an_index_is_not_given_up_for_want_of_descriptors(bare: Bare):
    oids = bare.put(*[b"%d" % number for number in range(12_000)])
    os.utime(bare.pack_dir, ns=(1_000_000_000, 1_000_000_000))

    def work() -> None:
        # One descriptor: enough to list the packs, not to map a large index.
        objects = bare.objects()
        free = os.open(os.devnull, os.O_RDONLY)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        with pytest.raises(DomainError, match="too_many_files"):
            objects.refresh()
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        objects.refresh()
        assert all(oid in objects for oid in oids)

    assert in_child(work) == 0


def test_a_pack_that_may_not_be_read_is_missing(short_dir: Path):
    os.chmod(short_dir, 0o777)
    with somebody():
        bare = Bare(os.fsencode(short_dir))
        oid, other = bare.put(b"data")[0], bare.put(b"other")[0]
        (name,) = [name for name in bare.packs() if index(bare, name) == [oid]]
        os.chmod(bare.path(name, b".pack"), 0)
        objects = opened(bare)
        assert refused(objects, oid) == "object_missing"
        assert objects.read(other, b"blob") == b"other"


def test_a_folder_of_packs_that_is_gone(bare: Bare):
    objects = bare.objects()
    os.rmdir(bare.pack_dir)
    with pytest.raises(DomainError, match="io_error"):
        objects.refresh()


def test_a_blob_is_given_in_pieces_only_when_all_is_right(bare: Bare):
    data = noise(3_000_000)
    oid = bare.put(data)[0]
    (name,) = bare.packs()
    bare.overwrite(bare.path(name, b".pack"), 2_900_000, b"damage")
    with pytest.raises(DomainError, match="store_damaged"):
        next(opened(bare).chunks(oid))
    assert hash_object(b"blob", data) == oid
