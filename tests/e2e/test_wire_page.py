"""Every example of ``protocol/WIRE.md``, from top to bottom, in one conversation with a real daemon."""

import json
import os
import socket
import subprocess

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


def test_the_examples_are_what_happens(place):
    place.done("daemon", "start")
    likeness = wire_page.Likeness(shown_and_real(place))
    exchanged = 0
    with socket.socket(socket.AF_UNIX) as connected:
        connected.settimeout(60)
        connected.connect(place.socket)
        lines = connected.makefile("rb")
        for block in wire_page.blocks():
            if block.kind == "sh":
                subprocess.run(["sh", "-ec", block.text], cwd=place.ws, check=True)
            if block.kind != "wire":
                continue
            for line in block.text.splitlines():
                way, _, text = line.partition(" ")
                if way == "->":
                    connected.sendall(likeness.sent(text).encode() + b"\n")
                    continue
                assert way == "<-", line
                likeness.check(json.loads(text), json.loads(lines.readline()), text[:60])
                exchanged += 1
        lines.close()
    assert exchanged > 20


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
