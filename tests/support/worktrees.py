"""A worktree with an open store for tests of the engine, and the git program as its oracle.

The fixture ``desk`` (tests/shadow/conftest.py) gives a ``Desk``; after each test every store that it left in its
checkpoint directory must pass ``verify()``, unless the test has set ``desk.damaged = True``.

Desk:
    ``root`` and ``checkpoint_dir`` (bytes; nothing else lies in either), ``base`` the directory that holds both,
    ``folder`` (bytes: the store), ``writer``, ``reader`` and ``repo`` (the Repository behind the writer).
    ``open(create=True, force=False)``, ``close()``, ``reopen()``; a store opens when it is first needed.
    ``settings`` is replaced with ``configure(max_file_bytes=10, exclude=(b"*.o",))``, which reopens.
    ``save(message=None, **fields)``, ``status()``, ``diff(**fields) -> bytes`` (all pieces), ``reset(id=None, **f)``,
    ``rollback(id, *paths, **f)``, ``undo(**f)``, ``redo(**f)``, ``list(**f)``, ``show(id)``, ``cat(id, path)``,
    ``head()``: the engine's own results. Paths are bytes relative to the worktree.
    ``write(path, data, perm=None)``, ``mkdir(path, perm=None)``, ``link(path, target)``, ``remove(path)``: the
    worktree; parents are made. ``plant(tree)`` writes a ``Tree``. ``path(name)`` is absolute.
    ``tree_of(id)``: the 40 digits of a checkpoint's tree, as git says; ``paths_of(id)``: {path: (mode, blob id)};
    ``git(*words)``: git on the store.
    ``changes()``: status as sorted (path, change, dir) of bytes.

Clock: ``desk.clock`` is the real clock plus ``offset_s``. ``settle()`` puts it ten seconds ahead, so that all that is
on disk counts as old (no racy entries); ``unsettle()`` puts it back.

``git_log(desk, trees, *words)``: git log over checkpoints.
``verify(folder)``: git fsck. ``git_tree(root, left_out=...)``: the tree id that git gives to what is on disk.
``opened_files()``: a context that lists the files (not directories) that this process opens in it.
``names()``, ``trees()``: hypothesis strategies. ``somebody()``: a context without root's rights. ``in_child(f)``: runs
``f`` in a forked process; gives its wait status. ``to_the_end(run)``: the result of what goes on in steps.
"""

import base64
import contextlib
import os
import shutil
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Union

from hypothesis import strategies as st

from ckpt_protocol import checkpoint as wire
from ckpt_protocol import worktree as worktree_wire
from ckpt_protocol.structs import Worktree, from_wire, to_wire
from ckptd.core.ports import Caller
from ckptd.shadow.store.catalog import ShadowCatalog
from ckptd.shadow.store.diffing import Diffing
from ckptd.shadow.store.settings import Settings
from support import isolation

__all__ = [
    "GIT_ENVIRON",
    "Clock",
    "Desk",
    "Executable",
    "Link",
    "Tree",
    "desk_fixture",
    "git_log",
    "git_tree",
    "in_child",
    "names",
    "opened_files",
    "plant",
    "run_git",
    "somebody",
    "to_the_end",
    "trees",
    "verify",
]


def to_the_end(run: Any) -> Any:
    """Make steps until the result is there."""
    while (result := run.step()) is None:
        pass
    return result


class Link(bytes):
    """The target of a link, in a Tree."""


class Executable(bytes):
    """The content of an executable file, in a Tree."""


Tree = dict[bytes, Union[bytes, Link, Executable, "Tree"]]
"""What a directory holds, by name: bytes are a file's content."""

# What git thinks of names and contents that users have; never what it thinks of a store's integrity.
_OPINIONS = (
    ["hasDotgit"]
    + [
        f"gitmodules{what}"
        for what in ("Blob", "Large", "Missing", "Name", "Parse", "Path", "Symlink", "Update", "Url")
    ]
    + [f"gitattributes{what}" for what in ("Blob", "Large", "LineLength", "Missing", "Symlink")]
)

_NOBODY = 65534


def _git_environ() -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": "t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }


GIT_ENVIRON: Mapping[str, str] = _git_environ()
"""An environment in which git knows no configuration but a repository's own."""


