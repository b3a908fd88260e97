"""Any file of a store cut, emptied, zeroed, flipped or gone: it hurts the checkpoints that need it, and nothing else.

A checkpoint that is listed and can be read is what it was; one that cannot be read says so and restores nothing. The
next save is whole, and stores again whatever of the lost content is still on disk.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import pytest

from ckpt_protocol.store import VerifyParams
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from support import effort
from support.plainworld import look
from support.stored import Contents, contents, held
from support.worktrees import Desk, run_git

pytestmark = pytest.mark.core

FATAL = {b"ckpt/metadata.json"}
"""Files without which a store does not open: it says which one, and is left as it is."""


def emptied(path: bytes) -> None:
    os.truncate(path, 0)


def cut(path: bytes) -> None:
    os.truncate(path, os.path.getsize(path) // 2)


def shortened(path: bytes) -> None:
    os.truncate(path, max(0, os.path.getsize(path) - 1))


def zeroed(path: bytes) -> None:
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.write(bytes(size))


def flipped(path: bytes) -> None:
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        for at in range(len(data) // 3, len(data), max(1, len(data) // 5)):
            data[at] ^= 0x55
        file.seek(0)
        file.write(data)


def grown(path: bytes) -> None:
    with open(path, "ab") as file:
        file.write(b"\0\xffmore of it\n")


DAMAGES: list[Callable[[bytes], None]] = [emptied, cut, shortened, zeroed, flipped, grown, os.unlink]


class Scene(NamedTuple):
    """A store with a history: what each checkpoint holds, and which of them need a file of the store."""

    desk: Desk
    known: dict[str, Contents]
    needs: Callable[[bytes], set[str]]
    copy: bytes


@pytest.fixture(params=["loose", "packed by git"])
def scene(desk: Desk, request: pytest.FixtureRequest) -> Scene:
    desk.damaged = True
    known = {}
    desk.write(b"private", b"never changes", 0o600)
    desk.write(b"folder/stays", b"never changes either\n" * 50)
    for number in range(3):
        desk.write(b"folder/changes", b"%d\n" % number * 30)
        desk.write(b"new %d" % number, os.urandom(3000))
        known[desk.save(f"number {number}", tag=f"t{number}").id] = contents(look(desk.root))
    desk.reset(next(iter(known)))
    desk.undo()
    desk.close()
    if request.param != "loose":
        desk.git("pack-refs", "--all")
    copy = os.path.join(desk.base, b"copy")
    shutil.copytree(desk.folder, copy)
    return Scene(desk, known, needers(desk, list(known), copy), copy)


def needers(desk: Desk, ids: list[str], copy: bytes) -> Callable[[bytes], set[str]]:
    """Find out with git which checkpoints need which pack."""
    everything = {}
    for one in ids:
        info = desk.git("log", "-1", "--format=%B", one).partition(b"Ckpt-Info: ")[2][:40].decode()
        tips = [one, *([info] if len(info) == 40 else [])]
        everything[one] = {line[:40] for line in desk.git("rev-list", "--objects", *tips).splitlines()}

    def needs(path: bytes) -> set[str]:
        if not path.startswith(b"objects/pack/"):
            return set()
        index = os.path.join(copy, path.rpartition(b".")[0] + b".idx")
        with open(index, "rb") as file:
            inside = {line.split(b" ")[1] for line in run_git("show-index", data=file.read()).splitlines()}
        return {one for one in ids if everything[one] & inside}

    return needs


def files(folder: bytes) -> list[bytes]:
    return sorted(
        os.path.relpath(os.path.join(top, name), folder) for top, _, names in os.walk(folder) for name in names
    )


def damaged(scene: Scene) -> Iterator[tuple[bytes, str]]:
    """Give the store with each kind of damage at each of its files."""
    desk = scene.desk
    # Seven kinds: every third pair has all of them, and all the files.
    for path, damage in list(product(files(scene.copy), DAMAGES))[:: 1 if effort.LONG else 3]:
        desk.close()
        shutil.rmtree(desk.folder)
        shutil.copytree(scene.copy, desk.folder)
        full = os.path.join(desk.folder, path)
        os.chmod(full, 0o600)
        damage(full)
        yield path, damage.__name__


def read(desk: Desk, one: str) -> Contents | DomainError:
    try:
        return held(desk, desk.repo.lookup.open(one))
    except DomainError as error:
        return error


def opened(desk: Desk) -> DomainError | None:
    try:
        desk.open(create=False)
    except DomainError as error:
        return error
    return None


def check_restores_nothing_else(desk: Desk, one: str, there: Contents, what: str) -> None:
    """It is refused with nothing changed; or the safety checkpoint has stored again what is still on disk."""
    before = contents(look(desk.root))
    try:
        desk.reset(one)
    except DomainError:
        assert contents(look(desk.root)) == before, what
    else:
        now = contents(look(desk.root))
        # Where it is not known any more what a checkpoint left out, nothing is deleted.
        assert there.items() <= now.items() <= {**before, **there}.items(), what
        desk.undo()
        assert contents(look(desk.root)) == before, what


def verified(desk: Desk) -> bool:
    run = desk.reader.verify(VerifyParams(**desk.common(), read_data=True), Caller("test"))
    while (result := run.step()) is None:
        pass
    return result.clean


def check_known(scene: Scene, path: bytes, what: str, needed_by: set[str]) -> None:
    """What is listed and can be read is right; what does not need the file is both."""
    desk, listed = scene.desk, scene.desk.list()
    ids = {one.id for one in listed.checkpoints}
    of_refs = path.startswith(b"refs/checkpoints/") or path == b"packed-refs"
    for one, there in scene.known.items():
        found = read(desk, one)
        if isinstance(found, DomainError):
            assert one in needed_by, (what, found)
            assert found.kind in ("store_damaged", "object_missing"), (what, found)
            check_restores_nothing_else(desk, one, there, what)
        else:
            assert found == there, what
            assert one in ids or of_refs or one in needed_by, (what, "is not listed")
    assert ids >= scene.known.keys() or listed.damaged or of_refs, (what, "nobody tells what is missing")


def test_each_file_damaged_in_each_way(scene: Scene):
    desk, count = scene.desk, 0
    here = list(scene.known.values())[-1]
    for path, damage in damaged(scene):
        what, count = f"{path.decode()} {damage}", count + 1
        needed_by = scene.needs(path)
        refused = opened(desk)
        if refused is not None:
            assert path in FATAL, (what, refused)
            assert refused.paths, what
            continue
        check_known(scene, path, what, needed_by)
        # What no end of a file gives away shows when all of it is read.
        assert not verified(desk) or not needed_by, (what, "was not found")
        desk.write(b"folder/changes", b"after the damage %d\n" % count)
        saved = desk.save("after")
        assert saved.created, what
        now = contents(look(desk.root))
        assert held(desk, desk.repo.lookup.open(saved.id)) == now, what
        # What is on disk as it was is in the store again, for the checkpoints that shared it.
        for name in here.keys() & now.keys():
            if here[name] == now[name] and here[name] is not None and name != b"folder/changes":
                assert desk.cat(saved.id, name) == here[name], what
        desk.reset(saved.id)
        assert contents(look(desk.root)) == now, what
        assert len({one.seq for one in desk.list().checkpoints}) == len(desk.list().checkpoints), what
    print(f"{count} damages")
    desk.close()
    shutil.rmtree(desk.folder)
