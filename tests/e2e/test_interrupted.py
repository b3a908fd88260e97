"""A real daemon that is killed in the middle of a restore, and what its user does then."""

import os
import signal
from pathlib import Path

import pytest

from support.live import Place
from support.poll import until

pytestmark = pytest.mark.e2e

FILES = 3000


def everywhere(place: Place, text: str) -> None:
    for number in range(FILES):
        path = place.ws / str(number % 30) / str(number)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{text} {number}")


def contents(place: Place) -> set[str]:
    return {path.read_text().partition(" ")[0] for path in place.ws.rglob("*") if path.is_file()}


def interrupted(place: Place, saved: str) -> None:
    """Reset to ``saved``, and kill both sides when some files are written; later each time it was too early or late."""
    for _ in range(20):
        child = place.start("reset", saved)
        until(lambda child=child: child.poll() is not None or _is_old(place.ws / "0" / "0"))
        os.kill(child.pid, signal.SIGKILL)
        place.kill()
        child.wait()
        if place.json("status")["interruption"] is not None:
            return
        place.ckpt("undo")
        everywhere(place, "mine")
    pytest.fail("no reset could be interrupted")


def _is_old(path: Path) -> bool:
    try:
        return path.read_text().startswith("old")
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("way", ["--finish", "--undo"])
def test_a_reset_whose_daemon_was_killed_is_ended_either_way(place: Place, way: str):
    everywhere(place, "old")
    saved = place.save("old")
    everywhere(place, "mine")
    interrupted(place, saved)
    found = place.json("status")["interruption"]
    assert found["before"] + found["after"] == FILES
    assert found["other"] == 0
    edited = place.ws / "29" / "2999"
    edited.write_text("edited by hand")
    text = place.done("status").out
    assert "was interrupted" in text
    assert "ckpt resume --finish" in text
    plan = place.json("resume", way, "--dry-run")
    assert plan["edited"] == ["29/2999"]
    done = place.json("resume", way)
    assert (done["edited"], done["digest"]) == (["29/2999"], plan["digest"])
    assert contents(place) == {"old" if way == "--finish" else "mine"}
    held = place.json("ls", "--kind", "safety")["checkpoints"][0]["id"]
    assert place.done("cat", held, "29/2999").stdout == b"edited by hand"
    assert place.json("resume", way, code=20)["error"]["kind"] == "nothing_to_resume"
