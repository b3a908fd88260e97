"""Reading many files with the help of other processes: what the scan asks of whoever runs them."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from ckptd.shadow.objects.pack import PackWriter
from ckptd.shadow.scan.reading import ReadResult

__all__ = ["HashJob", "Help", "HelpTerms", "HelperRun", "Helpers"]

_MOST_FILES: Final = 64
_MOST_BYTES: Final = 8 * 1024 * 1024
_MOST_NAME_BYTES: Final = 4096


class HashJob:
    """Some regular files of one directory, none of them large, that are to be read and stored.

    ``directory`` is relative to the worktree, ``identity`` its device and inode, ``now_ns`` the clock before it was
    listed and ``margin_ns`` as is_young() has it. ``is_all``: it holds nothing else, so that its tree can be written
    as well. ``results`` are in the order of ``names``, an entry where nothing was the matter; they count once the job
    is settled. ``owner`` is the scan's own.
    """

    __slots__ = (
        "content_bytes",
        "directory",
        "identity",
        "is_all",
        "margin_ns",
        "name_bytes",
        "names",
        "now_ns",
        "owner",
        "results",
    )

    def __init__(self, owner: object, directory: bytes, identity: tuple[int, int], now_ns: int, margin_ns: int) -> None:
        self.owner = owner
        self.directory = directory
        self.identity = identity
        self.now_ns = now_ns
        self.margin_ns = margin_ns
        self.is_all = False
        self.names: list[bytes] = []
        self.content_bytes = 0
        self.name_bytes = 0
        self.results: Sequence[bytes | ReadResult] = ()

    def add(self, name: bytes, size: int) -> bool:
        """Take a file in; False where the job is full."""
        names, name_bytes, content_bytes = self.names, self.name_bytes + len(name), self.content_bytes + size
        if names and (len(names) >= _MOST_FILES or name_bytes > _MOST_NAME_BYTES or content_bytes > _MOST_BYTES):
            return False
        names.append(name)
        self.name_bytes, self.content_bytes = name_bytes, content_bytes
        return True


class HelpTerms(NamedTuple):
    """What a run works on: the worktree, the scan's own pack, and the indexes (paths) and suspects of the store.

    ``read`` does a job without help.
    """

    worktree: bytes
    pack: PackWriter
    pack_dir: bytes
    indexes: list[bytes]
    suspects: frozenset[bytes]
    read: Callable[[HashJob], None]


class HelperRun(Protocol):
    """The help that one scan has. Every method may raise DomainError: where a helper cannot write."""

    def submit(self, job: HashJob) -> None:
        """Have a job done, some time."""
        ...

    @property
    def busy(self) -> bool:
        """Whether any job has not been done."""
        ...

    def pump(self, *, wait: bool = False) -> list[HashJob]:
        """Hand on what can be handed on; give the jobs that have been done since the last call.

        With ``wait`` it takes a moment where there is nothing to give.
        """
        ...

    def settle(self) -> list[HashJob]:
        """Give the jobs that are done and not given before, once what they stored is durable and can be read.

        A helper that is lost on the way leaves jobs undone that had been done: then it is ``busy`` again.
        """
        ...

    def close(self) -> None:
        """End the help. What was not settled is lost. Raises nothing."""
        ...


Help = Callable[[Callable[[HashJob], None]], HelperRun | None]
"""Begins a run for a scan, which says how it does a job itself; None where there is no help to be had."""


class Helpers(Protocol):
    """Whoever has processes to help with."""

    def start(self, terms: HelpTerms) -> HelperRun | None:
        """Begin a run; None where there is no help to be had."""
        ...
