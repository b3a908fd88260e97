"""One side of the benchmark, in an interpreter of its own: orders on stdin, seconds on stdout, a JSON document each.

    python contestant.py STORES WORKTREE

Runs with our package and with the peer's: both have the same names. Nothing else may be imported here.
"""

import json
import sys
import time

try:
    from fabricatio_checkpoint import CheckpointService
except ImportError:
    from fabricatio_checkpoint.rust import CheckpointService


def main() -> None:
    """Obey until the end of the input. The first save of a worktree includes the making of its store."""
    stores, worktree = sys.argv[1:]
    service = CheckpointService(stores_root=stores, cache_size=100)
    store = None
    for line in sys.stdin:
        order = json.loads(line)
        begun = time.perf_counter()
        store = store or service.get_store(worktree)
        answer = store.save(order["message"]) if order["do"] == "save" else store.reset(order["id"])
        seconds = time.perf_counter() - begun
        print(json.dumps({"seconds": seconds, "answer": str(answer)}), flush=True)


if __name__ == "__main__":
    main()
