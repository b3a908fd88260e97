"""Every example of ``protocol/WIRE.md``, from top to bottom, in one conversation with a real daemon."""

import json
import os
import socket
import subprocess
from typing import Any, BinaryIO

import pytest

from support import wire_page
from support.live import Place

pytestmark = pytest.mark.e2e


def shown_and_real(place: Place) -> dict[str, str]:
    """What the page shows, and what is so here; what only the daemon knows is learned from its replies."""
    found = os.stat(place.ws)
    return {
        "/home/u/.fabricatio-checkpoint": str(place.checkpoint_dir),
        "/home/u/project": str(place.ws),
        "/run/user/1000/fabricatio-checkpoint/ckptd.sock": place.socket,
        "65024": str(found.st_dev),
        "2163835": str(found.st_ino),
    }


class Talk:
    """A connection, and what it has said and nobody has looked at: answers and notifications come side by side."""

    def __init__(self, connected: socket.socket, lines: BinaryIO) -> None:
        self._connected = connected
        self._lines = lines
        self._said: list[Any] = []

    def send(self, line: str) -> None:
        self._connected.sendall(line.encode() + b"\n")

    def next(self, notice: bool) -> Any:
        while True:
            for index, message in enumerate(self._said):
                if is_notice(message) == notice:
                    return self._said.pop(index)
            self._said.append(json.loads(self._lines.readline()))


def is_notice(message: Any) -> bool:
    return "method" in message


def test_the_examples_are_what_happens(place):
    place.done("daemon", "start")
    likeness = wire_page.Likeness(shown_and_real(place))
    with socket.socket(socket.AF_UNIX) as connected:
        connected.settimeout(60)
        connected.connect(place.socket)
        with connected.makefile("rb") as lines:
            exchanged = talk_through(place, Talk(connected, lines), likeness)
    assert exchanged > 20


def talk_through(place: Place, talk: Talk, likeness: wire_page.Likeness) -> int:
    """Say what the page says; give how many answers were as they are shown there."""
    exchanged = 0
    for block in wire_page.blocks():
        if block.kind == "sh":
            subprocess.run(["sh", "-ec", block.text], cwd=place.ws, check=True)
        for line in block.text.splitlines() if block.kind == "wire" else ():
            way, _, text = line.partition(" ")
            if way == "->":
                talk.send(likeness.sent(text))
                continue
            assert way == "<-", line
            shown = json.loads(text)
            likeness.check(shown, talk.next(is_notice(shown)), text[:60])
            exchanged += 1
    return exchanged


def test_an_example_that_is_wrong_is_found_out():
    likeness = wire_page.Likeness({"/home/u/project": "/real"})
    likeness.check({"a": [1, "..."], "path": "/home/u/project"}, {"a": [1, 2], "path": "/real", "new": 1})
    likeness.check({"id": "a" * 40}, {"id": "b" * 40})
    assert likeness.sent(f'"{"a" * 40} /home/u/project"') == f'"{"b" * 40} /real"'
    for shown, real in (
        ({"a": 1}, {}),
        ({"a": 1}, {"a": 2}),
        ({"a": [1]}, {"a": [1, 2]}),
        ({"a": [2, "..."]}, {"a": [1, 2]}),
        ({"pid": 1}, {"pid": "1"}),
        ({"id": "a" * 40}, {"id": "c" * 40}),
        ({"path": "/home/u/project"}, {"path": "/other"}),
    ):
        with pytest.raises(AssertionError):
            likeness.check(shown, real)
