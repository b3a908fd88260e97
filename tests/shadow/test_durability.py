"""What is on disk before what: the order in which a save and a reset make their files durable.

A power cut cannot be had in a test. A forked process records its system calls instead, and the rules are checked on
the record: take any one fsync away, and a rule is broken.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ckptd.shadow.restore import exchange, sync
from support.worktrees import Desk, in_child

pytestmark = [
    pytest.mark.core,
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="sees in /proc which file an fsync is for"),
]

TOUCHES = ("create", "rename", "mkdir", "link", "symlink", "unlink", "rmdir")


class Call(NamedTuple):
    """One call: ``path`` is what it makes or syncs, ``source`` a rename's old name, ``size`` a file's at that time."""

    what: str
    path: str
    source: str = ""
    size: int = 0


class Recorder:
    """Stands in for the calls of the process that it is made in, for good."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        for name in ("rename", "replace"):
            self._wrap(os, name, self._renamed)
        for name in ("mkdir", "unlink", "rmdir"):
            self._wrap(os, name, self._named(name))
        for name in ("link", "symlink"):
            self._wrap(os, name, self._linked(name))
        self._wrap(os, "open", self._opened)
        self._wrap(os, "write", lambda fd, _data: Call("write", path_of(fd)))
        self._wrap(os, "fsync", lambda fd: Call("fsync", path_of(fd), size=os.fstat(fd).st_size))
        self._wrap(sync._LIBC, "syncfs", lambda fd: Call("syncfs", path_of(fd.value)))
        self._wrap(exchange, "_RENAMEAT2", self._exchanged)

    def _wrap(self, owner: object, name: str, describe: Callable[..., Call | None]) -> None:
        real = getattr(owner, name)

        def recorded(*given: object, **options: object) -> object:
            call = describe(*given, **options)
            result = real(*given, **options)
            if call is not None:
                self.calls.append(call)
            return result

        setattr(owner, name, recorded)

    def _renamed(self, source, target, *, src_dir_fd=None, dst_dir_fd=None) -> Call:
        return Call("rename", below(dst_dir_fd, target), below(src_dir_fd, source))

    def _exchanged(self, source_fd, source, target_fd, target, _flag) -> Call:
        return Call("rename", below(target_fd, target), below(source_fd, source))

    def _named(self, what: str) -> Callable[..., Call]:
        return lambda path, *_rest, dir_fd=None: Call(what, below(dir_fd, path))

    def _linked(self, what: str) -> Callable[..., Call]:
        return lambda _source, path, *_rest, dir_fd=None, dst_dir_fd=None, **_more: Call(
            what, below(dst_dir_fd if dir_fd is None else dir_fd, path)
        )

    def _opened(self, path, flags, *_rest, dir_fd=None) -> Call | None:
        return Call("create", below(dir_fd, path)) if flags & os.O_CREAT else None


def path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


def below(dir_fd: int | None, path: bytes | str) -> str:
    name = os.fsdecode(path)
    return name if dir_fd is None else os.path.join(path_of(dir_fd), name)


def recorded(desk: Desk, work: Callable[[], object]) -> list[Call]:
    """Do something in a process of its own, with the store open already; give the calls that it made."""
    told = Path(os.fsdecode(desk.base), "calls")

    def watch() -> None:
        desk.open()
        recorder = Recorder()
        work()
        made = list(recorder.calls)
        told.write_text(json.dumps(made))

    desk.close()
    assert in_child(watch) == 0
    return [Call(*call) for call in json.loads(told.read_text())]


