"""Autosave as the client has it: what it asks for, what it makes of the answer, what the command says."""

import pytest
from msgspec import convert, to_builtins

from ckpt_protocol.methods import METHODS
from fabricatio_checkpoint import launch
from fabricatio_checkpoint.aio import AsyncCheckpointService
from fabricatio_checkpoint.capabilities.checkpoint import Checkpoint
from fabricatio_checkpoint.cli.commands.watch import lost_track, scanned, told
from fabricatio_checkpoint.config import checkpoint_config
from fabricatio_checkpoint.inited_service import get_checkpoint_service
from fabricatio_checkpoint.record import StatusResult
from fabricatio_checkpoint.watching import FallBack, WatchFailure, WatchResult
from support.cli_answers import status
from support.cli_run import in_process
from support.fake_daemon import FakeDaemon

WATCHER = {
    "state": "active",
    "reason": None,
    "quiet_s": 2.0,
    "max_wait_s": 30.0,
    "directories": 12,
    "seen": 7,
    "saved": 1,
    "failed": 0,
    "rescans": 4,
    "missed": 0,
    "rebuilt": 2,
    "failure": None,
}
FAILURE = {"kind": "no_space", "message": "cannot write the pack", "time": "2030-01-01T00:00:00Z", "retry_in_s": 8.0}
READY = {"unit": True, "enabled": True, "linger": True}


def answer(reboot=READY, halted=None, **watcher):
    made = {"watcher": {**WATCHER, **watcher}, "state": "IDLE", "halted": halted, "reboot": reboot}
    return to_builtins(convert(made, METHODS["worktree.watch"].result))


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint_config.reload()
    opened = {"store": "/s", "created": True, "head": None}
    head = {"id": "a" * 40}
    with FakeDaemon(
        launch.socket_path(), worktree__open=opened, worktree__watch=answer(), checkpoint__head=head
    ) as serving:
        yield serving
        get_checkpoint_service().close()


def asked(daemon):
    return [(call["action"], call.get("force", False)) for call in daemon.params("worktree.watch")]


def test_the_store_turns_it_on_and_off_and_asks(daemon, tmp_path):
    store = get_checkpoint_service().get_store(tmp_path)
    daemon.answers["worktree.watch"] = answer(failure=FAILURE, halted="worktree_empty")
    found = store.watch(True, force=True)
    assert isinstance(found, WatchResult)
    assert found.watcher.on
    assert found.watcher.failure == WatchFailure("no_space", "cannot write the pack", "2030-01-01T00:00:00Z", 8.0)
    assert (found.halted, found.reboot.linger) == ("worktree_empty", True)
    daemon.answers["worktree.watch"] = answer(state="off")
    assert not store.watch(False).watcher.on
    assert not store.watch_status().watcher.on
    assert asked(daemon) == [("on", True), ("off", False), ("status", False)]


async def test_the_awaitable_store_does_the_same(daemon, tmp_path):
    service = AsyncCheckpointService()
    store = await service.get_store(tmp_path)
    assert (await store.watch(True)).watcher.saved == 1
    assert (await store.watch_status()).watcher.state == "active"
    assert asked(daemon) == [("on", False), ("status", False)]


async def test_the_mixin_turns_it_on_and_off(daemon, tmp_path):
    class Role(Checkpoint):
        worktree_dir = tmp_path

    role = Role().mount_checkpoint_store()
    assert role.autosave().watcher.on
    role.autosave(False)
    assert (await role.aautosave()).watcher.on
    assert [action for action, _ in asked(daemon)] == ["on", "off", "on"]


def test_a_status_has_the_watcher_if_the_daemon_tells_of_it():
    wire = {**status(), "watcher": {**WATCHER, "of_a_later_version": 1}}
    assert StatusResult.from_wire(wire).watcher.directories == 12
    assert StatusResult.from_wire({**wire, "watcher": None}).watcher is None
    del wire["watcher"]
    assert StatusResult.from_wire(wire).watcher is None


@pytest.mark.parametrize(
    ("watcher", "halted", "lines"),
    [
        ({"state": "off"}, None, ["autosave is off; ckpt watch on turns it on"]),
        (
            {},
            None,
            [
                "autosave is on: 1 checkpoint made, 2 s after the last edit, 30 s at the most",
                "watcher: active, directories watched: 12",
            ],
        ),
        (
            {"state": "polling", "reason": "os error 24\x1b[2J", "directories": 0, "missed": 2, "failure": FAILURE},
            None,
            [
                "autosave is on: 1 checkpoint made, 2 s after the last edit, 30 s at the most",
                "watcher: polling (os error 24\\x1b[2J), directories watched: 0",
                "  2 scans found what the watcher had missed",
                "the last autosave failed: cannot write the pack; tried again in 8 s",
            ],
        ),
        (
            {},
            "worktree_replaced",
            [
                "autosave is on: 1 checkpoint made, 2 s after the last edit, 30 s at the most",
                "autosave has stopped (worktree_replaced); ckpt save or ckpt watch on goes on with it",
            ],
        ),
    ],
)
def test_what_is_said_of_it(watcher, halted, lines):
    assert list(told({**WATCHER, **watcher}, halted)) == lines


