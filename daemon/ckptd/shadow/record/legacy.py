"""The checkpoints that 0.3.6 made of a worktree, read where they lie; nothing is ever written there."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import EMPTY_TREE
from ckptd.shadow.objects.durable import read_if_there
from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.checkpoint import Checkpoint
from ckptd.shadow.record.message import Facts
from ckptd.shadow.trees.tree import DIRECTORY, TreeEntry, parse_tree

__all__ = ["CLIENT", "LegacyCheckpoints", "LegacyDirectory", "LegacyObjects"]

CLIENT: Final = "fabricatio-checkpoint 0.3.6"

_HEADER: Final = re.compile(
    rb"tree ([0-9a-f]{40})\n((?:parent [0-9a-f]{40}\n)*)author .*\ncommitter .* (\d{1,11}) [+-]\d{4}\n"
    rb"(?:.+\n)*\n"
)
_LOGGED: Final = re.compile(rb"^[0-9a-f]{40} ([0-9a-f]{40}) ", re.MULTILINE)
_ENTRY: Final = re.compile(rb"([0-7]{5,6}) ([^\0]+)\0.{20}", re.DOTALL)
_SUBMODULE: Final = b"160000"

_Stamp = tuple[tuple[int, int] | None, ...]


class LegacyDirectory(NamedTuple):
    """One directory of an old checkpoint; ``submodules`` are names whose content was not stored."""

    path: bytes
    entries: dict[bytes, TreeEntry]
    submodules: list[bytes]


class LegacyObjects:
    """The objects of old folders. Trees come without their entries for submodules, which name no object of theirs."""

    def __init__(self, folders: Sequence[bytes]) -> None:
        self._stores: Final = [ObjectStore(folder) for folder in folders]

    def __contains__(self, oid: bytes) -> bool:
        return any(self._has(store, oid) for store in self._stores)

    def read(self, oid: bytes, kind: bytes) -> bytes:
        """Give the content of an object; errors as an ObjectStore has them."""
        data = self._read(oid, kind)
        if kind != b"tree" or _SUBMODULE not in data:
            return data
        return _ENTRY.sub(lambda entry: b"" if entry[1] == _SUBMODULE else entry[0], data)

    def size(self, oid: bytes) -> int:
        """Give the size of a blob in bytes."""
        return self._holder(oid).size(oid)

    def chunks(self, oid: bytes) -> Iterator[bytes]:
        """Give the content of a blob piece by piece."""
        return self._holder(oid).chunks(oid)

    def directories(self, tree: bytes) -> Iterator[LegacyDirectory]:
        """Give a tree's directories, each before those in it."""
        stack = [(b"", tree)]
        while stack:
            path, oid = stack.pop()
            data = b"" if oid == EMPTY_TREE else self._read(oid, b"tree")
            submodules = [entry[2] for entry in _ENTRY.finditer(data) if entry[1] == _SUBMODULE]
            entries = parse_tree(self.read(oid, b"tree") if submodules else data)
            yield LegacyDirectory(path, entries, submodules)
            start = path + b"/" if path else b""
            stack += [(start + name, entry.oid) for name, entry in entries.items() if entry.mode == DIRECTORY]

    def close(self) -> None:
        """Close all files."""
        for store in self._stores:
            store.close()

    def _read(self, oid: bytes, kind: bytes) -> bytes:
        return self._holder(oid).read(oid, kind)

    def _holder(self, oid: bytes) -> ObjectStore:
        found = next((store for store in self._stores if self._has(store, oid)), None)
        if found is None:
            raise DomainError("object_missing", f"object {oid.hex()} is missing from the store of 0.3.6")
        return found

    @staticmethod
    def _has(store: ObjectStore, oid: bytes) -> bool:
        if oid in store:
            return True
        try:
            # Its packs are listed when the first object is not found loose.
            store.refresh()
        except DomainError:
            return False
        return oid in store


