"""Coming from version 0.3.6 by the command line: its checkpoints by the ids that were noted, its folder as it was."""

import os

import pytest

from support.legacy_store import LegacyStore
from support.live import Place

pytestmark = pytest.mark.e2e


def test_the_commands_take_old_ids_and_say_that_they_are_old(place: Place):
    place.checkpoint_dir.mkdir()
    old = LegacyStore(os.fsencode(place.checkpoint_dir), os.fsencode(place.ws))
    file = place.ws / "a.txt"
    file.write_text("one\n")
    first = old.save("first")
    file.write_text("two\n")
    second = old.save("second")
    old.reset(first)
    shape = old.shape()

    for words in (["ls"], ["show", first], ["reset", second], ["diff", first]):
        refused = place.ckpt(*words)
        assert (refused.code, "2 checkpoints of 0.3.6" in refused.stderr) == (20, True), refused
    assert file.read_text() == "one\n"

    file.write_text("three\n")
    ours = place.save("ours")
    rows = place.done("ls").out.splitlines()
    assert [row.split()[0] for row in rows] == [one[:10] for one in (ours, second, first)]
    assert [row.endswith("(legacy)") for row in rows] == [False, True, True]
    assert [row.split()[1] for row in rows] == ["#1", "-", "-"]
    assert "number     -, manual (legacy)\n" in place.done("show", second[:8]).out
    assert "client     fabricatio-checkpoint 0.3.6\n" in place.done("show", second).out
    assert place.done("cat", second, "a.txt").out == "two\n"
    assert "-one\n+three\n" in place.done("diff", first).out
    assert [one["legacy"] for one in place.json("ls")["checkpoints"]] == [False, True, True]

    store = place.service().get_store(place.ws)
    assert [one.legacy for one in store.checkpoints()] == [False, True, True]
    assert store.commits() == [first, second, ours]

    place.done("rollback", first, "a.txt")
    assert file.read_text() == "one\n"
    place.done("reset", second[:12])
    assert file.read_text() == "two\n"
    place.done("undo")
    place.done("undo")
    assert file.read_text() == "three\n"
    assert old.shape() == shape
