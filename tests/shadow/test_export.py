"""Exports: everything or nothing appears at the destination, with names, links and bits as they were saved."""

import errno
import os
import subprocess
import tarfile

import pytest

from ckpt_protocol.checkpoint import ExportParams, ExportResult
from ckpt_protocol.structs import to_wire
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.store import stepping
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.destination import Folder, take_name
from ckptd.shadow.store.exporting import Exporting
from support.faulty_stores import Gate
from support.poll import until
from support.tiny_disk import tiny_disk
from support.worktrees import Desk, somebody, to_the_end

pytestmark = pytest.mark.core

ODD = b"a\nb\xff\"'"


def export(
    desk: Desk, destination: bytes, id: str = "HEAD", *paths: bytes, caller: Caller | None = None
) -> ExportResult:
    fields = {"destination": to_wire(destination), "id": id, "paths": [to_wire(path) for path in paths]}
    return to_the_end(desk.reader.export(ExportParams(**desk.common(), **fields), caller or Caller("test")))


def snapshot(root: bytes) -> dict[bytes, tuple]:
    found = {}
    for top, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(top, name)
            stat = os.lstat(path)
            found[os.path.relpath(path, root)] = (stat.st_mode & 0o777, content_of(path))
    return found


def content_of(path: bytes) -> bytes | None:
    if os.path.islink(path):
        return os.readlink(path)
    return None if os.path.isdir(path) else open_bytes(path)


def open_bytes(path: bytes) -> bytes:
    with open(path, "rb") as file:
        return file.read()


@pytest.fixture
def planted(desk: Desk) -> Desk:
    desk.write(b"src/app.py", b"print()\n" * 1000)
    desk.write(b"src/" + ODD, b"odd")
    desk.write(b"run", b"#!/bin/sh\n", perm=0o755)
    desk.write(b"secret", b"s", perm=0o600)
    desk.write(b"suid", b"s", perm=0o4755)
    desk.mkdir(b"empty", perm=0o700)
    desk.link(b"link", b"../nowhere")
    desk.save("x")
    return desk


def test_a_directory_is_what_was_saved(planted):
    place = planted.base + b"/out"
    expected = snapshot(planted.root)
    result = export(planted, place)
    assert snapshot(place) == expected
    assert (result.files, result.bytes) == (6, 8000 + 3 + 10 + 1 + 1)
    assert os.lstat(place + b"/suid").st_mode & 0o7777 == 0o755
    assert sorted(os.listdir(planted.base)) == [b"cd", b"home", b"out", b"ws"]


def test_it_tells_how_far_it_is(planted):
    told = []
    export(planted, planted.base + b"/out", caller=Caller("test", progress=lambda *words: told.append(words)))
    assert told[-1] == ("export", 6, 6, 8000 + 3 + 10 + 1 + 1)
    assert [done for _, done, _, _ in told] == sorted(done for _, done, _, _ in told)


def test_a_tar_is_what_was_saved(planted):
    place = planted.base + b"/out.tar"
    export(planted, place)
    target = planted.base + b"/unpacked"
    os.mkdir(target)
    subprocess.run(["tar", "-xpf", place, "-C", target], check=True)
    assert snapshot(target) == snapshot(planted.root)
    with tarfile.open(os.fsdecode(place)) as tar:
        assert {member.uid for member in tar} == {0}
    assert os.lstat(place).st_size % 10240 == 0


def test_long_names_go_into_a_tar(desk):
    name = b"d" * 200 + b"/" + b"f" * 250
    desk.write(name, b"1")
    desk.link(b"l", b"t" * 3000)
    desk.save()
    export(desk, desk.base + b"/o.tar")
    os.mkdir(desk.base + b"/u")
    subprocess.run(["tar", "-xf", desk.base + b"/o.tar", "-C", desk.base + b"/u"], check=True)
    assert open_bytes(desk.base + b"/u/" + name) == b"1"
    assert os.readlink(desk.base + b"/u/l") == b"t" * 3000


