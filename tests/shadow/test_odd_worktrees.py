"""Whatever may stand in a worktree is saved, shown, restored and brought back again exactly as it was."""

import contextlib
import os
import stat

import pytest

from ckpt_protocol.structs import from_wire
from support.effort import examples
from support.plainworld import look
from support.restores import content, names
from support.worktrees import somebody

pytestmark = pytest.mark.core

NAMES = {
    "new line": b"new\nline",
    "return": b"a\rb",
    "escape": b"\x1b[31mred",
    "double quotes": b'"q"',
    "single quotes": b"it's",
    "backslash": b"a\\b",
    "leading space": b" a",
    "trailing space": b"a ",
    "trailing dot": b"a.",
    "dots": b"...",
    "invalid UTF-8": b"\xff\xfe",
    "half a character": b"\xc3",
    "surrogate": b"\xed\xa0\x80",
    "composed": "é".encode(),
    "decomposed": "e\u0301".encode(),
    "full length": b"x" * 255,
    "full length of characters": "é".encode() * 127,
    "wildcard": b"*?[a]",
    "option": b"--force",
    "home": b"~",
    "drive": b"C:",
    "device of others": b"CON",
    "right to left": "\u202egpj.exe".encode(),
    "git of others": b"git~1",
    "like a temporary": b".ckpt-0123456789abcdef.tmp2",
    "like a ref": b"refs@{0}",
    "control": bytes(range(1, 32)).replace(b"\n", b""),
}


def worlds(desk):
    return look(desk.root)


# -- names


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_names_go_through_every_operation(desk, name):
    desk.write(name + b"/" + name, b"one\n")
    desk.write(b"plain", b"one\n")
    desk.link(b"to", name)
    saved = desk.save().id
    first = worlds(desk)
    path = name + b"/" + name
    assert desk.cat(saved, path) == b"one\n"
    desk.write(path, b"two\n")
    assert desk.changes() == [(path, "modified", False)]
    assert b"-one\n+two\n" in desk.diff(paths=[path])
    assert [one.id for one in desk.list(paths=[path]).checkpoints] == [saved]
    assert names(desk.rollback(saved, path).written) == [path]
    assert worlds(desk) == first
    desk.remove(name)
    desk.write(name, b"a file now")
    second = worlds(desk)
    result = desk.reset(saved)
    assert {from_wire(one) for one in result.written} == {name, path}
    assert worlds(desk) == first
    desk.undo()
    assert worlds(desk) == second


def test_names_that_look_alike_stay_apart(desk):
    alike = ["é".encode(), "e\u0301".encode(), b"A", b"a", b"a ", b"a.", "\u212b".encode(), "\u00c5".encode()]
    for name in alike:
        desk.write(name, b"old " + name)
    saved = desk.save().id
    for name in alike[::2]:
        desk.write(name, b"new " + name)
    for name in alike[1::2]:
        desk.remove(name)
    second = worlds(desk)
    assert sorted(names(desk.reset(saved).written)) == sorted(alike)
    assert [content(desk, name) for name in alike] == [b"old " + name for name in alike]
    desk.undo()
    assert worlds(desk) == second


# -- types and permissions


def _directory(desk, path, perm, **inside):
    desk.mkdir(path)
    for name, data in inside.items():
        desk.write(path + b"/" + name.encode(), data)
    os.chmod(desk.path(path), perm)


THINGS = {
    b"nothing": lambda desk, path: None,
    b"file": lambda desk, path: desk.write(path, b"text"),
    b"other": lambda desk, path: desk.write(path, b"other text"),
    b"empty": lambda desk, path: desk.write(path, b""),
    b"private": lambda desk, path: desk.write(path, b"secret", 0o600),
    b"tool": lambda desk, path: desk.write(path, b"#!", 0o755),
    b"setuid": lambda desk, path: desk.write(path, b"#!", 0o4755),
    b"readonly": lambda desk, path: desk.write(path, b"text", 0o444),
    b"shared": lambda desk, path: desk.write(path, b"text", 0o664),
    b"link": lambda desk, path: desk.link(path, b"nothing-file"),
    b"nowhere": lambda desk, path: desk.link(path, b"/no/where"),
    b"hollow": lambda desk, path: desk.mkdir(path, 0o755),
    b"folder": lambda desk, path: _directory(desk, path, 0o755, a=b"a", b=b"b"),
    b"locked": lambda desk, path: _directory(desk, path, 0o555, a=b"a", c=b"c"),
    b"sticky": lambda desk, path: _directory(desk, path, 0o1777, a=b"other"),
    b"closed": lambda desk, path: _directory(desk, path, 0o700, d=b"d"),
}


def clear(desk, path):
    full = desk.path(path)
    if os.path.isdir(full) and not os.path.islink(full):
        os.chmod(full, 0o700)
    with contextlib.suppress(FileNotFoundError):
        desk.remove(path)


@pytest.mark.parametrize("who", ["root", "somebody"])
def test_everything_becomes_everything_else_and_comes_back(desk, who):
    pairs = [(one, other) for one in THINGS for other in THINGS if (one, other) != (b"nothing", b"nothing")]
    with somebody() if who == "somebody" else contextlib.nullcontext():
        before = os.umask(0o027)
        try:
            for one, other in pairs:
                THINGS[one](desk, one + b"-" + other)
            first, saved = worlds(desk), desk.save()
            assert (saved.skipped, saved.excluded) == ([], [])
            for one, other in pairs:
                if one != other:
                    clear(desk, one + b"-" + other)
                    THINGS[other](desk, one + b"-" + other)
            second = worlds(desk)
            for verb, wanted in (
                (lambda: desk.reset(saved.id), first),
                (desk.undo, second),
                (desk.redo, first),
                (desk.undo, second),
                (lambda: desk.rollback(saved.id, *(one + b"-" + other for one, other in pairs), delete=True), first),
            ):
                result = verb()
                assert result.conflicts == []
                assert worlds(desk) == wanted
        finally:
            os.umask(before)
            for name in os.listdir(desk.root):
                clear(desk, name)
        desk.save(force=True)
        desk.close()


