"""Makes ``tests/e2e/data/store-v1.tar.gz``: a worktree and its store, as the first release wrote them.

Run by hand, once for each format: ``python tests/support/make_store.py FILE``. What is checked in is never made anew:
it stands for the stores that people have.
"""

import os
import sys
import tarfile
from pathlib import Path

from support.live import open_place


def _fill(ws: Path) -> None:
    (ws / "dir" / "empty").mkdir(parents=True)
    (ws / "text").write_text("one\n")
    (ws / "dir" / "tool").write_text("#!/bin/sh\n")
    (ws / "dir" / "tool").chmod(0o755)
    (ws / "private").write_text("secret\n")
    (ws / "private").chmod(0o600)
    (ws / "link").symlink_to("text")
    Path(os.fsdecode(b"%s/odd \xff" % os.fsencode(ws))).write_bytes(b"\0\xff")
    (ws / ".gitignore").write_text("*.log\n")
    (ws / "x.log").write_text("ignored\n")


def main() -> None:
    with open_place() as place:
        _fill(place.ws)
        place.save("one", "--tag", "start", "--meta", "who=test")
        (place.ws / "text").write_text("two\n")
        (place.ws / "new").write_text("new\n")
        place.save("two\n\nwith a body")
        (place.ws / "text").unlink()
        place.done("reset")
        (place.ws / "text").write_text("three\n")
        place.done("daemon", "stop")
        with tarfile.open(sys.argv[1], "w:gz", format=tarfile.PAX_FORMAT) as tar:
            for name in ("ws", ".fabricatio-checkpoint"):
                tar.add(place.home / name, name, filter=_plain)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if entry.name.endswith("/.lock"):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main()