def run_git(*words: str | bytes, cwd: str | bytes = "/", data: bytes = b"") -> bytes:
    """Run git in its isolated environment; give what it prints."""
    command = ["git", "-c", "safe.directory=*", *words]
    done = subprocess.run(command, input=data, cwd=cwd, env=dict(GIT_ENVIRON), capture_output=True, check=False)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def verify(folder: bytes) -> None:
    """Assert that git finds no fault in a store."""
    opinions = [word for name in _OPINIONS for word in ("-c", f"fsck.{name}=ignore")]
    run_git(*opinions, b"--git-dir=" + folder, "fsck", "--strict", "--full", "--no-dangling")


def _present(name: bytes, found: os.stat_result) -> bool:
    kinds = (stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK)
    return name.lower() != b".git" and stat.S_IFMT(found.st_mode) in kinds


def git_tree(root: bytes, left_out: Callable[[bytes], bool] = lambda _path: False) -> str:
    """Give the tree id (40 digits) that git itself makes of a directory, empty directories included.

    ``.git``, FIFOs and the like are left out, and each relative path that ``left_out`` says.
    """
    scratch = os.fsencode(isolation.short_directory("ckg"))
    try:
        run_git("init", "-q", "--bare", scratch)
        return _Oracle(root, scratch, left_out).tree()
    finally:
        shutil.rmtree(scratch)


class _Oracle:
    def __init__(self, root: bytes, scratch: bytes, left_out: Callable[[bytes], bool]) -> None:
        self._root = root
        self._scratch = scratch
        self._left_out = left_out
        self._blobs: dict[bytes, tuple[bytes, bytes]] = {}
        self._dirs: dict[bytes, list[bytes]] = {}

    def tree(self) -> str:
        self._look(b"")
        self._store_blobs()
        command = ["git", b"--git-dir=" + self._scratch, "mktree", "-z", "--batch"]
        with subprocess.Popen(
            command, env=dict(GIT_ENVIRON), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        ) as git:
            made: dict[bytes, bytes] = {}
            for path in sorted(filter(None, self._dirs), key=lambda one: -one.count(b"/")):
                made[path] = self._make(git, path, made)
            answer = self._make(git, b"", made)
            git.stdin.close()
        assert git.returncode == 0
        return answer.decode()

    def _look(self, folder: bytes) -> None:
        stack = [folder]
        while stack:
            folder = stack.pop()
            self._dirs[folder] = []
            for name in os.listdir(os.path.join(self._root, folder)):
                path = os.path.join(folder, name)
                found = os.lstat(os.path.join(self._root, path))
                if self._left_out(path) or not _present(name, found):
                    continue
                self._dirs[folder].append(name)
                if stat.S_ISDIR(found.st_mode):
                    stack.append(path)
                else:
                    self._blobs[path] = self._content(path, found)

    def _content(self, path: bytes, found: os.stat_result) -> tuple[bytes, bytes]:
        full = os.path.join(self._root, path)
        if stat.S_ISLNK(found.st_mode):
            return b"120000", os.readlink(full)
        with open(full, "rb") as file:
            return (b"100755" if found.st_mode & 0o100 else b"100644"), file.read()

    def _store_blobs(self) -> None:
        marks = os.path.join(self._scratch, b"marks")
        script = [
            b"blob\nmark :%d\ndata %d\n%s\n" % (number, len(data), data)
            for number, (_, data) in enumerate(self._blobs.values(), 1)
        ]
        where = b"--git-dir=" + self._scratch
        run_git(where, "fast-import", "--quiet", b"--export-marks=" + marks, data=b"".join(script))
        with open(marks, "rb") as file:
            ids = dict(line.rstrip(b"\n").split(b" ") for line in file)
        for number, (path, (mode, _)) in enumerate(list(self._blobs.items()), 1):
            self._blobs[path] = (mode, ids[b":%d" % number])

    def _make(self, git: "subprocess.Popen[bytes]", path: bytes, made: dict[bytes, bytes]) -> bytes:
        records = []
        for name in self._dirs[path]:
            below = os.path.join(path, name)
            if below in self._dirs:
                records.append(b"040000 tree %s\t%s\0" % (made[below], name))
            else:
                records.append(b"%s blob %s\t%s\0" % (*self._blobs[below], name))
        data = memoryview(b"".join(records) + b"\0")
        while data:
            data = data[git.stdin.write(data) :]
        return git.stdout.readline().strip()


