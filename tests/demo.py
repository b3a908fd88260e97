"""Try it: wrecks a copy of Python's standard library and brings it back with ``ckpt``, as a terminal would show it.

Needs a bare Python 3.11 or newer and (the first time) a package index. Touches nothing outside this repository and a
temporary directory: home, configuration and runtime directories are private ones.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - said in one line, where an ImportError would come otherwise
    sys.exit("demo.py needs Python 3.11 or newer, this is " + sys.version.split()[0])

import itertools
import json
import os
import random
import shlex
import shutil
import subprocess
import sysconfig
import time
from collections import Counter
from pathlib import Path

from support import bootstrap, isolation, leftovers, same

EXIT_CANNOT_PREPARE = 3
LEFT_OUT = shutil.ignore_patterns("__pycache__", "site-packages", "dist-packages", "*.pyc", "*.a", ".git*")


class WrongError(Exception):
    """Something is not as promised; the text says what."""


class Terminal:
    """Runs commands in the worktree, and shows them with what they print."""

    def __init__(self, program: str, worktree: Path, environ: dict[str, str]) -> None:
        self._program = program
        self._worktree = worktree
        self._environ = environ

    def ckpt(self, *arguments: str, head: int = 12, tail: int = 4) -> str:
        """Run ``ckpt``; show the first and the last lines of a long output; give its standard output."""
        say(f"$ ckpt {shlex.join(arguments)}")
        begun = time.monotonic()
        done = self._run(arguments)
        seconds = time.monotonic() - begun
        show([*done.stderr.splitlines(), *done.stdout.splitlines()], head, tail)
        say(f"  ({seconds:.2f} s)\n")
        if done.returncode:
            raise WrongError(f"ckpt {arguments[0]} ended with exit code {done.returncode}")
        return done.stdout

    def json(self, *arguments: str) -> dict:
        """Run ``ckpt --json`` without showing it; give the document."""
        return json.loads(self._run(("--json", *arguments)).stdout)

    def _run(self, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program, *arguments],
            cwd=self._worktree,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )


def main() -> int:
    """Run the demo; 0 where everything came back, 1 with a line where not, 3 where it could not begin."""
    try:
        place = bootstrap.prepare(".venv-demo", dev=False, editable=False)
    except bootstrap.CannotPrepareError as error:
        print(f"demo.py: {error}")
        return EXIT_CANNOT_PREPARE
    temporary = isolation.short_directory("ckd")
    environ = bootstrap.with_path(place, isolation.private_environment(temporary, os.environ))
    try:
        play(Terminal(bootstrap.binary(place, "ckpt"), Path(temporary, "h", "project"), environ), Path(temporary))
    except WrongError as error:
        say(f"demo.py: FAILED: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        leftovers.kill(leftovers.daemons_of(temporary))
        isolation.remove(temporary)
    return 0


def play(terminal: Terminal, temporary: Path) -> None:
    """The whole story. Raises WrongError where something is not as promised."""
    worktree, pristine, wreck = temporary / "h" / "project", temporary / "pristine", temporary / "wreck"
    outside = temporary / "outside"
    files = make_worktree(worktree, outside)
    copy(worktree, pristine)
    say(f"A worktree: this Python's standard library, {files:,} files.\n".replace(",", " "))

    before = terminal.ckpt("save", "before the agent").strip()
    terminal.ckpt("ls")

    victim = wreck_worktree(worktree, outside)
    terminal.ckpt("status", head=10)
    count_changes(terminal)
    terminal.ckpt("diff", "--stat", head=3, tail=3)

    terminal.ckpt("rollback", before, victim)
    check_file(worktree, pristine, victim)

    copy(worktree, wreck)
    terminal.ckpt("reset", "--yes")
    check_same(worktree, pristine, "the worktree", "what was saved")
    check_outside(outside)

    terminal.ckpt("undo")
    check_same(worktree, wreck, "the worktree", "the wreck before the reset")
    terminal.ckpt("redo")
    check_same(worktree, pristine, "the worktree", "what was saved")

    terminal.ckpt("ls")
    terminal.ckpt("daemon", "stop")
    check_nothing_runs(temporary)
    say("Everything came back. No daemon is left running, and the temporary directory is removed.")


def make_worktree(worktree: Path, outside: Path) -> int:
    """Copy the standard library; give the number of files. Links and an empty directory are added to it."""
    shutil.copytree(sysconfig.get_paths()["stdlib"], worktree, symlinks=True, ignore=LEFT_OUT)
    (worktree / "odd names").mkdir()
    (worktree / "odd names" / "link to os.py").symlink_to("../os.py")
    (worktree / "odd names" / "dangling").symlink_to("nowhere")
    (worktree / "odd names" / "empty").mkdir()
    script = worktree / "odd names" / "script.sh"
    script.write_text("#!/bin/sh\necho hello\n")
    script.chmod(0o755)
    Path(os.fsdecode(os.fsencode(worktree) + b"/odd names/caf\xe9")).write_text("a name that is not UTF-8\n")
    outside.mkdir()
    (outside / "precious").write_text("not part of the worktree\n")
    return len(plain_files(worktree))


def plain_files(worktree: Path) -> list[Path]:
    """All regular files, sorted; links are not followed."""
    found = (Path(folder, name) for folder, _, names in os.walk(worktree) for name in names)
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def wreck_worktree(worktree: Path, outside: Path) -> str:
    """Do what a program gone wild might do; give the path of one of the files that are gone."""
    chance = random.Random(2024)
    (worktree / "json" / "tool.py").unlink(missing_ok=True)
    swapped = worktree / "os.py"
    linked = worktree / "email"
    doomed = [path for path in plain_files(worktree) if path != swapped and linked not in path.parents]
    chance.shuffle(doomed)
    third = len(doomed) // 3
    for path in doomed[:third]:
        path.unlink()
    for index, path in enumerate(doomed[third : 2 * third]):
        edit(path, index)
    for index in range(300):
        added = worktree / f"generated_{index % 7}" / f"file {index}.txt"
        added.parent.mkdir(exist_ok=True)
        added.write_text(f"made up {index}\n" * 50)
    swapped.unlink()
    swapped.mkdir()
    (swapped / "now a directory.txt").write_text("in the way\n")
    shutil.rmtree(linked)
    linked.symlink_to(outside)
    say("... an agent goes wild here:")
    say(f"    {third + 1:5} files deleted, {third:5} edited, 300 added;")
    say("    os.py is now a directory, and email/ a link to a directory outside\n")
    return str(doomed[0].relative_to(worktree))


def edit(path: Path, index: int) -> None:
    """Change a file in one of four ways."""
    content = path.read_bytes()
    if index % 4 == 0:
        path.write_bytes(b"# wrecked\n" + content)
    elif index % 4 == 1:
        path.write_bytes(content[: len(content) // 2] + b"\0\xff\r\n")
    elif index % 4 == 2:
        path.write_bytes(bytes(reversed(content)) + b"x")
    else:
        path.write_bytes(b"")
        path.chmod(0o755)


def count_changes(terminal: Terminal) -> None:
    """Say how many paths differ, by the kind of change."""
    counts = Counter(change["change"] for change in terminal.json("status")["changes"])
    say("  " + ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts)) + "\n")
    if sum(counts.values()) < 600:
        raise WrongError(f"status names only {sum(counts.values())} changes")


def check_file(worktree: Path, pristine: Path, name: str) -> None:
    """Raise WrongError where one file is not as it was saved."""
    if not (worktree / name).is_file() or (worktree / name).read_bytes() != (pristine / name).read_bytes():
        raise WrongError(f"{name} did not come back by the rollback")


def check_same(one: Path, other: Path, what: str, wanted: str) -> None:
    """Compare all names, types, modes, bytes and link targets; raise WrongError with the first differences."""
    found = list(itertools.islice(same.differences(str(one), str(other)), 6))
    if found:
        raise WrongError(f"{what} is not {wanted}: " + "; ".join(ascii(line) for line in found))
    say(f"  compared: {what} is exactly {wanted} (names, types, modes, bytes, link targets)\n")


def check_outside(outside: Path) -> None:
    """Raise WrongError where a restore wrote through the link that had taken a directory's place."""
    if [path.name for path in outside.iterdir()] != ["precious"]:
        raise WrongError("something outside the worktree was touched")


def check_nothing_runs(temporary: Path) -> None:
    """Raise WrongError where the daemon goes on after it was stopped."""
    left = leftovers.wait_until_gone(str(temporary), 10)
    if left:
        raise WrongError(f"the daemon still runs: {left}")


def copy(source: Path, target: Path) -> None:
    """Copy a directory with its links and modes."""
    shutil.copytree(source, target, symlinks=True)


def show(lines: list[str], head: int, tail: int) -> None:
    """Print the first and the last lines of an output."""
    if len(lines) <= head + tail + 1:
        say("\n".join(lines))
    else:
        say("\n".join([*lines[:head], f"... {len(lines) - head - tail} more lines ...", *lines[len(lines) - tail :]]))


def say(text: str) -> None:
    """Print at once, so that the story is told while it happens."""
    print(text.encode(errors="replace").decode(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
