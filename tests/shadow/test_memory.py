"""How the process holds its memory. Each in a process of its own: what the allocator is told is for good."""

import os
import subprocess
import sys

import pytest

from support.mapped import needs_maps

pytestmark = pytest.mark.core

_COUNT = """
import sys, threading
from ckptd.shadow.store.memory import give_back, share_one_heap
from support.mapped import heaps
told = share_one_heap() if sys.argv[1] == "one" else False
ready, done = threading.Barrier(4), threading.Event()
def work():
    kept = [bytes(1000) for _ in range(100)]
    ready.wait()
    done.wait()
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
ready.wait()
print(told, heaps())
done.set()
for thread in threads: thread.join()
print(give_back())
"""


def count(how: str) -> list[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environ.pop("MALLOC_ARENA_MAX", None)
    command = [sys.executable, "-c", _COUNT, how]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout.split()


@needs_maps
def test_threads_share_one_heap():
    own, alone, gives_back = count("each its own")
    if alone == "0":
        pytest.skip("an allocator of another kind")
    assert (own, gives_back) == ("False", "True")
    assert count("one") == ["True", "0", "True"]