def plant(root: bytes, tree: Tree) -> None:
    """Write a tree into a directory that holds none of its names."""
    for name, node in tree.items():
        path = os.path.join(root, name)
        if isinstance(node, dict):
            os.mkdir(path)
            plant(path, node)
        elif isinstance(node, Link):
            os.symlink(node, path)
        else:
            with open(path, "xb") as file:
                file.write(node)
            if isinstance(node, Executable):
                os.chmod(path, 0o755)


def _is_name(name: bytes) -> bool:
    return name not in (b".", b"..") and name.lower() != b".git" and len(name) <= 255


_ODD = [
    b"a",
    b"A",
    b"b",
    b"-",
    b".",
    b"0",
    b" ",
    b"\n",
    b'"',
    b"'",
    b"\\",
    b"\t",
    b"\xff",
    b"\xc3\xa9",
    b"e\xcc\x81",
    b"*",
]


def names() -> st.SearchStrategy[bytes]:
    """Names that a file system takes, odd ones mostly; none that has a meaning to a scan."""
    any_byte = st.binary(min_size=1, max_size=8).map(lambda name: name.replace(b"\0", b"0").replace(b"/", b"0"))
    odd = st.lists(st.sampled_from(_ODD), min_size=1, max_size=5).map(b"".join)
    return st.one_of(odd, any_byte).filter(_is_name)


def trees(max_leaves: int = 12) -> st.SearchStrategy[Tree]:
    """Trees of files, executable files, links and directories, empty ones included."""
    target = st.binary(min_size=1, max_size=20).map(lambda text: Link(text.replace(b"\0", b"0")))
    leaf = st.one_of(st.binary(max_size=20), st.binary(max_size=3).map(Executable), target)
    node = st.recursive(leaf, lambda below: st.dictionaries(names(), below, max_size=4), max_leaves=max_leaves)
    return st.dictionaries(names(), node, max_size=5)


@contextlib.contextmanager
def somebody() -> Iterator[None]:
    """Act without root's rights, as permissions have to be met; as who one is where that is not root."""
    if os.geteuid() != 0:
        yield
        return
    groups, gid = os.getgroups(), os.getegid()
    os.setgroups([])
    os.setegid(_NOBODY)
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(gid)
        os.setgroups(groups)


def in_child(work: Callable[[], object]) -> int:
    """Run something in a forked process that then ends without tidying up; give its wait status (0: it returned)."""
    with warnings.catch_warnings():
        # The test runner's own threads take no part in what the child does.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 70
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


_watchers: list[list[bytes]] = []
_hooked: list[bool] = []


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not _watchers:
        return
    path, _, flags = arguments
    if isinstance(flags, int) and not flags & os.O_DIRECTORY and isinstance(path, str | bytes):
        for watcher in _watchers:
            watcher.append(os.fsencode(path))


@contextlib.contextmanager
def opened_files() -> Iterator[list[bytes]]:
    """List the paths of all files that this process opens, as they are given (relative ones included)."""
    if not _hooked:
        # A hook cannot be taken away again, so there is one for all tests.
        _hooked.append(True)
        sys.addaudithook(_audit)
    found: list[bytes] = []
    _watchers.append(found)
    try:
        yield found
    finally:
        _watchers.remove(found)


def git_log(desk: "Desk", trees: Sequence[tuple[int, str]], *words: str | bytes) -> bytes:
    """What ``git log`` says of checkpoints as a line of commits; given are their numbers and trees, oldest first.

    The subject of each commit is the number. ``words`` come before the last commit: ``--`` and paths after it.
    """
    scratch = isolation.short_directory("cks")
    try:
        run_git("init", "-q", "--bare", scratch)
        with open(f"{scratch}/objects/info/alternates", "wb") as file:
            file.write(desk.folder + b"/objects\n")
        where = f"--git-dir={scratch}"
        tip = ""
        for seq, tree in trees:
            parent = ["-p", tip] if tip else []
            tip = run_git(where, "commit-tree", *parent, "-m", str(seq), tree).decode().strip()
        at = words.index("--") if "--" in words else len(words)
        return run_git(where, "log", *words[:at], tip, *words[at:])
    finally:
        shutil.rmtree(scratch)