class Record:
    """The calls of one operation, and where in their order something happened."""

    def __init__(self, desk: Desk, calls: list[Call]) -> None:
        self._calls = calls
        self._root = os.fsdecode(desk.root)
        self._folder = os.fsdecode(desk.folder)
        self.log = f"{self._folder}/ckpt/log"

    def all(self, what: str, path: str) -> list[int]:
        return [at for at, call in enumerate(self._calls) if (call.what, call.path) == (what, path)]

    def renames_into(self, folder: str) -> list[int]:
        start = f"{self._folder}/{folder}/"
        return [at for at, call in enumerate(self._calls) if call.what == "rename" and call.path.startswith(start)]

    def touches(self) -> list[int]:
        """Whatever changes a name in the worktree."""
        start = self._root + "/"
        return [at for at, call in enumerate(self._calls) if call.what in TOUCHES and call.path.startswith(start)]

    def is_synced(self, path: str, after: int, before: int) -> bool:
        return any(after < at < before for at in self.all("fsync", path))

    def check_renamed(self, at: int, until: int) -> None:
        """A file gets its name when all of it is on disk, and the name is on disk before ``until``."""
        call = self._calls[at]
        sizes = [self._calls[one].size for one in self.all("fsync", call.source) if one < at]
        assert sizes == [os.stat(call.path).st_size], f"{call.path} got its name before its content was on disk"
        assert self.is_synced(os.path.dirname(call.path), at, until), f"the name {call.path} was not on disk in time"

    def check_pack(self, until: int) -> None:
        renames = self.renames_into("objects/pack")
        assert [self._calls[at].path.rpartition(".")[2] for at in renames] == ["pack", "idx"]
        for at in renames:
            self.check_renamed(at, until)

    def check_line(self, at: int, until: int) -> None:
        assert self.is_synced(self.log, at, until), "a line of the log was not on disk in time"

    def check_checkpoint(self, until: int) -> None:
        """The intent before the refs, pack and info before the checkpoint's own; all of it on disk before ``until``."""
        intent = self.all("write", self.log)[0]
        (info,), (checkpoint,) = self.renames_into("refs/ckpt-info"), self.renames_into("refs/checkpoints")
        self.check_pack(checkpoint)
        self.check_line(intent, info)
        self.check_renamed(info, checkpoint)
        self.check_renamed(checkpoint, until)

    def check_save(self) -> None:
        self.check_checkpoint(len(self._calls))

    def check_reset(self) -> None:
        touches, lines = self.touches(), self.all("write", self.log)
        assert len(lines) == 2
        assert len(touches) > 4
        self.check_checkpoint(touches[0])
        synced = self.all("syncfs", self._root)
        assert len(synced) == 1, "the worktree was not synced"
        assert touches[-1] < synced[0] < lines[1], "the outcome came before what it tells of was on disk"
        self.check_line(lines[1], len(self._calls))


def check_each_counts(desk: Desk, calls: list[Call], check: Callable[[Record], None]) -> None:
    """Whichever sync of the operation is left out, or all of them: it shows."""
    syncs = [at for at, call in enumerate(calls) if call.what in ("fsync", "syncfs")]
    assert len(syncs) > 6
    for left_out in [set(syncs), *({at} for at in syncs)]:
        fewer = [call for at, call in enumerate(calls) if at not in left_out]
        with pytest.raises(AssertionError):
            check(Record(desk, fewer))


def begin(desk: Desk) -> str:
    # Bits that git does not know: the checkpoint has an info.
    desk.write(b"private", b"one\n", 0o600)
    desk.write(b"folder/file", b"one\n")
    desk.write(b"deleted later", b"one\n")
    return desk.save("first").id


def edit(desk: Desk) -> None:
    desk.write(b"private", b"two\n")
    desk.write(b"folder/new", b"two\n")
    desk.remove(b"deleted later")


def test_a_save_is_on_disk_piece_by_piece_before_it_is_answered(desk: Desk):
    begin(desk)
    edit(desk)
    calls = recorded(desk, lambda: desk.save("second"))
    Record(desk, calls).check_save()
    check_each_counts(desk, calls, Record.check_save)


def test_a_reset_has_its_safety_checkpoint_on_disk_before_it_touches_the_worktree(desk: Desk):
    first = begin(desk)
    edit(desk)
    calls = recorded(desk, lambda: desk.reset(first))
    Record(desk, calls).check_reset()
    check_each_counts(desk, calls, Record.check_reset)
    with open(desk.path(b"deleted later"), "rb") as file:
        assert file.read() == b"one\n"
