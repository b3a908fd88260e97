"""Reading a store bit by bit: pages of checkpoints, beginnings of patches and files; finding a store, making none."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabricatio_checkpoint.aio import AsyncCheckpointService
from fabricatio_checkpoint.errors import StateError, TransportError
from support import isolation
from support.resident import Resident


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def resident() -> Iterator[Resident]:
    base = isolation.short_directory("ckg")
    daemon = Resident(Path(base))
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.close()
        isolation.remove(base)


def test_pages_of_checkpoints_join_without_a_gap(resident):
    store = resident.service().get_store(resident.ws)
    for number in range(7):
        (resident.ws / "a").write_text(str(number))
        store.save(str(number), kind="auto" if number % 2 else "manual")
    first = store.checkpoints(limit=3)
    second = store.checkpoints(limit=3, before=first[-1].seq)
    rest = store.checkpoints(before=second[-1].seq)
    assert [record.seq for record in [*first, *second, *rest]] == [7, 6, 5, 4, 3, 2, 1]
    assert [record.seq for record in store.checkpoints(before=5, kind="auto")] == [4, 2]
    assert store.checkpoints(before=1) == []


async def test_of_a_long_patch_or_file_the_beginning_can_be_had(resident):
    service = AsyncCheckpointService.of(resident.service())
    store = await service.get_store(resident.ws)
    await store.save("nothing")
    (resident.ws / "a").write_bytes(b"line\n" * 400_000)
    (resident.ws / "b").mkdir()
    await store.save("much")
    whole = await store.diff_bytes("HEAD~1", "HEAD")
    part = await store.diff_detailed("HEAD~1", "HEAD", max_bytes=1000)
    assert (part.data, part.total_bytes) == (whole[:1000], len(whole))
    assert part.notes[0] == "b, an empty directory, was added"
    full = await store.diff_detailed("HEAD~1", "HEAD", ["a"], max_bytes=len(whole))
    assert full.data == whole
    assert await store.cat("HEAD", "a", max_bytes=7) == b"line\nli"
    assert await store.cat("HEAD", "a", max_bytes=3_000_000) == b"line\n" * 400_000
    # What was left unread stands in nobody's way.
    for _ in range(6):
        await store.diff_detailed("HEAD~1", "HEAD", max_bytes=1)
    assert await store.diff_bytes("HEAD~1", "HEAD") == whole


async def test_a_store_is_found_and_never_made(resident):
    service = resident.service()
    with pytest.raises(StateError, match="not tracked") as found:
        service.find_store(resident.ws)
    assert found.value.kind == "not_tracked"
    assert service.workspaces() == []
    service.get_store(resident.ws)
    assert service.find_store(resident.ws).checkpoints() == []
    (resident.ws / "a").write_text("a")
    made = service.get_store(resident.ws).save("x")
    assert (await AsyncCheckpointService.of(service).find_store(str(resident.ws))).blocking.head() == made
    # Also where the worktree is gone, which is when it is needed most.
    (resident.ws / "a").unlink()
    resident.ws.rmdir()
    assert service.find_store(resident.ws).head() == made


async def test_listening_need_not_start_a_daemon(resident):
    service = resident.service()
    with service.events(resident.ws, start=False) as stream:
        threading.Thread(target=lambda: resident.service().get_store(resident.ws).save("x")).start()
        assert stream.wait().kind == "checkpoint.created"
    resident.stop()
    with pytest.raises(TransportError) as found:
        service.events(resident.ws, start=False)
    assert found.value.kind == "not_running"
    with pytest.raises(TransportError):
        await anext(AsyncCheckpointService.of(service).events(resident.ws, start=False))
