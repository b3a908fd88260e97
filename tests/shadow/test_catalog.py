"""The stores of a checkpoint directory: found whatever they are called, and never another worktree's."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from ckpt_protocol.structs import Worktree, from_wire, to_wire
from ckptd.errors import DomainError
from ckptd.shadow.store.catalog import OpenedFolder, ShadowCatalog
from ckptd.shadow.store.layout import folder_name
from ckptd.shadow.store.settings import Settings
from support.bare import Bare
from support.tiny_disk import tiny_disk
from support.worktrees import Desk, in_child, somebody, verify

pytestmark = pytest.mark.core


NOBODY = 65534


class Shelf:
    """A checkpoint directory, and worktrees beside it."""

    def __init__(self, place: Path) -> None:
        self.place = os.fsencode(place)
        self.dir = os.path.join(self.place, b"cd")
        self.work = os.path.join(self.place, b"w")
        os.mkdir(self.dir)
        os.mkdir(self.work)
        self.catalog = self.fresh()

    def fresh(self) -> ShadowCatalog:
        """A catalog as the next daemon has it."""
        return ShadowCatalog(Settings(home=b"/none/home", temporary=b"/none/tmp"))

    def worktree(self, name: bytes) -> bytes:
        path = os.path.join(self.work, name)
        os.makedirs(path)
        return path

    def open(self, path: bytes, *, create: bool = True, force: bool = False) -> OpenedFolder:
        opened = self.catalog.open(self.dir, Worktree(path=to_wire(path)), create=create, force=force)
        opened.writer.close()
        opened.reader.close()
        return opened

    def refused(self, path: bytes, *, create: bool = True) -> str:
        before = sorted(os.listdir(self.dir))
        with pytest.raises(DomainError) as caught:
            self.open(path, create=create)
        assert sorted(os.listdir(self.dir)) == before
        return caught.value.kind

    def listed(self) -> dict[bytes, tuple[bytes, str]]:
        return {
            from_wire(one.path): (from_wire(one.store), one.state) for one in self.catalog.list(self.dir).workspaces
        }

    def state(self, path: bytes) -> str:
        return self.listed()[path][1]

    def prunable(self) -> list[bytes]:
        return [from_wire(one.path) for one in self.catalog.dead(self.dir).pruned]


@pytest.fixture
def shelf(short_dir: Path) -> Shelf:
    return Shelf(short_dir)


NAMES = [b"plain", b"x" * 255, b"caf\xe9", b"two\nlines", b" ", b".hidden", b".new-0123456789abcdef", b"_"]
NAMES += [b".old-0123456789abcdef-x", b".lock", b"-", b"\xff" * 200, "日本".encode() * 30]


@pytest.mark.parametrize("name", NAMES)
def test_a_worktree_of_any_name(shelf: Shelf, name: bytes):
    path = shelf.worktree(name)
    folder, created, *_ = shelf.open(path)
    assert created
    verify(folder)
    # The next daemon sweeps first, and finds it again, by its name and by its metadata alone.
    shelf.catalog = shelf.fresh()
    assert shelf.open(path, create=False).folder == folder
    assert shelf.listed() == {path: (folder, "ok")}
    assert shelf.catalog.find(shelf.dir, path) == (folder, 0)
    moved = os.path.join(shelf.dir, b"renamed by hand")
    os.rename(folder, moved)
    assert shelf.open(path).folder == moved
    assert shelf.open(path).created is False
    assert shelf.listed() == {path: (moved, "ok")}
    shelf.catalog.delete(shelf.dir, moved)
    assert os.listdir(shelf.dir) == []


def test_two_worktrees_of_one_base_name(shelf: Shelf):
    one, other = shelf.worktree(b"a/proj"), shelf.worktree(b"b/proj")
    assert shelf.open(one).folder != shelf.open(other).folder
    assert set(shelf.listed()) == {one, other}


def test_the_name_of_a_folder_is_a_hint_only(shelf: Shelf):
    one, other = shelf.worktree(b"one"), shelf.worktree(b"other")
    folder = shelf.open(one).folder
    # A store that somebody has put where another worktree's would be.
    squatter = os.path.join(shelf.dir, folder_name(other))
    os.rename(folder, squatter)
    opened = shelf.open(other)
    assert opened.created
    assert opened.folder not in (folder, squatter)
    assert opened.folder == os.path.join(shelf.dir, folder_name(other, 1))
    assert shelf.open(one).folder == squatter
    assert shelf.open(other).folder == opened.folder


def test_a_store_without_readable_metadata_is_not_replaced(shelf: Shelf):
    path = shelf.worktree(b"w")
    folder = shelf.open(path).folder
    metadata = os.path.join(folder, b"ckpt", b"metadata.json")
    with open(metadata, "wb") as file:
        file.write(b"junk")
    assert shelf.refused(path) == "store_damaged"
    result = shelf.catalog.list(shelf.dir)
    assert (result.workspaces, [from_wire(one) for one in result.damaged]) == ([], [folder])
    other = shelf.worktree(b"other")
    assert shelf.open(other).created
    with pytest.raises(DomainError, match="store_damaged"):
        shelf.catalog.delete(shelf.dir, folder)


FOREIGN = [
    ({"format": 2}, "store_format"),
    ({"format": 2, "ino": None, "created": {"at": 1}, "extra": []}, "store_format"),
    ({"format": "two"}, "store_damaged"),
    ({"created": 1}, "store_damaged"),
]


@pytest.mark.parametrize(("changes", "kind"), FOREIGN)
@pytest.mark.parametrize("name", [b"w", b"caf\xe9"])
def test_a_store_of_another_format_is_no_reason_for_a_second_one(shelf: Shelf, changes, kind: str, name: bytes):
    path, other = shelf.worktree(name), shelf.worktree(b"other")
    moved = os.path.join(shelf.dir, b"renamed by hand")
    os.rename(shelf.open(path).folder, moved)
    metadata = os.path.join(moved, b"ckpt", b"metadata.json")
    rewrite(metadata, changes)
    before = contents(moved)
    assert shelf.refused(path) == kind
    assert shelf.refused(path, create=False) == kind
    with pytest.raises(DomainError, match=f"^{kind}: "):
        shelf.catalog.find(shelf.dir, path)
    assert contents(moved) == before
    assert [from_wire(one) for one in shelf.catalog.list(shelf.dir).damaged] == [moved]
    # It is in nobody else's way, and nobody's any more when it does not say whose it is.
    assert shelf.open(other).created
    rewrite(metadata, {"worktree": 7})
    assert shelf.open(path).created


def test_a_store_that_can_be_read_goes_before_one_that_cannot(shelf: Shelf):
    path = shelf.worktree(b"w")
    folder = shelf.open(path).folder
    copy = os.path.join(shelf.dir, b"a copy")
    shutil.copytree(folder, copy)
    rewrite(os.path.join(copy, b"ckpt", b"metadata.json"), {"format": 2})
    moved = os.path.join(shelf.dir, b"b moved")
    os.rename(folder, moved)
    assert shelf.open(path).folder == moved


def rewrite(metadata: bytes, changes: dict[str, object]) -> None:
    with open(metadata, encoding="utf-8") as file:
        told = json.load(file)
    with open(metadata, "w", encoding="utf-8") as file:
        json.dump({**told, **changes}, file)


def contents(folder: bytes) -> dict[bytes, bytes]:
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                found[os.path.join(place, name)] = file.read()
    return found


def test_what_is_not_tracked_makes_nothing(shelf: Shelf):
    path = shelf.worktree(b"w")
    assert shelf.refused(path, create=False) == "not_tracked"
    assert shelf.refused(os.path.join(shelf.work, b"none"), create=False) == "not_tracked"
    assert shelf.catalog.find(shelf.dir, path) is None
    missing = os.path.join(shelf.place, b"no such directory")
    assert shelf.catalog.list(missing).workspaces == []
    assert shelf.catalog.dead(missing).pruned == []
    with pytest.raises(DomainError, match="not_tracked"):
        shelf.catalog.open(missing, Worktree(path=to_wire(path)), create=False, force=False)
    assert not os.path.exists(missing)


def test_places_that_no_store_can_be_of(shelf: Shelf):
    path = shelf.worktree(b"w")
    os.symlink(b"w", os.path.join(shelf.work, b"link"))
    os.mkdir(os.path.join(path, b"below"))
    with open(os.path.join(path, b"file"), "wb"):
        pass
    assert shelf.refused(os.path.join(shelf.work, b"link")) == "bad_path"
    assert shelf.refused(os.path.join(shelf.work, b"link", b"below")) == "bad_path"
    assert shelf.refused(os.path.join(path, b"file")) == "not_a_directory"
    assert shelf.refused(os.path.join(path, b"none")) == "worktree_missing"
    assert shelf.refused(os.path.join(path, b"file", b"x")) == "not_a_directory"
    assert shelf.refused(shelf.dir) == "bad_path"
    folder = shelf.open(path).folder
    assert shelf.refused(folder) == "bad_path"
    assert shelf.refused(os.path.join(folder, b"ckpt")) == "bad_path"
    # The other way round is allowed: a worktree may hold the checkpoint directory.
    assert shelf.open(shelf.place).created


def test_states_of_worktrees(shelf: Shelf):
    paths = {name: shelf.worktree(b"d/" + name) for name in (b"ok", b"gone", b"file", b"link", b"deep/er")}
    paths[b"lone"] = shelf.worktree(b"e/lone")
    for path in paths.values():
        shelf.open(path)
    for name in (b"gone", b"file", b"link"):
        os.rmdir(paths[name])
    with open(paths[b"file"], "wb"):
        pass
    os.symlink(b"ok", paths[b"link"])
    shutil.rmtree(os.path.dirname(paths[b"deep/er"]))
    shutil.rmtree(os.path.dirname(paths[b"lone"]))
    with open(os.path.dirname(paths[b"lone"]), "wb"):
        pass
    states = {name: shelf.state(path) for name, path in paths.items()}
    # Gone is what a directory does not hold that is still there itself; all else may come back.
    assert states == {
        b"ok": "ok",
        b"gone": "missing",
        b"file": "unreachable",
        b"link": "unreachable",
        b"deep/er": "unreachable",
        b"lone": "unreachable",
    }
    assert shelf.prunable() == [paths[b"gone"]]
    unreachable = {from_wire(path) for path in shelf.catalog.dead(shelf.dir).unreachable}
    assert unreachable == {paths[name] for name, state in states.items() if state == "unreachable"}


def test_a_worktree_that_may_not_be_seen_is_not_gone(shelf: Shelf):
    path = shelf.worktree(b"closed/w")
    shelf.open(path)
    os.chmod(shelf.place, 0o755)
    for folder, _, _ in os.walk(shelf.dir):
        os.chmod(folder, 0o755)
        for name in os.listdir(folder):
            os.chmod(os.path.join(folder, name), 0o755)
            if os.geteuid() == 0:
                os.chown(os.path.join(folder, name), NOBODY, NOBODY)
    os.chmod(os.path.dirname(path), 0)
    with somebody():
        assert shelf.state(path) == "unreachable"
    os.chmod(os.path.dirname(path), 0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("how", ["folder", "link"])
def test_a_store_that_another_user_has_put_there_is_not_believed(shelf: Shelf, how: str):
    path = shelf.worktree(b"w")
    folder = shelf.open(path).folder
    if how == "link":
        os.rename(folder, os.path.join(shelf.work, b"crafted"))
        os.symlink(os.path.join(shelf.work, b"crafted"), folder)
    os.chown(folder, NOBODY, NOBODY, follow_symlinks=False)
    for name in (folder, os.path.join(shelf.dir, b"other name")):
        with pytest.raises(DomainError, match="foreign_owner"):
            shelf.open(path, create=False)
        listed = shelf.catalog.list(shelf.dir)
        assert (listed.workspaces, len(listed.damaged)) == ([], 1)
        if name == folder:
            os.rename(folder, os.path.join(shelf.dir, b"other name"))


def test_a_volume_that_is_not_mounted_is_not_gone(shelf: Shelf):
    volume = shelf.worktree(b"volume")
    with tiny_disk(volume):
        path = shelf.worktree(b"volume/w")
        shelf.open(path)
        assert shelf.state(path) == "ok"
        shutil.rmtree(path)
        assert shelf.state(path) == "missing"
        os.mkdir(path)
    assert shelf.state(path) == "unreachable"
    assert shelf.prunable() == []


def test_a_list_is_sorted_and_counts(desk: Desk):
    desk.write(b"f", b"1")
    desk.save("one")
    desk.write(b"f", b"2")
    desk.save("two")
    listed = desk.catalog().list(desk.checkpoint_dir).workspaces
    assert [(from_wire(one.path), one.checkpoints, one.state) for one in listed] == [(desk.root, 2, "ok")]
    assert listed[0].bytes > 4096
    assert desk.catalog().find(desk.checkpoint_dir, desk.root) == (desk.folder, 2)
    desk.git("pack-refs", "--all")
    assert desk.catalog().find(desk.checkpoint_dir, desk.root) == (desk.folder, 2)


def test_what_else_lies_in_the_directory_is_left_alone(shelf: Shelf):
    path = shelf.worktree(b"w")
    folder = shelf.open(path).folder
    for name in (b"somebody's", b".new-mine", b".config"):
        os.makedirs(os.path.join(shelf.dir, name, b"data"))
    for name in (b"README", b".lock"):
        with open(os.path.join(shelf.dir, name), "wb"):
            pass
    os.symlink(b"nowhere", os.path.join(shelf.dir, b"dangling"))
    result = shelf.catalog.list(shelf.dir)
    assert [from_wire(one.store) for one in result.workspaces] == [folder]
    assert result.damaged == []
    for name in (b"somebody's", b".new-mine", b"README", b"dangling", b"none", b"."):
        with pytest.raises(DomainError):
            shelf.catalog.delete(shelf.dir, os.path.join(shelf.dir, name))
    assert len(os.listdir(shelf.dir)) == 7


def test_only_stores_of_the_place_are_deleted(shelf: Shelf):
    folder = shelf.open(shelf.worktree(b"w")).folder
    elsewhere = Bare(shelf.work).folder
    os.symlink(elsewhere, os.path.join(shelf.dir, b"link"))
    for wrong in (
        elsewhere,
        os.path.join(shelf.dir, b"link"),
        os.path.join(folder, b"ckpt"),
        shelf.dir,
        shelf.dir + b"/x/../" + os.path.basename(folder),
        shelf.dir + b"/..",
        folder + b"/",
    ):
        with pytest.raises(DomainError):
            shelf.catalog.delete(shelf.dir, wrong)
    assert os.path.isdir(folder)
    assert os.path.isdir(elsewhere)


def test_rests_are_no_stores_and_go_with_the_next_daemon(shelf: Shelf):
    path = shelf.worktree(b"w")
    folder = shelf.open(path).folder
    rests = [os.path.join(shelf.dir, name) for name in (b".new-0123456789abcdef", b".old-0123456789abcdef-w_1")]
    for rest in rests:
        shutil.copytree(folder, rest)
    os.rename(folder, os.path.join(shelf.dir, b"away"))
    shelf.catalog.delete(shelf.dir, os.path.join(shelf.dir, b"away"))
    assert shelf.listed() == {}
    assert shelf.catalog.find(shelf.dir, path) is None
    shelf.catalog = shelf.fresh()
    assert shelf.listed() == {}
    with pytest.raises(DomainError, match="not_tracked"):
        shelf.open(path, create=False)
    assert os.listdir(shelf.dir) == []


def test_a_delete_that_is_killed_half_way_is_ended_by_the_next_daemon(shelf: Shelf):
    path = shelf.worktree(b"w")
    folder = shelf.open(path).folder
    # Enough to be still at it when the end comes.
    for number in range(50):
        os.mkdir(os.path.join(folder, b"objects", b"%02d" % number))
        for name in range(40):
            with open(os.path.join(folder, b"objects", b"%02d" % number, b"%d" % name), "wb"):
                pass

    def work() -> None:
        parent = os.getpid()
        if os.fork() == 0:
            while os.path.exists(folder):
                pass
            os.kill(parent, signal.SIGKILL)
            os._exit(0)
        shelf.fresh().delete(shelf.dir, folder)

    status = in_child(work)
    assert os.WIFSIGNALED(status) or status == 0
    assert shelf.listed() == {}
    assert not os.path.exists(folder)
    assert shelf.open(path).created
    shelf.catalog = shelf.fresh()
    shelf.open(path)
    assert os.listdir(shelf.dir) == [os.path.basename(folder)]


def test_a_store_with_read_only_files_is_deleted(shelf: Shelf):
    folder = shelf.open(shelf.worktree(b"w")).folder
    for path, folders, files in os.walk(folder, topdown=False):
        for name in (*files, *folders):
            os.chmod(os.path.join(path, name), 0o444 if name in files else 0o555)
    shelf.catalog.delete(shelf.dir, folder)
    assert os.listdir(shelf.dir) == []


def test_one_store_that_cannot_be_listed_does_not_hide_the_others(shelf: Shelf):
    os.chmod(shelf.place, 0o777)
    for folder in (shelf.dir, shelf.work):
        os.chmod(folder, 0o777)
    with somebody():
        bad, good = shelf.worktree(b"bad"), shelf.worktree(b"good")
        hurt = shelf.open(bad).folder
        shelf.open(good)
        os.chmod(os.path.join(hurt, b"refs", b"checkpoints"), 0)
        result = shelf.catalog.list(shelf.dir)
        assert [from_wire(one.path) for one in result.workspaces] == [good]
        assert [from_wire(one) for one in result.damaged] == [hurt]
        os.chmod(os.path.join(hurt, b"refs", b"checkpoints"), 0o700)
        shelf.catalog.delete(shelf.dir, hurt)