def test_some_paths_with_the_directories_above_them(planted):
    place = planted.base + b"/out"
    export(planted, place, "HEAD", b"src/app.py", b"run", b"empty")
    assert sorted(snapshot(place)) == [b"empty", b"run", b"src", b"src/app.py"]


@pytest.mark.parametrize(("path", "kind"), [(b"nothing", "path_not_in_checkpoint"), (b"way/app.py", "beyond_symlink")])
def test_a_path_that_is_not_there_leaves_nothing(planted, path, kind):
    planted.link(b"way", b"src")
    planted.save()
    with pytest.raises(DomainError, match=kind):
        export(planted, planted.base + b"/out", "HEAD", b"run", path)
    assert sorted(os.listdir(planted.base)) == [b"cd", b"home", b"ws"]


@pytest.mark.parametrize("name", [b"out", b"out.tar"])
def test_what_is_there_stays(planted, name):
    place = planted.base + b"/" + name
    with open(place, "wb") as file:
        file.write(b"mine")
    with pytest.raises(DomainError, match="destination_exists"):
        export(planted, place)
    assert open_bytes(place) == b"mine"
    os.unlink(place)
    os.symlink(b"elsewhere", place)
    with pytest.raises(DomainError, match="destination_exists"):
        export(planted, place)
    assert os.readlink(place) == b"elsewhere"


def test_an_empty_directory_may_be_filled_and_another_may_not(planted):
    place = planted.base + b"/out"
    os.mkdir(place)
    export(planted, place)
    assert b"run" in os.listdir(place)
    with pytest.raises(DomainError, match="destination_exists"):
        export(planted, place)


def test_a_place_that_cannot_be_made_is_named(planted):
    with pytest.raises(DomainError) as caught:
        export(planted, planted.base + b"/no/such/out")
    assert "no/such/out" in caught.value.message
    with pytest.raises(DomainError):
        export(planted, planted.root + b"/run/out.tar")


def test_called_off_leaves_nothing(planted):
    caller = Caller("test")
    caller.cancelled.set()
    for name in (b"/out", b"/out.tar"):
        with pytest.raises(DomainError, match="cancelled"):
            export(planted, planted.base + name, caller=caller)
    assert sorted(os.listdir(planted.base)) == [b"cd", b"home", b"ws"]


def test_closed_half_way_leaves_nothing(planted):
    fields = {"destination": to_wire(planted.base + b"/out"), "id": "HEAD"}
    run = planted.reader.export(ExportParams(**planted.common(), **fields), Caller("test"))
    next(run._run)
    run.close()
    run.close()
    assert sorted(os.listdir(planted.base)) == [b"cd", b"home", b"ws"]


def test_what_is_under_way_when_the_store_is_closed_leaves_nothing(planted, monkeypatch):
    monkeypatch.setattr(stepping, "_STEP_S", -1.0)
    for name in (b"/out", b"/out.tar"):
        fields = {"destination": to_wire(planted.base + name), "id": "HEAD"}
        run = planted.reader.export(ExportParams(**planted.common(), **fields), Caller("test"))
        until(lambda run=run: run.step() is not None or run._files == 3)
    assert len(os.listdir(planted.base)) == 5
    planted.close()
    until(lambda: sorted(os.listdir(planted.base)) == [b"cd", b"home", b"ws"])


class StuckFolder(Folder):
    """A directory on a mount that does not answer: the first write waits at a gate, and so does the sync."""

    gate = Gate()
    syncing = Gate()

    def write(self, data: bytes) -> None:
        self.gate.wait()
        super().write(data)

    def sync(self) -> None:
        self.syncing.wait()
        super().sync()


def stuck(desk: Desk, place: bytes) -> Exporting:
    def make(path: bytes, _time_s: int) -> StuckFolder:
        return StuckFolder(path, path + b".tmp")

    params = ExportParams(**desk.common(), destination=to_wire(place), id="HEAD")
    return Exporting(desk.reader._lookup, desk.reader._objects, params, Asker(Caller("test")), make)


