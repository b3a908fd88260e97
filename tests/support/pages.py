"""The project's pages as the tests read them: their blocks, their links, and what they say of the command line.

How a block is tested is said by the word behind its fence:

- ``sh``: run by ``sh -eu``, block after block of a page, in one worktree; variables and the directory are kept.
- ``console``: lines with ``$`` are run likewise, and what they print is as the page shows it (see ``likened``).
- ``python``: run as a program of its own, at its place among the others.
- ``json``, ``toml``, ``xml``: can be read as what they are. ``text``: shows something, and no command.

``BEFORE`` is what has happened when somebody opens a page. ``NOT_RUN`` lists the ``sh`` blocks that no test can run, by
page and how they begin; their lines are still parsed.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "BEFORE",
    "NOT_RUN",
    "PAGES",
    "ROOT",
    "RUNNABLE",
    "Block",
    "Likeness",
    "blocks",
    "ckpt_lines",
    "exchanges",
    "likened",
    "links",
]

ROOT = Path(__file__).resolve().parents[2]
_OTHERS = {"protocol/WIRE.md", "tests/FAULTS.md", "tests/protocol/data/openrpc/README.md", "CHANGELOG.md"}
"""Pages that tests of their own look at, that come from elsewhere, or that tell of the past."""

RUNNABLE = ("sh", "console", "python")
NOT_RUN: dict[tuple[str, str], str] = {
    ("README.md", "python3 tests/demo.py"): "a whole demonstration, which needs a package index the first time",
    ("README.md", "python3 tests/run.py"): "it is what runs this test",
    ("README.md", 'pip install ".[cli]"'): "needs a package index",
    ("tests/README.md", "python3 tests/run.py"): "it is what runs this test",
    ("tests/benchmarks/README.md", "python3 tests/benchmarks/"): "measures for minutes",
    ("protocol/README.md", "echo"): "needs a netcat that knows Unix sockets; tests/foreign/ uses whichever is there",
    (
        "systemd/README.md",
        "ckpt daemon install",
    ): "speaks to the user's systemd; tests/e2e/test_systemd.py has a false one",
    ("systemd/README.md", "schtasks"): "Windows",
}

BEFORE = {"docs/troubleshooting.md": "ckpt save"}
"""What a reader of a page has done already."""

_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
_INLINE = re.compile(r"`(ckpt [^`]+)`")
_ID = re.compile(r"\b(?:[0-9a-f]{40}|[0-9a-f]{12}|[0-9a-f]{10})\b")
_MADE_UP = (
    # An age on a terminal, and in a pipe the time.
    (re.compile(r"\b(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\d+ (?:second|minute|hour)s? ago|just now)"), "WHEN"),
    (re.compile(r"\bpid \d+"), "pid N"),
    (re.compile(r"\b\d+(?:\.\d)? (?:B|KiB|MiB)\b"), "SIZE"),
    (re.compile(r"\b\d+ objects?\b"), "N objects"),
)


def _found() -> Iterator[str]:
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        for name in names:
            path = Path(folder, name).relative_to(ROOT).as_posix()
            if name.endswith(".md") and path not in _OTHERS:
                yield path


PAGES = sorted(_found())
"""Every page of the project, relative to its root."""


class Block(NamedTuple):
    """A fenced block: its page, the line it begins at, the word behind its fence, and its text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where to look when it fails."""
        return f"{self.page}:{self.line}"

    @property
    def why_not_run(self) -> str | None:
        """Why no test runs it; None where one does."""
        reasons = (why for (page, start), why in NOT_RUN.items() if page == self.page and self.text.startswith(start))
        return next(reasons, None)


def blocks(page: str) -> list[Block]:
    """Give the fenced blocks of a page in their order."""
    text = (ROOT / page).read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[1].strip(), found[2])
        for found in _FENCE.finditer(text)
    ]


def links(page: str) -> list[str]:
    """Give where a page's links and pictures lead, those to other sites left out."""
    text = _FENCE.sub("", (ROOT / page).read_text())
    found = [one or other for one, other in _LINK.findall(text)]
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def exchanges(block: Block) -> list[tuple[str, str]]:
    """Divide a ``console`` block into commands and what they print."""
    parts: list[tuple[str, str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            parts.append((line[2:], ""))
        elif line.startswith("> ") and not parts[-1][1]:
            parts[-1] = (f"{parts[-1][0]}\n{line[2:]}", "")
        else:
            assert parts, f"{block.place}: output without a command"
            parts[-1] = (parts[-1][0], f"{parts[-1][1]}{line}\n")
    return parts


class Likeness:
    """Makes what a page shows and what is so comparable: ids by their order of appearance, times and sizes alike."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def of(self, text: str) -> str:
        """Give the text with everything in it replaced that is other each time."""
        for pattern, word in _MADE_UP:
            text = pattern.sub(word, text)
        lines = [line.rstrip() for line in _ID.sub(self._number, text).splitlines()]
        return "\n".join(re.sub(r" {2,}", "  ", line) for line in lines)

    def _number(self, found: re.Match[str]) -> str:
        number = self._ids.setdefault(found[0][:10], len(self._ids) + 1)
        return f"<{'id' if len(found[0]) == 40 else 'digits'} {number}>"


def likened(shown: str, real: str) -> bool:
    """Tell whether what is shown is what is so; a line of three dots stands for any lines."""
    pattern = "\n".join(".*" if line.strip() == "..." else re.escape(line) for line in shown.splitlines())
    return re.fullmatch(pattern, real, re.DOTALL) is not None


def ckpt_lines(page: str) -> Iterator[tuple[str, str]]:
    """Give each command line of ``ckpt`` on a page and where it stands: in blocks and in running text."""
    for block in blocks(page):
        if block.language == "sh":
            for line in block.text.splitlines():
                if line.startswith("ckpt "):
                    yield block.place, line
        elif block.language == "console":
            yield from ((block.place, command) for command, _ in exchanges(block) if command.startswith("ckpt "))
    for found in _INLINE.findall(_FENCE.sub("", (ROOT / page).read_text())):
        yield page, found
