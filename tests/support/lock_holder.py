"""A process that claims a checkpoint directory, says so, and holds it until its input ends."""

import os
import sys

from ckptd.errors import DomainError
from ckptd.lock import DataLocks, this_process


def main() -> None:
    address, directory, uid = sys.argv[1:4]
    # Before another user is taken on, who may not be allowed to read this Python's own files.
    owner = this_process(address)
    if int(uid) != os.getuid():
        os.setgid(int(uid))
        os.setuid(int(uid))
    try:
        DataLocks(owner).claim(os.fsencode(directory))
    except DomainError as error:
        print(error.kind, flush=True)
        return
    print("held", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
