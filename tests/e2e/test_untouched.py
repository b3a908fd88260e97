"""Worktrees as users have them: only a restore touches their files, and nothing touches their Git repositories."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from support.live import Place
from support.same import differences
from support.worktrees import run_git

pytestmark = pytest.mark.e2e


def _facts(path: str | Path) -> tuple[int, ...]:
    seen = os.lstat(path)
    return seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def _look(root: Path) -> dict[str, tuple[int, ...]]:
    """All that shows where something was touched, times of directories included."""
    found = {}
    for folder, folders, names in os.walk(root):
        for name in (".", *folders, *names):
            path = os.path.join(folder, name)
            found[path] = _facts(path)
    return found


def _look_at_git(*roots: Path) -> dict[str, tuple[int, ...]]:
    """The same of every ``.git`` and what is below it."""
    return {path: seen for root in roots for path, seen in _look(root).items() if ".git" in path.split("/")}


def _git(where: Path, *words: str) -> bytes:
    return run_git("-c", "protocol.file.allow=always", *words, cwd=str(where))


def _repository(where: Path) -> Path:
    where.mkdir(parents=True)
    _git(where, "init", "-q", "-b", "main", ".")
    (where / "f").write_bytes(b"one\r\n")
    _git(where, "add", ".")
    _git(where, "commit", "-qm", "one")
    return where


def test_no_verb_but_a_restore_touches_the_worktree(place: Place):
    _repository(place.ws / "nested")
    (place.ws / "d").mkdir()
    (place.ws / "d" / "f").write_bytes(b"one\n")
    (place.ws / "l").symlink_to("nowhere")
    (place.ws / "ignored.log").write_bytes(b"mine\n")
    (place.ws / ".gitignore").write_bytes(b"*.log\n")
    os.mkfifo(place.ws / "fifo")
    first = place.save("one")
    (place.ws / "d" / "f").write_bytes(b"two\n")
    (place.ws / "new").write_bytes(b"")
    before = _look(place.ws)
    second = place.save("two", "--rehash")
    asking = "status|diff|diff --stat|ls|ls d|verify --read-data|usage|doctor|workspaces|daemon status|save"
    for words in [line.split() for line in asking.split("|")]:
        place.done(*words)
    place.done("show", first)
    place.done("search", "x")
    place.done("diff", first, second)
    place.done("cat", first, "d/f")
    place.done("export", first, str(place.base / "out"))
    place.done("reset", first, "--dry-run")
    place.done("rollback", first, "d", "--dry-run")
    place.done("tag", first, "name")
    place.done("untag", "name")
    place.done("drop", second)
    for words in (("thin",), ("gc",), ("daemon", "stop"), ("prune",), ("forget", "--yes")):
        place.done(*words)
    assert _look(place.ws) == before


def test_a_watch_leaves_nothing_but_the_time_of_its_trial_in_the_worktree(place: Place):
    """Whether the system tells of changes is tried out with a file in the root, which is gone at once."""
    (place.ws / "d").mkdir()
    (place.ws / "d" / "f").write_bytes(b"one\n")
    place.save("one")
    before = _look(place.ws)
    place.done("watch", "on")
    place.done("watch", "off")
    place.done("daemon", "stop")
    after = _look(place.ws)
    root = os.path.join(place.ws, ".")
    assert after.pop(root)
    before.pop(root)
    assert after == before


def test_submodules_and_linked_worktrees_come_back_and_git_does_not_notice(place: Place):
    origin = _repository(place.base / "origin")
    main = _repository(place.ws / "main")
    _git(main, "submodule", "--quiet", "add", str(origin), "module")
    _git(main, "commit", "-qm", "module")
    linked = place.ws / "linked"
    _git(main, "worktree", "add", "-q", str(linked))
    whole, alone = place.save("whole"), place.done("-w", str(linked), "save", "alone").out.strip()
    assert whole != alone
    shutil.copytree(place.ws, place.base / "copy", symlinks=True)
    before = _look_at_git(place.ws)

    def wreck() -> None:
        for path in (main / "f", linked / "f"):
            path.write_bytes(b"wreck")
        (main / "module" / "f").unlink()
        (linked / "new").write_bytes(b"")

    wreck()
    told = place.json("-w", str(linked), "reset", alone)
    assert (told["written"], told["deleted"]) == (["f"], ["new"])
    assert ((main / "f").read_bytes(), (linked / "f").read_bytes()) == (b"wreck", b"one\r\n")
    place.done("-w", str(place.ws), "reset", whole)
    assert list(differences(str(place.ws), str(place.base / "copy"))) == []
    wreck()
    place.done("-w", str(place.ws), "rollback", whole, "main/module")
    assert (main / "module" / "f").read_bytes() == b"one\r\n"
    place.done("-w", str(place.ws), "undo")
    assert not (main / "module" / "f").exists()
    place.done("-w", str(place.ws), "reset", whole)
    assert list(differences(str(place.ws), str(place.base / "copy"))) == []
    assert _look_at_git(place.ws) == before
    assert len(place.stores()) == 2
    for where in (main, main / "module", linked):
        assert _git(where, "status", "--porcelain") == b""
        _git(where, "fsck", "--strict")


def _stand_at(path: Path, what: str) -> None:
    if what == "fifo":
        os.mkfifo(path)
    elif what == "itself":
        path.symlink_to(".git")
    elif what == "nothing in it":
        path.mkdir()
    elif what == "much":
        path.write_bytes(bytes(3 << 20))
    else:
        path.write_text(what)


@pytest.mark.parametrize("where", [".", "nested"])
def test_what_stands_at_dot_git_stops_nothing(place: Place, where: str):
    for number, what in enumerate(
        ("fifo", "itself", "nothing in it", "much", "gitdir: .git\n", "gitdir: /nonexistent\n", "gitdir:", "", "[core")
    ):
        root = place.ws / str(number)
        (root / where).mkdir(parents=True)
        _stand_at(root / where / ".git", what)
        (root / where / "f").write_bytes(b"one\n")
        before = _facts(root / where / ".git")
        saved = place.json("save", "one", cwd=root)
        assert (saved["complete"], saved["files"]) == (True, 1), what
        (root / where / "f").write_bytes(b"two\n")
        place.done("reset", cwd=root)
        assert (root / where / "f").read_bytes() == b"one\n", what
        assert _facts(root / where / ".git") == before, what


def test_a_worktree_of_another_user_is_saved_and_restored(place: Place):
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    _repository(place.ws / "nested")
    tool = place.ws / "nested" / "tool"
    tool.write_bytes(b"one\n")
    tool.chmod(0o750)
    for folder, folders, names in os.walk(place.ws):
        for name in (".", *folders, *names):
            os.lchown(os.path.join(folder, name), 12345, 12345)
    place.save("one")
    before = _look_at_git(place.ws)
    tool.write_bytes(b"two\n")
    place.done("reset")
    assert (tool.read_bytes(), stat.S_IMODE(tool.stat().st_mode)) == (b"one\n", 0o750)
    assert _look_at_git(place.ws) == before