SCANS = {
    "watching": True,
    "watched": 40,
    "full": 1,
    "missed": 0,
    "fall_backs": [
        {"kind": "overflow", "count": 2, "reason": "too many events at once"},
        {"kind": "limit", "count": 1, "reason": "cannot watch /w/\x1b: No space left on device"},
        {"kind": "starting", "count": 1, "reason": "the directories are being watched by and by"},
    ],
}


@pytest.mark.parametrize(
    ("scans", "lines", "line"),
    [
        (None, [], []),
        ({**SCANS, "watching": False, "watched": 0, "fall_backs": []}, [], []),
        (
            {**SCANS, "fall_backs": SCANS["fall_backs"][2:]},
            [
                "exact watcher: 40 saves by its word, 1 by a look at everything",
                "  a look at everything once: the directories are being watched by and by",
            ],
            [],
        ),
        (
            {**SCANS, "watching": False, "watched": 1},
            [
                "exact watcher (not at work now): 1 save by its word, 1 by a look at everything",
                "  a look at everything 2 times: too many events at once",
                "  a look at everything once: cannot watch /w/\\x1b: No space left on device",
                "  a look at everything once: the directories are being watched by and by",
            ],
            ["the exact watcher lost track 3 times; everything was looked at then (ckpt watch status: why)"],
        ),
    ],
)
def test_what_is_said_of_the_exact_watcher(scans, lines, line):
    assert list(scanned(scans)) == lines
    assert list(lost_track(scans)) == line


def test_how_saves_found_what_had_changed_is_told(daemon, tmp_path, capsysbinary):
    daemon.answers["worktree.watch"] = {**answer(), "scans": SCANS}
    found = get_checkpoint_service().get_store(tmp_path).watch_status().scans
    assert (found.watching, found.watched, found.full, found.missed) == (True, 40, 1, 0)
    assert found.fall_backs[0] == FallBack("overflow", 2, "too many events at once")
    assert "exact watcher: 40 saves" in in_process(capsysbinary, "watch", "status").out
    assert "exact watcher" not in in_process(capsysbinary, "watch", "on").out
    assert in_process(capsysbinary, "--json", "watch", "status").document["scans"] == SCANS
    daemon.answers["worktree.status"] = {**status(), "watcher": WATCHER, "scans": SCANS}
    assert "the exact watcher lost track 3 times" in in_process(capsysbinary, "status").out
    assert StatusResult.from_wire({**status(), "scans": SCANS}).scans == found
    # A daemon of an earlier version tells nothing of it.
    wire = status()
    wire.pop("scans", None)
    assert StatusResult.from_wire(wire).scans is None


def test_the_command_says_what_is_missing_for_a_reboot(daemon, capsysbinary):
    done = in_process(capsysbinary, "watch", "on", "--force")
    assert (done.code, done.out.splitlines()[-1]) == (0, "after a reboot it goes on by itself")
    daemon.answers["worktree.watch"] = answer({**READY, "enabled": False, "linger": False})
    assert in_process(capsysbinary, "watch", "status").out.splitlines()[-3:] == [
        "after a reboot it goes on with the first ckpt command; to go on by itself it needs:",
        "  systemctl --user enable ckptd.service",
        "  loginctl enable-linger",
    ]
    daemon.answers["worktree.watch"] = answer(state="off")
    assert in_process(capsysbinary, "watch", "off").out == "autosave is off; ckpt watch on turns it on\n"
    assert asked(daemon) == [("on", True), ("status", False), ("off", False)]
    assert in_process(capsysbinary, "watch").code == 2
    assert in_process(capsysbinary, "watch", "maybe").code == 2
    assert in_process(capsysbinary, "--json", "watch", "status").document["watcher"]["state"] == "off"


def test_status_says_it_in_one_place(daemon, capsysbinary):
    daemon.answers["worktree.status"] = {**status(), "watcher": WATCHER, "halted": "worktree_missing"}
    out = in_process(capsysbinary, "status").out
    assert "autosave has stopped (worktree_missing)" in out
    assert "halted:" not in out


def test_status_says_that_autosave_is_off(daemon, capsysbinary):
    daemon.answers["worktree.status"] = {**status(), "watcher": {**WATCHER, "state": "off"}, "halted": "damage"}
    out = in_process(capsysbinary, "status").out
    assert out.endswith("autosave is off; ckpt watch on turns it on\nhalted: damage\n")
