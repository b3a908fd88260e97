"""A daemon that is killed in the middle of a reset: its client asks again, and one undo takes it all back."""

import os
import signal

from support import poll

FOLDERS, EACH = 40, 50


def files(place):
    return [place.ws / f"d{folder}" / f"f{number}" for folder in range(FOLDERS) for number in range(EACH)]


def test_killed_in_the_middle_of_a_reset(place):
    for path in files(place):
        path.parent.mkdir(exist_ok=True)
        path.write_text("old")
    saved = place.save("old")
    for path in files(place):
        path.write_text(f"mine {path.name}")
    pid = place.pid()
    firsts = [place.ws / f"d{folder}" / "f0" for folder in range(FOLDERS)]
    child = place.start("--json", "reset", saved, "--yes")
    poll.until(lambda: sum(path.read_text() == "old" for path in firsts) > 2)
    os.kill(pid, signal.SIGKILL)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    assert place.pid() != pid
    # The kill was in time: the daemon that the client then started went on with what had been cut off.
    assert b'"resumed"' in (place.stores()[0] / "ckpt" / "log").read_bytes()
    assert {path.read_text() for path in files(place)} == {"old"}
    assert place.json("status")["head"] == saved
    place.done("undo")
    assert [path.read_text() for path in files(place)] == [f"mine {path.name}" for path in files(place)]
    assert place.ckpt("undo").code != 0
