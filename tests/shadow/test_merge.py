"""Merging packs: fewer of them, and nothing is ever missing."""

import os

import pytest

from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.objects.deflate import deflate
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.objects.store import ObjectStore
from support.merged import merge_packs, wait_at_once
from support.worktrees import run_git, verify

pytestmark = pytest.mark.core


@pytest.fixture
def folder(tmp_path):
    path = os.fsencode(tmp_path) + b"/store.git"
    run_git("init", "-q", "--bare", path)
    return path


def pack(folder, *blobs):
    writer = ObjectStore(folder).writer()
    oids = [writer.add(b"blob", blob) for blob in blobs]
    assert writer.finish() is not None
    return oids


def packs(folder):
    return sorted(name for name in os.listdir(folder + b"/objects/pack") if name.endswith(b".pack"))


def assert_readable(folder, blobs, store=None):
    store = store or ObjectStore(folder)
    for blob in blobs:
        assert store.read(hash_object(b"blob", blob), b"blob") == blob


BLOBS = [b"%d\n" % number * (number + 1) for number in range(20)]


def test_many_become_one_and_hold_the_same(folder):
    for blob in BLOBS:
        pack(folder, blob)
    assert merge_packs(folder + b"/objects/pack") == len(BLOBS)
    assert len(packs(folder)) == 1
    assert_readable(folder, BLOBS)
    verify(folder)


def test_entries_are_copied_and_not_compressed_again(folder):
    for blob in BLOBS:
        pack(folder, blob)
    merge_packs(folder + b"/objects/pack")
    with open(folder + b"/objects/pack/" + packs(folder)[0], "rb") as file:
        data = file.read()
    assert all(deflate(blob) in data for blob in BLOBS)


def test_what_was_only_wrapped_up_is_deflated(folder):
    small, large = b"line\n" * 3000, b"line\n" * 4000
    for blob in (small, large, *BLOBS):
        writer = ObjectStore(folder).writer(plain_bytes=1 << 20)
        writer.add(b"blob", blob)
        writer.finish()
    merge_packs(folder + b"/objects/pack")
    with open(folder + b"/objects/pack/" + packs(folder)[0], "rb") as file:
        data = file.read()
    assert all(deflate(blob) in data for blob in (small, large, *BLOBS))
    assert_readable(folder, [small, large, *BLOBS])
    verify(folder)


def test_a_store_that_was_open_before_still_finds_everything(folder):
    for blob in BLOBS:
        pack(folder, blob)
    before = ObjectStore(folder)
    assert_readable(folder, BLOBS[:1], before)
    merge_packs(folder + b"/objects/pack")
    assert_readable(folder, BLOBS, before)


def test_an_object_in_two_packs_comes_once(folder):
    pack(folder, b"one", b"two")
    writer = ObjectStore(folder).writer()
    writer._exists = lambda _oid: False
    writer.add(b"blob", b"two")
    writer.add(b"blob", b"three")
    writer.finish()
    assert merge_packs(folder + b"/objects/pack") == 2
    assert_readable(folder, [b"one", b"two", b"three"])
    verify(folder)


@pytest.mark.parametrize("what", ["keep", "damaged"])
def test_a_kept_or_damaged_pack_is_left_alone(folder, what):
    pack(folder, b"left alone" * 20)
    special = packs(folder)[0]
    path = folder + b"/objects/pack/" + special
    if what == "keep":
        open(path[:-5] + b".keep", "w").close()
    else:
        os.chmod(path, 0o600)
        with open(path, "r+b") as file:
            file.seek(16)
            file.write(b"\xff")
    for blob in BLOBS[:4]:
        pack(folder, blob)
    assert merge_packs(folder + b"/objects/pack") == 4
    assert special in packs(folder)
    assert_readable(folder, BLOBS[:4])


def test_deltas_are_copied_as_deltas(folder):
    base = b"".join(b"line %d\n" % number for number in range(500))
    pack(folder, base)
    pack(folder, base + b"more\n")
    tips = b"\n".join(hash_object(b"blob", blob).hex().encode() for blob in (base, base + b"more\n"))
    run_git("--git-dir", folder, "pack-objects", "-q", folder + b"/objects/pack/pack", data=tips + b"\n")
    deltas = max(packs(folder), key=lambda name: os.stat(folder + b"/objects/pack/" + name).st_mtime_ns)
    for name in packs(folder):
        if name != deltas:
            os.unlink(folder + b"/objects/pack/" + name)
            os.unlink(folder + b"/objects/pack/" + name[:-5] + b".idx")
    size = os.path.getsize(folder + b"/objects/pack/" + deltas)
    for blob in BLOBS[:4]:
        pack(folder, blob)
    assert merge_packs(folder + b"/objects/pack") == 5
    assert os.path.getsize(folder + b"/objects/pack/" + packs(folder)[0]) < size + 200
    assert_readable(folder, [base, base + b"more\n", *BLOBS[:4]])
    verify(folder)


def test_an_index_over_many_packs_goes_first(folder):
    for blob in BLOBS[:4]:
        pack(folder, blob)
    run_git("--git-dir", folder, "multi-pack-index", "write")
    merge_packs(folder + b"/objects/pack")
    assert not os.path.exists(folder + b"/objects/pack/multi-pack-index")
    verify(folder)


class Died(Exception):
    pass


@pytest.mark.parametrize("step", ["merged", "pack-hidden", "packs-gone"])
def test_a_death_at_any_point_loses_nothing(folder, step):
    for blob in BLOBS:
        pack(folder, blob)

    def die(name, _path):
        if name == step:
            raise Died

    end = listen(die)
    with pytest.raises(Died):
        merge_packs(folder + b"/objects/pack")
    end()
    assert_readable(folder, BLOBS)
    verify(folder)
    merge_packs(folder + b"/objects/pack")
    assert_readable(folder, BLOBS)
    verify(folder)


def test_saves_keep_the_number_of_packs_small(desk, monkeypatch):
    wait_at_once(monkeypatch)
    for number in range(120):
        desk.write(b"file", b"%d" % number)
        desk.save()
    assert len(packs(desk.folder if hasattr(desk, "folder") else desk.repo.folder)) < 60
    assert len(desk.list(limit=1000).checkpoints) == 120
    assert desk.cat("#7", b"file") == b"6"
