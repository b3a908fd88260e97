"""A leaked secret, from its save to its end, with the real thing; and a store that is damaged and heals."""

import contextlib
import os
import threading
from pathlib import Path

import pytest

from support import poll
from support.live import Place
from support.worktrees import run_git

pytestmark = pytest.mark.e2e

SECRET = "token=5d41402abc4b2a76"


def stored(place: Place) -> bytes:
    """The content of everything in the store, whether or not anything refers to it."""
    (store,) = place.stores()
    where = b"--git-dir=" + os.fsencode(store)
    ids = run_git(where, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    return b"".join(run_git(where, "cat-file", "-p", oid) for oid in ids)


def test_a_leaked_secret_is_dropped_and_gone(place):
    (place.ws / "code.py").write_text("pass\n")
    place.save("one")
    (place.ws / ".env").write_text(SECRET)
    leaked = place.save("two")
    (place.ws / ".env").unlink()
    (place.ws / "code.py").write_text("pass  # more\n")
    place.save("three")
    assert SECRET.encode() in stored(place)
    planned = place.json("drop", leaked, "--dry-run")
    assert planned["held"] == []
    assert place.done("drop", leaked).out.startswith("dropped #2")
    result = place.json("gc")
    assert result["objects_removed"] == 3
    assert SECRET.encode() not in stored(place)
    assert [one["seq"] for one in place.json("ls")["checkpoints"]] == [3, 1]
    assert place.done("verify", "--read-data").out.startswith("clean: 2 checkpoints")


def test_damage_is_told_and_healed(place):
    (place.ws / "a").write_text("a" * 3000)
    place.save("one")
    (store,) = place.stores()
    (pack,) = (store / "objects" / "pack").glob("*.pack")
    pack.chmod(0o600)
    os.truncate(pack, 40)
    place.damaged = True
    found = place.ckpt("verify", "--json")
    assert found.code == 50
    assert [one["seq"] for one in found.document["affected"]] == [1]
    again = place.save("two")
    assert place.done("cat", again, "a").out == "a" * 3000
    assert place.ckpt("verify", "--json").document["affected"] == [
        {"id": found.document["affected"][0]["id"], "seq": 1, "readable": False, "paths": 0}
    ]


def test_the_same_by_the_api(place):
    service = place.service()
    store = service.get_store(place.ws)
    (place.ws / "a").write_text("1")
    first = store.save("one")
    (place.ws / "a").write_text("2")
    store.save("two")
    assert store.verify(read_data=True).clean
    assert [one.seq for one in store.drop(first).dropped] == [1]
    assert store.gc().objects_removed == 3
    assert store.verify(read_data=True).checkpoints == 1
    assert (store.usage().manual, store.usage().auto) == (1, 0)
    assert [one.path for one in service.usage().stores] == [str(place.ws)]
    assert store.tag("HEAD", "good") == store.head()
    assert store.thin(dry_run=True).dropped == ()


def test_the_daemon_keeps_house_by_itself_and_serves_on(place):
    store = place.service().get_store(place.ws)
    for number in range(26):
        (place.ws / "a").write_text(f"{number}\n")
        store.save(str(number))
    (folder,) = place.stores()
    poll.until(lambda: len(list((folder / "objects" / "pack").glob("*.pack"))) == 1)
    assert [store.cat(f"#{number + 1}", "a") for number in range(26)] == [b"%d\n" % number for number in range(26)]


def test_saves_go_on_while_it_is_collected(place):
    store = place.service().get_store(place.ws)
    for number in range(20):
        (place.ws / "a").write_text(f"{number}\n")
        store.save(str(number))
    collected = []
    collecting = threading.Thread(target=lambda: collected.append(place.service().get_store(place.ws).gc()))
    collecting.start()
    made = 0
    while collecting.is_alive() or made < 3:
        (place.ws / "a").write_text(f"meanwhile {made}\n")
        store.save(str(made))
        made += 1
    collecting.join()
    assert collected[0].packs_before > 1
    assert len(store.commits()) == 20 + made
    assert store.verify(read_data=True).clean


MIB = 1024 * 1024
CAP = 24 * MIB


def test_a_store_stays_near_its_cap_while_saves_never_rest(place, monkeypatch):
    """One after the other without a pause: what is too much goes between them."""
    monkeypatch.setenv("FABRICATIO_EXT__CHECKPOINT__MAX_STORE_BYTES", str(CAP))
    store = place.service().get_store(place.ws)
    largest = 0
    for number in range(60):
        (place.ws / f"large{number % 3}").write_bytes(os.urandom(2 * MIB))
        store.save(kind="auto")
        (folder,) = place.stores()
        largest = max(largest, packed_bytes(folder))
    # Without it there would be five times as much.
    assert CAP < largest < CAP * 2
    assert len(store.commits()) < 20
    assert store.verify(read_data=True).clean


def packed_bytes(folder: Path) -> int:
    total = 0
    for path in (folder / "objects" / "pack").iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