class Clock:
    """The real clock, moved by ``offset_s``."""

    def __init__(self) -> None:
        self.offset_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.offset_s


class Desk:
    """See the module."""

    def __init__(self, base: str) -> None:
        self.base = os.fsencode(base)
        self.root = os.path.join(self.base, b"ws")
        self.checkpoint_dir = os.path.join(self.base, b"cd")
        self.home = os.path.join(self.base, b"home")
        for folder in (self.root, self.checkpoint_dir, self.home):
            os.mkdir(folder)
        self.clock = Clock()
        self.damaged = False
        self.settings = Settings(home=self.home)
        self._opened = None
        self.folder = b""

    # -- the store

    def place(self) -> Worktree:
        """The worktree as a client sees it."""
        try:
            found = os.stat(self.root)
        except OSError:
            return Worktree(path=to_wire(self.root))
        return Worktree(path=to_wire(self.root), dev=str(found.st_dev), ino=str(found.st_ino))

    def catalog(self) -> ShadowCatalog:
        return ShadowCatalog(self.settings, self.clock)

    def open(self, *, create: bool = True, force: bool = False):
        if self._opened is None:
            self._opened = self.catalog().open(self.checkpoint_dir, self.place(), create=create, force=force)
            self.folder = self._opened.folder
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            opened, self._opened = self._opened, None
            opened.writer.close()
            opened.reader.close()

    def reopen(self) -> None:
        self.close()
        self.open(create=False)

    def configure(self, **changed) -> None:
        self.close()
        self.settings = self.settings._replace(**changed)

    @property
    def writer(self):
        return self.open().writer

    @property
    def reader(self):
        return self.open().reader

    @property
    def repo(self):
        return self.writer._repo

    # -- operations

    def common(self) -> dict:
        return {"checkpoint_dir": to_wire(self.checkpoint_dir), "worktree": self.place()}

    @staticmethod
    def token() -> str:
        return os.urandom(16).hex()

    def _writing(self, fields: dict) -> dict:
        return {**self.common(), "token": self.token(), **fields}

    def save(self, message: str | None = None, *, caller: Caller | None = None, **fields) -> wire.SaveResult:
        params = wire.SaveParams(**self._writing({"message": message, **fields}))
        return self.writer.save(params, caller or Caller("test"))

    def store_again(self, paths: Sequence[bytes]) -> None:
        """Have files in one pack more, as a process that is killed leaves it when a new pack has come and the old ones
        are to go."""
        objects = self.repo.objects
        writer = objects.writer()
        writer._exists = lambda _oid: False
        for path in paths:
            with open(self.path(path), "rb") as file:
                writer.add(b"blob", file.read())
        writer.finish()
        objects.refresh()

    def status(self) -> worktree_wire.StatusResult:
        return self.writer.status(worktree_wire.StatusParams(**self.common()), Caller("test"))

    def changes(self) -> list[tuple[bytes, str, bool]]:
        return [(from_wire(one.path), one.change, one.dir) for one in self.status().changes]

    def diff_result(self, **fields) -> wire.DiffResult:
        return to_the_end(self.begin_diff(**fields))

    def begin_diff(self, *, caller: Caller | None = None, **fields) -> Diffing:
        params, caller = wire.DiffParams(**self.common(), **fields), caller or Caller("test")
        to_worktree = params.cursor is None and params.to_id == wire.WORKTREE
        return self.reader.diff(params, caller, self.writer.snapshot(params, caller) if to_worktree else None)

    def diff(self, **fields) -> bytes:
        if "paths" in fields:
            fields["paths"] = [to_wire(path) for path in fields["paths"]]
        pieces, cursor, offset = [], None, 0
        while True:
            result = self.diff_result(**fields, cursor=cursor, offset=offset)
            pieces.append(base64.b64decode(result.data.b64))
            offset += len(pieces[-1])
            cursor = result.cursor
            if cursor is None:
                assert offset == result.total_bytes
                return b"".join(pieces)

    def reset(self, id: str | None = None, **fields) -> wire.RestoreResult:
        params = wire.RestoreParams(**self._writing({"id": id, **fields}))
        return self.writer.restore(params, Caller("test"))

    def rollback(self, id: str | None, *paths: bytes, **fields) -> wire.RestoreResult:
        wanted = [to_wire(path) for path in paths]
        params = wire.RestoreParams(**self._writing({"id": id, "paths": wanted, **fields}))
        return self.writer.restore(params, Caller("test"))

    def undo(self, **fields) -> wire.RestoreResult:
        return self.writer.undo(wire.StepParams(**self._writing(fields)), Caller("test"))

    def redo(self, **fields) -> wire.RestoreResult:
        return self.writer.redo(wire.StepParams(**self._writing(fields)), Caller("test"))

    def resume(self, action: str, **fields) -> wire.RestoreResult:
        params = worktree_wire.ResumeParams(**self._writing({"action": action, **fields}))
        return self.writer.resume(params, Caller("test"))

    def list(self, **fields) -> wire.ListResult:
        if "paths" in fields:
            fields["paths"] = [to_wire(path) for path in fields["paths"]]
        return to_the_end(self.reader.list(wire.ListParams(**self.common(), **fields), Caller("test")))

    def show(self, id: str) -> wire.ShowResult:
        return to_the_end(self.reader.show(wire.ShowParams(**self.common(), id=id), Caller("test")))

    def cat(self, id: str, path: bytes, **fields) -> bytes:
        return base64.b64decode(
            self.reader.cat(wire.CatParams(**self.common(), id=id, path=to_wire(path), **fields)).data.b64
        )

    def head(self) -> str:
        return self.reader.head(wire.HeadParams(**self.common())).id

    # -- time

    def settle(self) -> None:
        """From now on everything on disk is old enough for its stat data to vouch for it."""
        self.clock.offset_s = 10.0

    def unsettle(self) -> None:
        self.clock.offset_s = 0.0

    # -- the worktree

    def path(self, name: bytes) -> bytes:
        return os.path.join(self.root, name)

    def _parents(self, name: bytes) -> bytes:
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def write(self, name: bytes, data: bytes = b"", perm: int | None = None) -> bytes:
        path = self._parents(name)
        with open(path, "wb") as file:
            file.write(data)
        if perm is not None:
            os.chmod(path, perm)
        return path

    def mkdir(self, name: bytes, perm: int | None = None) -> bytes:
        path = self.path(name)
        os.makedirs(path, exist_ok=True)
        if perm is not None:
            os.chmod(path, perm)
        return path

    def link(self, name: bytes, target: bytes) -> bytes:
        path = self._parents(name)
        os.symlink(target, path)
        return path

    def remove(self, name: bytes) -> None:
        path = self.path(name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)

    def plant(self, tree: Tree) -> None:
        plant(self.root, tree)

    # -- the oracle

    def git(self, *words: str | bytes, data: bytes = b"") -> bytes:
        return run_git(b"--git-dir=" + self.folder, *words, data=data)

    def tree_of(self, id: str) -> str:
        return self.git("rev-parse", f"{id}^{{tree}}").decode().strip()

    def paths_of(self, id: str) -> dict[bytes, tuple[bytes, bytes]]:
        """Files, links and (with mode 040000) directories of a checkpoint."""
        found = {}
        for record in self.git("ls-tree", "-r", "-t", "-z", id).split(b"\0")[:-1]:
            facts, _, path = record.partition(b"\t")
            mode, _, oid = facts.split(b" ")
            found[path] = (mode, oid)
        return found

    def stores(self) -> Iterator[bytes]:
        """Every store in the checkpoint directory."""
        here = self.checkpoint_dir
        yield from [os.path.join(here, name) for name in sorted(os.listdir(here)) if not name.startswith(b".")]


def desk_fixture() -> Iterator[Desk]:
    """The body of the fixture ``desk``."""
    base = isolation.short_directory("ckd")
    os.chmod(base, 0o755)
    if os.geteuid() == 0:
        # So that a test may act as somebody else in it.
        os.chown(base, _NOBODY, _NOBODY)
    desk = Desk(base)
    if os.geteuid() == 0:
        for folder in (desk.root, desk.checkpoint_dir, desk.home):
            os.chown(folder, _NOBODY, _NOBODY)
    try:
        yield desk
        desk.close()
        if not desk.damaged:
            for folder in desk.stores():
                verify(folder)
    finally:
        desk.close()
        isolation.remove(base)
