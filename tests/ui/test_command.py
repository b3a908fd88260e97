"""``ckpt ui`` as a command: where it cannot run it says why, and where it can it leaves the terminal as it was."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading

import pytest

pytest.importorskip("textual", reason="the timeline needs textual, which is not installed")

from fabricatio_checkpoint.cli.commands.ui import theme_for
from support.cli_run import as_process
from support.live import Place, open_place
from support.poll import until

DEADLINE_S = 120.0
# Colours of any kind: the basic ones, of 256, and true ones.
COLOUR = re.compile(rb"\x1b\[[0-9;]*?(?<![0-9])(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")
WITHOUT_TEXTUAL = (
    "import sys; sys.modules['textual'] = None\n"
    "from fabricatio_checkpoint.cli.__main__ import main; sys.exit(main(sys.argv[1:]))"
)


@pytest.fixture
def place():
    with open_place() as opened:
        yield opened


class Terminal:
    """A program on a terminal of its own, of 80 columns and 24 rows; ``said`` is all that it has written there."""

    def __init__(self, place: Place, words: list[str], **environ: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self._theirs = theirs
        given = {**place.environ, "TERM": "xterm-256color", **environ}
        given = {name: value for name, value in given.items() if value}
        self.child = place.spawn(words, given, cwd=place.ws, stdin=theirs, stdout=theirs, stderr=theirs)
        self.said = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:
                return
            if not data:
                return
            self.said.extend(data)

    def sees(self, text: bytes) -> None:
        until(lambda: text in self.said or self.child.poll() is not None, DEADLINE_S)
        assert text in self.said, bytes(self.said)[-3000:]

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def ends(self) -> int:
        code = self.child.wait(DEADLINE_S)
        # The terminal is as it was: what is typed is shown again, and line by line.
        assert termios.tcgetattr(self._theirs)[:4] == self.before[:4]
        os.close(self._theirs)
        self._reader.join(10)
        os.close(self._ours)
        return code


def ckpt(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "fabricatio_checkpoint.cli", *words]


def test_a_person_looks_and_goes(place):
    (place.ws / "a.txt").write_text("one\n")
    place.save("the first one")
    (place.ws / "a.txt").write_text("two\n")
    seen = Terminal(place, ckpt("ui"), NO_COLOR="")
    seen.sees(b"the first one")
    seen.sees(b"1 change since #1")
    seen.press(b"q")
    assert seen.ends() == 0
    assert COLOUR.search(seen.said)
    assert b"Traceback" not in seen.said


def test_without_colour_none_is_sent(place):
    (place.ws / "a.txt").write_text("one\n")
    place.save("the first one")
    seen = Terminal(place, ckpt("ui"), NO_COLOR="1")
    seen.sees(b"the first one")
    seen.sees(b"no changes since #1")
    seen.press(b"\x03")
    assert seen.ends() == 0
    assert COLOUR.search(seen.said) is None


def test_what_is_not_tracked_is_an_error_before_the_screen_is_taken(place):
    seen = Terminal(place, ckpt("ui"))
    assert seen.ends() == 20
    assert b"begin with: ckpt save" in seen.said
    assert b"\x1b[?1049h" not in seen.said
    assert place.stores() == []


def test_without_the_extra_one_line_says_what_to_install(place):
    seen = Terminal(place, [sys.executable, "-P", "-c", WITHOUT_TEXTUAL, "ui"], NO_COLOR="1")
    assert seen.ends() == 2
    assert bytes(seen.said) == b'ckpt: ui needs Textual; pip install "fabricatio-checkpoint[ui]"\r\n'


def test_off_a_terminal_it_says_so(place):
    done = as_process("ui", cwd=place.ws)
    assert done.code == 2
    assert done.stderr.startswith("ckpt: ui needs a terminal")
    assert len(done.stderr.splitlines()) == 1
    assert as_process("--json", "ui", cwd=place.ws).document["error"]["kind"] == "usage"
    seen = Terminal(place, ckpt("ui"), TERM="dumb")
    assert seen.ends() == 2
    assert b"TERM says it is dumb" in seen.said


def test_its_help_has_the_keys(tmp_path):
    done = as_process("ui", "--help", cwd=tmp_path)
    assert done.code == 0
    assert "usage: ckpt ui" in done.out
    assert "  r         restore the whole tree to the selected checkpoint" in done.out
    assert "example:\n  ckpt ui\n" in done.out


@pytest.mark.parametrize(
    ("environ", "theme"),
    [
        ({}, None),
        ({"COLORFGBG": "0;15"}, "textual-light"),
        ({"COLORFGBG": "0;default;7"}, "textual-light"),
        ({"COLORFGBG": "15;0"}, None),
        ({"NO_COLOR": "1"}, "ansi-dark"),
        ({"NO_COLOR": "1", "COLORFGBG": "0;15"}, "ansi-light"),
        ({"TEXTUAL_THEME": "nord", "COLORFGBG": "0;15"}, None),
    ],
)
def test_the_theme_follows_the_terminal(environ, theme):
    assert theme_for(environ) == theme
