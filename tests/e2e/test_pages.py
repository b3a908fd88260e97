"""Every block of the pages that holds commands or a program, in its order, in a worktree for each page."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import screens
from support import pages
from support.demo_project import make_project
from support.live import Place

pytestmark = pytest.mark.e2e

COMMAND = '#!/bin/sh\nexec "{python}" -P -m {module} "$@"\n'
KEPT = 'trap \'pwd > "{folder}/pwd"; env -0 > "{folder}/env"\' EXIT\nset -a\n'


class Reader:
    """Somebody who types what a page says, in a project called ``shop``; variables and the directory are kept."""

    def __init__(self, place: Place) -> None:
        self.home = place.home
        self.folder = place.base / "kept"
        self.folder.mkdir()
        self.cwd = str(place.home / "shop")
        make_project(Path(self.cwd))
        programs = place.base / "bin"
        programs.mkdir()
        for name, module in (("ckpt", "fabricatio_checkpoint.cli"), ("ckptd", "ckptd")):
            program(programs / name, COMMAND.format(python=sys.executable, module=module))
        program(programs / "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        self.environ = {**place.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONWARNINGS": "error"}

    def sh(self, text: str) -> tuple[int, str]:
        """Run some lines; give the exit code and everything that was printed."""
        done = self.run(["sh", "-euc", KEPT.format(folder=self.folder) + text])
        self.cwd = (self.folder / "pwd").read_text().rstrip("\n")
        pairs = (each.partition("=") for each in (self.folder / "env").read_text().split("\0") if each)
        self.environ = {name: value for name, _, value in pairs}
        return done.returncode, done.stdout

    def run(self, words: list[str]) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end."""
        return subprocess.run(
            words, cwd=self.cwd, env=self.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=90,
        )  # fmt: skip


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def runnable(page: str) -> list[pages.Block]:
    return [block for block in pages.blocks(page) if block.language in pages.RUNNABLE and not block.why_not_run]


@pytest.mark.parametrize("page", [page for page in pages.PAGES if runnable(page)])
def test_the_blocks_of_a_page_do_what_it_says(place, page):
    reader = Reader(place)
    reader.sh(pages.BEFORE.get(page, ""))
    shown, real = pages.Likeness(), pages.Likeness()
    for block in runnable(page):
        if block.language == "console":
            for command, output in pages.exchanges(block):
                said = reader.sh(command + "\n")[1].replace(str(reader.home), "/home/ada")
                wanted, found = shown.of(output), real.of(said)
                assert pages.likened(wanted, found), f"{block.place}: $ {command}\n{said}"
        elif block.language == "sh":
            code, said = reader.sh(block.text)
            assert code == 0, f"{block.place}: {said}"
        else:
            done = reader.run([sys.executable, "-c", block.text])
            assert done.returncode == 0, f"{block.place}: {done.stdout}"


def test_the_screens_are_what_the_program_shows(tmp_path):
    """As far as words go: how wide a column of a table is depends on how long ago things were."""
    pytest.importorskip("rich")
    with screens.stage(screens.COLUMNS) as stage:
        for name in [name for name in screens.SCENES if name != "progress"]:
            screens.SCENES[name](stage)
            screens.write(tmp_path / name, stage.tear_off().decode(), screens.COLUMNS)
            shown, real = pages.Likeness(), pages.Likeness()
            kept = (pages.ROOT / "docs" / "screens" / f"{name}.txt").read_text()
            made = (tmp_path / f"{name}.txt").read_text()
            assert real.of(made).split() == shown.of(kept).split(), f"{name}: python3 tests/screens.py makes it anew"


def test_a_page_that_is_wrong_is_found_out():
    text = "$ ckpt save\n3f786850e387550fdab836ed7e6dc881de23001b\n$ a \\\n> b\n"
    assert pages.exchanges(pages.Block("x", 1, "console", text)) == [
        ("ckpt save", "3f786850e387550fdab836ed7e6dc881de23001b\n"),
        ("a \\\nb", ""),
    ]
    shown, real = pages.Likeness(), pages.Likeness()
    one, other = "3f786850e387550fdab836ed7e6dc881de23001b", "89e6c98d92887913cadf06b2adb97f26cde4849b"
    assert shown.of(f"{one} {one[:10]} 2 seconds ago") == real.of(f"{other} {other[:10]} just now")
    assert shown.of(other[:10]) != real.of(other[:10])
    assert pages.likened("a\n...\nb", "a\nx\ny\nb")
    assert not pages.likened("a\n...\nb", "a\nx\ny")
    assert not pages.likened("a", "a\nb")