def test_a_file_that_was_private_comes_back_private_whatever_the_umask(desk):
    desk.write(b"secret", b"s", 0o600)
    desk.write(b"d/secret", b"s", 0o640)
    os.chmod(desk.path(b"d"), 0o750)
    saved = desk.save().id
    for umask in (0, 0o022, 0o077):
        for name in (b"secret", b"d"):
            desk.remove(name)
        before = os.umask(umask)
        try:
            desk.reset(saved)
        finally:
            os.umask(before)
        modes = [stat.S_IMODE(os.stat(desk.path(name)).st_mode) for name in (b"secret", b"d", b"d/secret")]
        assert modes == [0o600, 0o750, 0o640]


def test_hard_links_are_two_files_to_a_restore(desk):
    desk.write(b"a", b"old")
    os.link(desk.path(b"a"), desk.path(b"b"))
    os.link(desk.path(b"a"), os.path.join(desk.base, b"outside"))
    saved = desk.save().id
    desk.write(b"a", b"new through any name")
    assert {path for path, _, _ in desk.changes()} == {b"a", b"b"}
    desk.rollback(saved, b"a")
    assert (content(desk, b"a"), content(desk, b"b")) == (b"old", b"new through any name")
    with open(os.path.join(desk.base, b"outside"), "rb") as file:
        assert file.read() == b"new through any name"
    desk.reset(saved)
    desk.undo()
    desk.undo()
    assert content(desk, b"a") == content(desk, b"b") == b"new through any name"


# -- size and depth


PART = b"d" * 200
DEPTH = 40


class Deep:
    """A file below more directories than fit into one path, reached step by step."""

    def __init__(self, desk):
        self._desk = desk
        self.path = b"/".join([PART] * DEPTH) + b"/f"

    def _open(self, *, make=False):
        fd = os.open(self._desk.root, os.O_RDONLY | os.O_DIRECTORY)
        for _ in range(DEPTH):
            if make:
                os.mkdir(PART, dir_fd=fd)
            below = os.open(PART, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = below
        return fd

    def write(self, data, *, make=False):
        fd = self._open(make=make)
        with open(os.open(b"f", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=fd), "wb") as file:
            file.write(data)
        os.close(fd)

    def read(self):
        fd = self._open()
        try:
            with open(os.open(b"f", os.O_RDONLY, dir_fd=fd), "rb") as file:
                return file.read()
        finally:
            os.close(fd)


def test_a_path_longer_than_the_system_takes_as_one(desk):
    deep = Deep(desk)
    assert len(deep.path) > 8000
    deep.write(b"one\n", make=True)
    saved = desk.save()
    assert (saved.skipped, saved.files) == ([], 1)
    assert desk.cat(saved.id, deep.path) == b"one\n"
    assert desk.changes() == []
    deep.write(b"two\n")
    assert desk.changes() == [(deep.path, "modified", False)]
    assert b"-one\n+two\n" in desk.diff()
    result = desk.reset(saved.id)
    assert (names(result.written), result.conflicts, deep.read()) == ([deep.path], [], b"one\n")
    desk.undo()
    assert deep.read() == b"two\n"
    desk.rollback(saved.id, deep.path)
    assert deep.read() == b"one\n"
    # All of it goes and comes back.
    desk.write(b"other", b"x")
    desk.remove(PART)
    gone = desk.save(force=True).id
    desk.reset(saved.id)
    assert deep.read() == b"one\n"
    assert not os.path.exists(desk.path(b"other"))
    assert desk.reset(gone).conflicts == []
    assert os.listdir(desk.root) == [b"other"]
    desk.undo()
    assert deep.read() == b"one\n"
    desk.reopen()
    assert desk.changes() == []


def test_a_directory_of_very_many_entries(desk):
    count = examples(4_000, 100_000)
    os.mkdir(desk.path(b"many"))
    for number in range(count):
        with open(desk.path(b"many/%d" % number), "wb") as file:
            file.write(b"%d" % (number % 7))
    saved = desk.save().id
    for number in range(0, count, count // 100):
        os.unlink(desk.path(b"many/%d" % number))
        desk.write(b"many/new %d" % number, b"new")
        desk.write(b"many/%d" % (number + 1), b"changed")
    assert len(desk.changes()) == 300
    result = desk.reset(saved)
    assert (len(result.written), len(result.deleted)) == (200, 100)
    assert sorted(os.listdir(desk.path(b"many"))) == sorted(b"%d" % number for number in range(count))
    assert desk.changes() == []
    desk.undo()
    assert len(desk.changes()) == 300
    desk.rollback(saved, b"many")
    assert desk.changes() == []


def test_empty_directories_come_and_go(desk):
    desk.mkdir(b"a/b/c")
    desk.mkdir(b"e", 0o700)
    desk.write(b"f", b"")
    saved, first = desk.save().id, worlds(desk)
    desk.remove(b"a")
    desk.mkdir(b"a/other/deep")
    desk.mkdir(b"e/inside")
    assert {(path, kind) for path, kind, _ in desk.changes()} == {
        (b"a/b/c", "deleted"),
        (b"a/other/deep", "added"),
        (b"e/inside", "added"),
    }
    second = worlds(desk)
    desk.reset(saved)
    assert worlds(desk) == first
    desk.undo()
    assert worlds(desk) == second
