"""One side of the benchmark, in an interpreter of its own: orders on stdin, seconds on stdout, a JSON document each.

    python contestant.py STORES WORKTREE

Runs with our package and with the peer's: both have the same names. Nothing else may be imported here. The orders that
``_OURS`` names are for our package alone.
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
        answer = _obey(store, order)
        seconds = time.perf_counter() - begun
        print(json.dumps({"seconds": seconds, "answer": answer}), flush=True)


def _obey(store, order: dict) -> object:
    if order["do"] in _OURS:
        return _OURS[order["do"]](store, order)
    return str(store.save(order["message"]) if order["do"] == "save" else store.reset(order["id"]))


def _many(store, order: dict) -> int:
    """Save again and again, each time with another content of one file."""
    for number in range(order["first"], order["last"]):
        with open(order["file"], "w") as file:
            file.write(f"{number}\n")
        store.save(f"edit {number}")
    return order["last"]


_OURS = {
    "full": lambda store, order: str(store.save(order["message"], full=True)),
    "count": lambda store, order: dict(store.save_detailed(order["message"]).stats),
    "page": lambda store, _order: len(store.checkpoints(limit=50)),
    "scan": lambda store, _order: store.checkpoints(limit=1)[0].scan,
    "status": lambda store, _order: len(store.status().changes),
    "many": _many,
}


if __name__ == "__main__":
    main()
