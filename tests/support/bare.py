"""A bare repository as a store has it, without a worktree: for tests of what lies in one."""

import os
import zlib

from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.objects.pack import PackWriter
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.checkpoint import format_checkpoint
from ckptd.shadow.record.message import Facts
from ckptd.shadow.store.layout import create_folder
from ckptd.shadow.store.metadata import FORMAT, Metadata
from support.worktrees import run_git, verify

__all__ = ["Bare"]


class Bare:
    """The store ``folder``, with git as its oracle."""

    def __init__(self, place: bytes) -> None:
        metadata = Metadata(
            format=FORMAT, worktree="/nowhere", ino="1", parent_dev="1", parent_fsid="1", created="2026-01-01T00:00:00Z"
        )
        self.folder = create_folder(place, b"store_0123456789abcdef", metadata)
        self.pack_dir = os.path.join(self.folder, b"objects", b"pack")

    def git(self, *words: str | bytes, data: bytes = b"") -> bytes:
        return run_git(b"--git-dir=" + self.folder, *words, data=data)

    def verify(self) -> None:
        verify(self.folder)

    def writer(self) -> PackWriter:
        return PackWriter(self.pack_dir, lambda _oid: False)

    def put(self, *blobs: bytes, kind: bytes = b"blob") -> list[bytes]:
        """Store objects in a pack of their own; give their ids."""
        writer = self.writer()
        oids = [writer.add(kind, data) for data in blobs]
        writer.finish()
        return oids

    def put_loose(self, data: bytes, kind: bytes = b"blob") -> bytes:
        oid = hash_object(kind, data)
        text = oid.hex().encode()
        folder = os.path.join(self.folder, b"objects", text[:2])
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, text[2:]), "wb") as file:
            file.write(zlib.compress(b"%s %d\0" % (kind, len(data)) + data))
        return oid

    def commit(self, seq: int, text: str | None = None, *, time_s: int = 1_800_000_000, **facts) -> bytes:
        """Store a checkpoint's commit of the empty tree; give its 40 digits. No ref is written."""
        tree = self.put(b"", kind=b"tree")[0]
        told = Facts(**{"seq": seq, "kind": "manual", **facts})
        return self.put(format_checkpoint(tree, time_s, text, told), kind=b"commit")[0].hex().encode()

    def packs(self) -> list[bytes]:
        """The names of the packs, without endings, sorted."""
        return sorted(name[:-5] for name in os.listdir(self.pack_dir) if name.endswith(b".pack"))

    def path(self, name: bytes, ending: bytes) -> bytes:
        return os.path.join(self.pack_dir, name + ending)

    def overwrite(self, path: bytes, at: int, data: bytes) -> None:
        """Damage a file in place, read-only or not."""
        os.chmod(path, 0o600)
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(data)

    def objects(self) -> ObjectStore:
        return ObjectStore(self.folder)