def test_it_is_done_when_it_is_on_disk_and_one_that_is_called_off_before_gets_no_name(planted, monkeypatch):
    monkeypatch.setattr(StuckFolder, "gate", Gate())
    monkeypatch.setattr(StuckFolder, "syncing", Gate())
    StuckFolder.gate.open()
    run = stuck(planted, planted.base + b"/out")
    until(lambda: run.step() is not None or StuckFolder.syncing.reached.is_set())
    assert run.step() is None
    assert run.is_waiting
    run.close()
    StuckFolder.syncing.open()
    until(lambda: sorted(os.listdir(planted.base)) == [b"cd", b"home", b"ws"])


def test_a_destination_that_does_not_answer_holds_up_no_other_read(planted, monkeypatch):
    monkeypatch.setattr(StuckFolder, "gate", Gate())
    run = stuck(planted, planted.base + b"/out")
    until(lambda: run.step() is not None or StuckFolder.gate.reached.is_set())
    for _ in range(20):
        assert run.step() is None
        # The thread of the reader is free, and knows that there is no hurry.
        assert run.is_waiting
        assert planted.cat("HEAD", b"run") == b"#!/bin/sh\n"
    run.close()
    assert sorted(os.listdir(planted.base)) == [b"cd", b"home", b"out.tmp", b"ws"]
    StuckFolder.gate.open()
    until(lambda: sorted(os.listdir(planted.base)) == [b"cd", b"home", b"ws"])


def test_lost_content_is_an_error_and_leaves_nothing(planted):
    planted.damaged = True
    planted.close()
    for name in os.listdir(planted.folder + b"/objects/pack"):
        os.unlink(planted.folder + b"/objects/pack/" + name)
    with pytest.raises(DomainError):
        export(planted, planted.base + b"/out")
    assert sorted(os.listdir(planted.base)) == [b"cd", b"home", b"ws"]


@pytest.mark.parametrize("name", [b"out", b"out.tar"])
def test_a_disk_that_is_full_is_named_and_left_as_it_was(planted, name):
    for number in range(600):
        planted.write(b"much/%d" % number, b"%d" % number)
    planted.save()
    place = planted.base + b"/small"
    os.mkdir(place)
    with tiny_disk(place):
        with pytest.raises(DomainError, match="no_space"):
            export(planted, place + b"/" + name)
        assert os.listdir(place) == []


def test_a_destination_that_is_taken_in_the_last_moment_leaves_nothing_else(planted):
    """Directories that nobody may write to are taken away as well."""
    planted.mkdir(b"locked/below", perm=0o555)
    planted.write(b"locked/below/f", b"1")
    os.chmod(planted.path(b"locked"), 0o555)
    planted.save()
    place = planted.base + b"/there"
    os.mkdir(place)
    os.chmod(place, 0o777)
    planted.close()
    os.chmod(planted.path(b"locked"), 0o755)
    os.chmod(planted.path(b"locked/below"), 0o755)
    subprocess.run(["chown", "-R", "65534:65534", planted.base], check=os.geteuid() == 0)
    with somebody():
        fields = {"destination": to_wire(place + b"/out"), "id": "HEAD"}
        run = planted.reader.export(ExportParams(**planted.common(), **fields), Caller("test"))
        for _ in run._run:
            os.makedirs(place + b"/out", exist_ok=True)
            if run._files == 7:
                break
        os.mkdir(place + b"/out/mine")
        with pytest.raises(DomainError, match="destination_exists"):
            to_the_end(run)
        planted.close()
    assert os.listdir(place) == [b"out"]
    assert os.listdir(place + b"/out") == [b"mine"]


def no_links(_one: bytes, _other: bytes) -> None:
    raise PermissionError(errno.EPERM, "no links here")


@pytest.mark.parametrize("link", [os.link, no_links])
def test_a_name_is_taken_where_nothing_has_it(desk, link):
    temporary, place = desk.base + b"/temporary", desk.base + b"/place"
    for taken in (False, True):
        with open(temporary, "wb") as file:
            file.write(b"new" if not taken else b"newer")
        if taken:
            with pytest.raises(FileExistsError):
                take_name(temporary, place, link)
        else:
            take_name(temporary, place, link)
        assert open_bytes(place) == b"new"
        assert os.path.lexists(temporary) == taken
