"""What a restore is going to write, asked for by the threads that write it."""

import os
import random
import threading
from pathlib import Path

import pytest

from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.store.proving import Proved
from support.bare import Bare

pytestmark = pytest.mark.core


class OneAtATime(ObjectStore):
    """Notes where it is used by two at once."""

    def __init__(self, folder: bytes) -> None:
        super().__init__(folder)
        self._in_use = threading.Lock()
        self.wrong = 0

    def read_own(self, oid: bytes, kind: bytes) -> bytes:
        if not self._in_use.acquire(blocking=False):
            self.wrong += 1
            return super().read_own(oid, kind)
        try:
            return super().read_own(oid, kind)
        finally:
            self._in_use.release()


@pytest.mark.parametrize("held", [0, 1 << 20])
def test_several_threads_may_ask_for_it_at_once(tmp_path: Path, held: int):
    bare = Bare(os.fsencode(tmp_path))
    contents = [random.Random(size).randbytes(size) for size in (1_000, 400_000, 1_500_000, 2_500_000, 20_000_000)]
    wanted = {bare.put(data)[0]: data for data in contents}
    objects = OneAtATime(bare.folder)
    objects.refresh()
    content = Proved(objects, held)
    for oid in wanted:
        content.prove(oid)
    wrong: list[bytes] = []

    def read(seed: int) -> None:
        order = random.Random(seed).sample(sorted(wanted), len(wanted))
        wrong.extend(oid for oid in order * 3 if b"".join(content.chunks(oid)) != wanted[oid])

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (wrong, objects.wrong) == ([], 0)