class LegacyCheckpoints:
    """The old checkpoints of one worktree: what the refs, the reflog and HEAD of its folders lead to.

    The reflog tells of those that a reset took out of the history, and in which order they were made.
    """

    def __init__(self, folders: Sequence[bytes]) -> None:
        self.objects: Final = LegacyObjects(folders)
        self._folders: Final = folders
        self._stamp: _Stamp | None = None
        self._seqs: Mapping[str, int] = {}
        self._commits: dict[str, Checkpoint] = {}
        self._parents: dict[str, list[str]] = {}

    def seqs(self) -> Mapping[str, int]:
        """Give the ids of all with their sequence numbers, oldest first; the newest is 0, all come before ours.

        The very same object comes again while nothing has changed. The empty commit that 0.3.6 began with is
        left out.
        """
        stamp = tuple(_sign(os.path.join(folder, name)) for folder in self._folders for name in _WATCHED)
        if stamp != self._stamp:
            ids = [one for folder in self._folders for one in self._ordered(folder) if not self._is_beginning(one)]
            unique = list(dict.fromkeys(ids))
            if len(self._folders) > 1:
                unique.sort(key=self._time_of)
            self._seqs = {one: number - len(unique) + 1 for number, one in enumerate(unique)}
            self._stamp = stamp
        return self._seqs

    def load(self, checkpoint_id: str) -> Checkpoint:
        """Read one of them; raises DomainError where its commit is missing or damaged."""
        found = self._read(checkpoint_id)
        known = self.seqs()
        base = next((one for one in self._parents[checkpoint_id] if one in known), None)
        return replace(found, facts=replace(found.facts, seq=known[checkpoint_id], base=base))

    def close(self) -> None:
        """Close all files."""
        self.objects.close()

    def _read(self, commit: str) -> Checkpoint:
        if commit not in self._commits:
            data = self.objects.read(bytes.fromhex(commit), b"commit")
            match = _HEADER.match(data)
            if match is None:
                raise DomainError("store_damaged", f"commit {commit} of 0.3.6 cannot be understood")
            text = data[match.end() :].decode("utf-8", "replace").replace("\0", "").removesuffix("\n") or None
            facts = Facts(seq=0, kind="manual", client=CLIENT)
            tree = bytes.fromhex(match[1].decode())
            self._commits[commit] = Checkpoint(commit, tree, int(match[3]), text, facts, legacy=True)
            self._parents[commit] = [line.decode() for line in match[2].split()[1::2]]
        return self._commits[commit]

    def _ordered(self, folder: bytes) -> list[str]:
        """Give all commits of a folder, parents first, and else in the order in which they were made."""
        found: dict[str, None] = {}
        for tip in _tips(folder):
            stack = [tip]
            while stack:
                before = [one for one in self._parents_of(stack[-1]) if one not in found]
                if before:
                    stack += before
                else:
                    found.setdefault(stack.pop())
        return list(found)

    def _parents_of(self, commit: str) -> list[str]:
        try:
            self._read(commit)
        except DomainError:
            # It is listed all the same, and counted there as one that cannot be read.
            return []
        return self._parents[commit]

    def _is_beginning(self, commit: str) -> bool:
        found = self._commits.get(commit)
        return found is not None and found.tree == EMPTY_TREE and not self._parents[commit]

    def _time_of(self, commit: str) -> int:
        found = self._commits.get(commit)
        return found.time_s if found is not None else 0


_WATCHED: Final = (b"logs/HEAD", b"HEAD", b"packed-refs")


def _tips(folder: bytes) -> list[str]:
    """Give the commits that a folder names, those in the reflog first; what cannot be read is passed over."""
    try:
        logged = _LOGGED.findall(read_if_there(os.path.join(folder, b"logs", b"HEAD")) or b"")
        refs = Refs(folder)
        head = refs.head()
        named = [*logged, *refs.everything().values(), *([] if head is None else [head])]
    except DomainError:
        return []
    return [oid.decode("ascii") for oid in named if oid.strip(b"0")]


def _sign(path: bytes) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
