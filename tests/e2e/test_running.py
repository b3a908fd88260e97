"""What runs, as users meet it: Ctrl-C and what is left of it, progress, deadlines, events, others meanwhile."""

import asyncio
import contextlib
import os
import signal
import threading

import pytest

from fabricatio_checkpoint import AsyncCheckpointService
from fabricatio_checkpoint.errors import StateError
from support.live import Place, snapshot
from support.poll import eventually, until

pytestmark = pytest.mark.e2e


def is_hashing(place: Place) -> bool:
    """Whether the daemon has begun to write a pack for ``ws``."""
    return any(
        pack.stat().st_size > 1 << 20
        for store in place.stores()
        for pack in store.glob("objects/pack/tmp_ckpt_*.pack")
        if pack.exists()
    )


def test_ctrl_c_leaves_no_checkpoint_and_the_next_save_goes_on(place: Place):
    place.heavy(64)
    child = place.start("save", "never")
    until(lambda: is_hashing(place) or child.poll() is not None)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, b""), err
    assert b"interrupted: no checkpoint was made" in err
    assert place.json("ls")["checkpoints"] == []
    (store,) = place.stores()
    kept = sum(pack.stat().st_size for pack in store.glob("objects/pack/pack-*.pack"))
    assert kept > 1 << 20
    result = place.json("save", "second")
    assert (result["created"], result["complete"], result["files"]) == (True, True, 64)
    # What was hashed is not written twice, so it was not read twice either: nothing of it compresses.
    total = sum(pack.stat().st_size for pack in store.glob("objects/pack/pack-*.pack"))
    assert total < (64 + 8) << 20
    assert [one["message"] for one in place.json("ls")["checkpoints"]] == ["second"]


def test_ctrl_c_in_a_reset_puts_everything_back(place: Place):
    place.heavy(48)
    place.save("first")
    place.heavy(48)
    for path in place.ws.iterdir():
        path.write_bytes(b"mine")
    child = place.start("reset")
    # Names that are there for a moment alone are passed over.
    until(lambda: any(path.stat().st_size > 4 for path in place.ws.glob("[!.]*")) or child.poll() is not None)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    code = child.returncode
    until(lambda: not place.is_busy())
    assert code == 130, err
    contents = {path.stat().st_size for path in place.ws.iterdir()}
    if b"too late" in err:
        assert contents == {1 << 20}
    else:
        assert contents == {4}
        assert place.json("status")["interrupted"] is None


def test_a_cancelled_task_ends_the_save_in_the_daemon(place: Place):
    place.heavy(64)

    async def work() -> None:
        async with AsyncCheckpointService(place.checkpoint_dir, socket=place.socket) as service:
            store = await service.get_store(place.ws)
            saving = asyncio.ensure_future(store.save("never"))
            await eventually(lambda: is_hashing(place))
            saving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await saving
            assert await store.commits() == []
            seen: list[str] = []
            await store.save("second", progress=lambda told: seen.append(told.phase))
            assert set(seen) <= {"waiting", "scan", "hash", "write"}
            assert len(await store.commits()) == 1

    asyncio.run(work())


def test_a_deadline_ends_a_save_and_leaves_nothing(place: Place):
    place.heavy(64)
    store = place.service().get_store(place.ws)
    with pytest.raises(StateError, match=r"the deadline of 0\.2 s has passed") as caught:
        store.save("never", deadline_s=0.2)
    assert (caught.value.kind, caught.value.retryable) == ("deadline_exceeded", True)
    assert store.commits() == []
    assert store.save("second", deadline_s=1000)


def test_progress_of_a_real_save_and_others_meanwhile(place: Place):
    """While the first save of one worktree runs, the daemon and another worktree's saves answer."""
    place.heavy(128)
    other = place.home / "other"
    other.mkdir()
    (other / "f").write_bytes(b"1")
    service = place.service()
    big, small = service.get_store(place.ws), service.get_store(other)
    seen = []
    began, answered = threading.Event(), []

    def told(progress) -> None:
        seen.append(progress)
        began.set()

    saving = threading.Thread(target=lambda: answered.append(big.save("big", progress=told)))
    saving.start()
    assert began.wait(60)
    for number in range(3):
        (other / "f").write_bytes(b"%d" % number * 3)
        small.save(f"small {number}")
    assert len(service.workspaces()) == 2
    served_beside = not answered
    assert place.json("daemon", "status")["running"]
    saving.join(90)
    assert served_beside
    assert len(answered) == 1
    hashed = [one for one in seen if one.phase == "hash"]
    assert [one.bytes for one in hashed] == sorted(one.bytes for one in hashed)
    assert hashed[-1].bytes > 1 << 20


def test_events_tell_what_the_command_does(place: Place):
    place.done("daemon", "start")
    (place.ws / "a").write_text("1")
    with place.service().events(place.ws) as stream:
        saved = place.save("one")
        (place.ws / "a").write_text("2")
        before = snapshot(place.ws)
        result = place.json("reset", "--yes")
        place.json("forget", "--yes")
        told = [next(stream) for _ in range(4)]
    assert [one.kind for one in told] == [
        "checkpoint.created",
        "checkpoint.created",
        "worktree.changed",
        "store.pruned",
    ]
    assert [one.seq for one in told] == [1, 2, 3, 4]
    assert {(one.worktree, one.checkpoint_dir) for one in told} == {(str(place.ws), str(place.checkpoint_dir))}
    assert (told[0].data["id"], told[1].data["id"]) == (saved, result["safety"])
    assert told[2].data["written"] == 1
    assert before != snapshot(place.ws)
    assert not any(one.lost for one in told)
    assert os.path.exists(place.socket)
