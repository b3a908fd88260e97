"""A power cut after each call of an export: nothing has the name, or all of it does; once answered, all of it does."""

import os
import random

import pytest

from ckpt_protocol.checkpoint import ExportParams
from ckpt_protocol.structs import to_wire
from ckptd.core.ports import Caller
from support import effort
from support.plainworld import look
from support.powercut import DATA, NAMES, Disk, chances, write
from support.stored import contents
from support.tape import record
from support.worktrees import Desk, to_the_end

pytestmark = [
    pytest.mark.core,
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="sees in /proc which file a call is for"),
]


@pytest.fixture
def planted(desk: Desk) -> Desk:
    desk.write(b"private", b"one\n", 0o600)
    desk.write(b"folder/file", b"one\n" * 30)
    desk.write(b"folder/empty", b"")
    desk.write(b"big", random.Random(1).randbytes(2 << 20))
    desk.mkdir(b"nothing in it")
    desk.link(b"link", b"private")
    desk.save("x")
    return desk


def export(desk: Desk, destination: bytes) -> None:
    params = ExportParams(**desk.common(), destination=to_wire(destination), id="HEAD")
    to_the_end(desk.reader.export(params, Caller("test")))


def whole(path: bytes) -> object:
    """What is there, None for nothing."""
    if os.path.isfile(path):
        with open(path, "rb") as file:
            return file.read()
    return contents(look(path)) if os.path.isdir(path) else None


@pytest.mark.parametrize("name", [b"out", b"out.tar"])
def test_what_has_the_name_is_whole(planted: Desk, name: bytes):
    place = planted.base + b"/place"
    os.mkdir(place)
    destination = os.path.join(place, name)
    planted.close()
    start = Disk([place]).now()

    def work(mark) -> None:
        export(planted, destination)
        mark("answer")

    calls = record([place], work, planted.base + b"/tape")
    wanted, real = whole(destination), Disk([place]).now()
    assert wanted is not None
    # Nothing was overlooked: played to its end, the record gives the very files that are there.
    write(start, [place])
    disk = Disk([place])
    for call in calls:
        disk.apply(call)
    assert disk.now() == real
    write(start, [place])
    disk, answered, seen = Disk([place]), False, 0
    for number, call in enumerate(calls):
        disk.apply(call)
        answered = answered or call.what == "mark"
        kinds = [(NAMES[names], DATA[data]) for names in NAMES for data in DATA]
        kinds += [chances(number * 100 + sample) for sample in range(effort.examples(2, 20))]
        for names, data in kinds:
            write(disk.state(names, data), [place])
            found = whole(destination)
            assert found in ((wanted,) if answered else (None, wanted))
            seen += found is not None
    assert answered
    assert seen > len(DATA)
