"""A worktree in memory: what stands on a disk, the steps from one state to another, and where content comes from."""

import os
import re
import stat
from collections.abc import Callable, Iterator

from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.restore.crew import Crew
from ckptd.shadow.restore.exchange import Renamer
from ckptd.shadow.restore.writer import Outcome, RestoreWriter
from ckptd.shadow.trees.step import State, Step
from ckptd.shadow.trees.tree import DIRECTORY, EXECUTABLE, LINK, REGULAR

__all__ = ["Contents", "file", "leftovers", "link", "restore", "snapshot", "steps_between"]

_TEMPORARY = re.compile(rb"\.ckpt-[0-9a-f]{16}\.tmp")


class Contents:
    """Content by id, in small pieces."""

    def __init__(self, *contents: bytes) -> None:
        self.by_id: dict[bytes, bytes] = {}
        for data in contents:
            self.add(data)

    def add(self, data: bytes) -> bytes:
        oid = hash_object(b"blob", data)
        self.by_id[oid] = data
        return oid

    def chunks(self, oid: bytes) -> Iterator[bytes]:
        if oid not in self.by_id:
            raise DomainError("object_missing", f"the store does not hold {oid.hex()}")
        data = self.by_id[oid]
        for start in range(0, len(data), 7):
            yield data[start : start + 7]


def file(data: bytes, perm: int | None = None, *, executable: bool = False) -> State:
    return State(EXECUTABLE if executable else REGULAR, hash_object(b"blob", data), perm)


def link(target: bytes) -> State:
    return State(LINK, hash_object(b"blob", target))


def _state(path: bytes, contents: Contents) -> State:
    found = os.lstat(path)
    perm = stat.S_IMODE(found.st_mode)
    if stat.S_ISDIR(found.st_mode):
        return State(DIRECTORY, b"", perm)
    if stat.S_ISLNK(found.st_mode):
        return State(LINK, contents.add(os.readlink(path)))
    with open(path, "rb") as opened:
        return State(EXECUTABLE if perm & 0o100 else REGULAR, contents.add(opened.read()), perm)


def snapshot(root: str, contents: Contents) -> dict[bytes, State]:
    """Give what stands below a directory, and remember the content."""
    top = os.fsencode(root)
    found = {}
    for folder, directories, files in os.walk(top):
        for name in directories + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, top)] = _state(path, contents)
    return found


def steps_between(before: dict[bytes, State], after: dict[bytes, State]) -> list[Step]:
    """Give a step for each path that differs."""
    paths = sorted(before.keys() | after.keys())
    return [Step(path, before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)]


def leftovers(root: str) -> list[bytes]:
    """Give temporary files of a restore that lie anywhere below a directory."""
    return [
        os.path.join(folder, name)
        for folder, directories, files in os.walk(os.fsencode(root))
        for name in directories + files
        if _TEMPORARY.fullmatch(name)
    ]


def restore(
    root: str,
    steps: list[Step],
    contents: Contents,
    *,
    umask: int = 0o022,
    hooks: Callable[[str, bytes], None] = lambda _name, _path: None,
    renamer: Renamer | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda _done, _bytes: None,
    roomy: bool = True,
    crew: Crew | None = None,
) -> Outcome:
    """Run a writer on a directory, and see that it closes what it opens."""
    root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    before = len(os.listdir("/proc/self/fd"))
    try:
        writer = RestoreWriter(
            root_fd,
            contents,
            umask=umask,
            root_dev=os.fstat(root_fd).st_dev,
            hooks=hooks,
            renamer=renamer,
            cancelled=cancelled,
            progress=progress,
            roomy=roomy,
            crew=crew,
        )
        return writer.run(steps)
    finally:
        assert len(os.listdir("/proc/self/fd")) == before, "descriptors were left open"
        os.close(root_fd)
