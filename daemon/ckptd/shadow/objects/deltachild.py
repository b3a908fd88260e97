"""The process that makes a pack with deltas, out of a store, in a folder of its own.

It ends with 0 once every object has been read back out of the new pack, and by a signal as soon as its standard input
ends: nothing else would stop it while libgit2 is at work.
"""

import fcntl
import os
import select
import signal
import sys
from collections.abc import Iterator

import pygit2

from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.objects.isolation import isolate
from ckptd.shadow.objects.pack import KIND_NUMBERS

__all__ = ["main"]

_LACKING = 4


def main(git_dir: bytes, folder: bytes) -> None:
    """Do it; for a process of its own."""
    end_with_input()
    os.nice(10)
    isolate()
    # The daemon has made sure whose store it is; here nothing but its objects is read.
    pygit2.settings.owner_validation = False
    oids = list(_ids(os.path.join(folder, b"ids")))
    builder = pygit2.PackBuilder(pygit2.Repository(os.fsdecode(git_dir)))
    builder.set_threads(1)
    for oid in oids:
        builder.add(pygit2.Oid(raw=oid))
    builder.write(os.fsdecode(os.path.join(folder, b"pack")))
    sys.exit(0 if _can_all_be_read(folder, oids) else _LACKING)


def end_with_input() -> None:
    """Have the kernel end this process when the other end of its standard input is closed.

    A thread that waits for it would not be run: libgit2 keeps the interpreter's lock while it works.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    if poll.poll(0):
        # It was closed before anybody could be told.
        sys.exit(signal.SIGIO)


def _ids(path: bytes) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while oid := file.read(20):
            yield oid


def _can_all_be_read(folder: bytes, oids: list[bytes]) -> bool:
    """Read every object back, from the new pack alone."""
    kinds = {number: kind for kind, number in KIND_NUMBERS.items()}
    odb = pygit2.Odb(os.fsdecode(folder))
    for oid in oids:
        number, data = odb.read(pygit2.Oid(raw=oid))
        if hash_object(kinds[int(number)], data) != oid:
            return False
    return True
