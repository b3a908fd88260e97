"""How much may be watched: a part of what the system allows a user, whose editors want to watch as well."""

from typing import Final, NamedTuple

from ckptd.watch.kernel import inotify_limits

__all__ = ["Budget"]

_MOST_ROOTS: Final = 32
_MOST_DIRECTORIES: Final = 500_000


class Budget(NamedTuple):
    """``roots`` worktrees, one inotify instance each, with ``directories`` in all of them together."""

    roots: int = _MOST_ROOTS
    directories: int = _MOST_DIRECTORIES

    @classmethod
    def of_system(cls) -> "Budget":
        """Take half of the watches and a quarter of the instances that this user may have."""
        limits = inotify_limits()
        if limits is None:
            return cls()
        instances, watches = limits
        return cls(max(1, min(_MOST_ROOTS, instances // 4)), min(_MOST_DIRECTORIES, watches // 2))
