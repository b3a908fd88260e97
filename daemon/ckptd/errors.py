"""Domain errors, and the one table that turns operating-system errors into them."""

import errno
from collections.abc import Iterable
from typing import Final

from ckpt_protocol.errors import BY_KIND
from ckpt_protocol.wirepath import to_text

__all__ = ["DomainError", "from_os_error", "spelled"]


class DomainError(Exception):
    """Something that a caller is told: ``kind`` is a row of the protocol's error table.

    ``message`` says what is wrong and where, ``hint`` what can be done, ``paths`` which paths it is about.
    Raises KeyError for a kind that is not in the table, so that no error can leave it unnoticed.
    """

    def __init__(self, kind: str, message: str, *, hint: str | None = None, paths: Iterable[bytes] = ()) -> None:
        super().__init__(message)
        self.row: Final = BY_KIND[kind]
        self.kind: Final = kind
        self.message: Final = message
        self.hint: Final = hint
        self.paths: Final = tuple(paths)

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BY_ERRNO: Final = {
    **dict.fromkeys(_NO_SPACE, ("no_space", "free some space, then try again")),
    errno.EACCES: ("permission_denied", "check the owner and the permissions"),
    errno.EPERM: ("permission_denied", "check the owner and the permissions"),
    errno.ENOTDIR: ("not_a_directory", "a part of the path is something else"),
    errno.ENAMETOOLONG: ("bad_path", "use shorter names"),
    errno.EROFS: ("read_only", "the file system is mounted read-only"),
    errno.EMFILE: ("too_many_files", "raise the limit of open files (ulimit -n)"),
    errno.ENFILE: ("too_many_files", "the system has no file descriptors left"),
}


def from_os_error(error: OSError, doing: str, path: bytes | None = None) -> DomainError:
    """Translate an OSError that happened while ``doing`` something ("write the pack") to ``path``."""
    kind, hint = _BY_ERRNO.get(error.errno or 0, ("io_error", None))
    where = f" {to_text(path)}" if path is not None else ""
    reason = error.strerror or str(error)
    return DomainError(kind, f"cannot {doing}{where}: {reason}", hint=hint, paths=() if path is None else (path,))


def spelled(text: str) -> str:
    """Spell out the lone surrogates that stand for bytes of names that are not UTF-8: JSON cannot hold them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
