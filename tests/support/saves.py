"""A program for tests of many clients: saves a worktree some times, and tells what came out.

``python saves.py WORKTREE NAME TIMES``: before each save it writes a file of its own. Prints one JSON line:
the daemon's pid and the ids.
"""

import json
import os
import sys
from pathlib import Path

from fabricatio_checkpoint.inited_service import get_checkpoint_service

if __name__ == "__main__":
    worktree, name, times = sys.argv[1:]
    service = get_checkpoint_service()
    store = service.get_store(worktree)
    ids = []
    for number in range(int(times)):
        Path(worktree, f"{name} {number}").write_text(f"{os.getpid()} {number}\n")
        ids.append(store.save(f"{name} {number}"))
    print(json.dumps({"pid": (service._connection.peer or {}).get("pid"), "ids": ids}))
    service.close()
