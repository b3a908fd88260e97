"""Makes the pictures in ``docs/screens/`` from the real program: ``python3 tests/screens.py [--columns N] [FOLDER]``.

Commands run on a pseudo terminal against a daemon of their own, in a home of their own, on a small project. Each
picture is an SVG for dark pages, one for light pages, and the plain text. It needs ``rich`` and the project's packages
(the environment that ``tests/run.py`` makes has them).
"""

import argparse
import io
import os
import random
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support import isolation, leftovers
from support.demo_project import make_project, wreck_project
from support.terminal import Terminal

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 80
HOME = b"/home/ada"
COMMAND = [sys.executable, "-P", "-m", "fabricatio_checkpoint.cli"]
CELL = (12.2, 24.4)
"""Width and height of a character in the pictures, as rich draws them."""
FRAME_OF_A_BAR = re.compile(rb"\r([^\r]*\xe2\x94\x81[^\r]*left)")
SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 SIZE" role="img">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs>{lines}</defs>
<rect width="100%" height="100%" rx="6" fill="{background}"/>
<g transform="translate(12, 10)" class="{unique_id}-matrix">{backgrounds}{matrix}</g>
</svg>
"""


class Stage:
    """The project ``shop`` in a private home, a terminal in it, and a sheet on which commands leave what they show."""

    def __init__(self, base: Path, columns: int) -> None:
        self.home = base / "h"
        self.shop = self.home / "shop"
        environ = isolation.private_environment(str(base), os.environ)
        environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / name) for name in ("protocol", "daemon", "client"))
        environ.pop("NO_COLOR", None)
        self.terminal = Terminal(columns, {**environ, "PAGER": "cat", "LANG": "C.UTF-8"}, self.shop)
        self.sheet = bytearray()
        make_project(self.shop)

    def ckpt(self, *words: str, answer: bytes = b"") -> None:
        """Run a command, typing an answer to its question; it and what it says go on the sheet."""
        _, said = self.terminal.run([*COMMAND, *words], answer, b"[y/N] ")
        self.sheet += b"\x1b[1m$ ckpt " + shlex.join(words).encode() + b"\x1b[m\n"
        self.sheet += _settled(said).rstrip(b"\n") + b"\n"

    def quietly(self, *words: str) -> bytes:
        """Run a command that is not shown."""
        code, said = self.terminal.run([*COMMAND, *words])
        if code not in (0, 20):
            sys.exit(f"screens.py: ckpt {shlex.join(words)} ended with {code}: {said.decode()}")
        return said

    def told(self, words: str, frame: bytes) -> None:
        """Put a command and a single line of it on the sheet."""
        self.sheet += b"\x1b[1m$ ckpt " + words.encode() + b"\x1b[m\n" + frame + b"\n"

    def tear_off(self) -> bytes:
        """Give the sheet, and begin another."""
        sheet = bytes(self.sheet).replace(os.fsencode(self.home), HOME)
        self.sheet.clear()
        return sheet


def _settled(said: bytes) -> bytes:
    """Give what is left on the terminal once lines have overwritten themselves."""
    return b"\n".join(line.rpartition(b"\r")[2] for line in said.split(b"\n"))


def wrecked(stage: Stage) -> None:
    """The whole story, as the first screen of the README has it."""
    stage.ckpt("save", "before the agent")
    wreck_project(stage.shop)
    stage.sheet += (
        b"\x1b[2m# an agent is at work: the tests are gone, a module is, and another is not what it was\x1b[m\n"
    )
    stage.ckpt("status")
    stage.ckpt("reset", answer=b"y\n")


def status(stage: Stage) -> None:
    """What differs."""
    wreck_project(stage.shop)
    stage.ckpt("status")


def diff(stage: Stage) -> None:
    """A patch, and its summary."""
    stage.ckpt("diff", "--stat")
    stage.ckpt("diff", "--", "src/shop/cart.py")


def reset(stage: Stage) -> None:
    """The question, and what was done."""
    stage.ckpt("reset", answer=b"y\n")


def undo(stage: Stage) -> None:
    """The way back, and back again."""
    stage.ckpt("undo")
    stage.ckpt("redo")


def history(stage: Stage) -> None:
    """A list with tags and all kinds."""
    (stage.shop / "src" / "shop" / "main.py").write_text("from shop.cart import total\n\nprint(total([(250, 4)]))\n")
    stage.quietly("save", "sum up four of them", "--tag", "works")
    (stage.shop / "config.toml").write_text('currency = "EUR"\nlanguage = "de"\n')
    stage.quietly("save", "prices in German, with a message that is too long for one line of a terminal of this width")
    stage.ckpt("ls")
    stage.ckpt("show", "works")


def stores(stage: Stage) -> None:
    """All worktrees, and what they take."""
    make_project(stage.home / "a second project")
    stage.quietly("-w", str(stage.home / "a second project"), "save")
    stage.ckpt("workspaces")
    stage.ckpt("usage")


def errors(stage: Stage) -> None:
    """What, where, what to do."""
    stage.ckpt("show", "beef")
    stage.ckpt("rollback", "HEAD", "../shop2/cart.py")
    stage.ckpt("stauts")
    stage.ckpt("-w", str(stage.home), "status")


def progress(stage: Stage) -> None:
    """One moment of a long command."""
    chance = random.Random(5)
    data = stage.shop / "data"
    data.mkdir()
    for number in range(60):
        (data / f"{number:03}.bin").write_bytes(chance.randbytes(4 << 20))
    stage.quietly("save")
    for words in ("verify --read-data", "export HEAD ../copy"):
        frames = FRAME_OF_A_BAR.findall(stage.quietly(*words.split()))
        if frames:
            stage.told(words, frames[len(frames) // 2])


def help_(stage: Stage) -> None:
    """How a command explains itself."""
    stage.ckpt("reset", "--help")


SCENES: dict[str, Callable[[Stage], None]] = {
    "wrecked": wrecked,
    "status": status,
    "diff": diff,
    "reset": reset,
    "undo": undo,
    "ls": history,
    "stores": stores,
    "errors": errors,
    "help": help_,
    "progress": progress,
}
"""In this order: each goes on with what the ones before it have left."""


def main() -> int:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=str(ROOT / "docs" / "screens"), type=Path)
    parser.add_argument("--columns", type=int, default=COLUMNS)
    given = parser.parse_args()
    Path(given.folder).mkdir(parents=True, exist_ok=True)
    with stage(given.columns) as opened:
        for name, play in SCENES.items():
            play(opened)
            write(Path(given.folder) / name, opened.tear_off().decode(), given.columns)
    return 0


@contextmanager
def stage(columns: int) -> Iterator[Stage]:
    """A stage that is taken down again, with its daemon."""
    base = isolation.short_directory("ckd")
    try:
        yield Stage(Path(base), columns)
    finally:
        leftovers.kill(leftovers.daemons_of(base))
        isolation.remove(base)


def write(path: Path, shown: str, columns: int) -> None:
    """Write the three forms of one picture."""
    from rich.console import Console
    from rich.terminal_theme import TerminalTheme
    from rich.text import Text

    themes = {
        "dark": TerminalTheme(
            (13, 17, 23), (201, 209, 217),
            [(110, 118, 129), (255, 123, 114), (63, 185, 80), (210, 153, 34), (88, 166, 255), (188, 140, 255),
             (57, 197, 207), (201, 209, 217)],
        ),
        "light": TerminalTheme(
            (246, 248, 250), (36, 41, 47),
            [(36, 41, 47), (207, 34, 46), (17, 99, 41), (125, 78, 0), (9, 105, 218), (130, 80, 223), (27, 124, 131),
             (110, 119, 129)],
        ),
    }  # fmt: skip
    for name, theme in themes.items():
        console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="standard")
        for line in Text.from_ansi(shown.rstrip("\n")).split(allow_blank=True):
            # As a terminal does, which knows nothing of words.
            for part in line.divide(range(columns, len(line), columns)):
                console.print(part, no_wrap=True, overflow="ignore", crop=False)
        code = SVG.replace("{background}", theme.background_color.hex)
        drawn = console.export_svg(title="", theme=theme, code_format=code, unique_id=path.name)
        lines = drawn.count("<clipPath") + 1
        size = f"{columns * CELL[0] + 24:.0f} {lines * CELL[1] + 20:.0f}"
        path.with_name(f"{path.name}-{name}.svg").write_text(drawn.replace("SIZE", size, 1))
    plain = "\n".join(line.rstrip() for line in Text.from_ansi(shown).plain.splitlines())
    path.with_suffix(".txt").write_text(plain.rstrip() + "\n")


if __name__ == "__main__":
    sys.exit(main())
