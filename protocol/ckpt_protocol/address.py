"""Where the daemon's socket, lock and logs lie. Pure: the environment is an argument."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "APP",
    "MAX_SOCKET_PATH_BYTES",
    "SCHEMES",
    "InsecureDirectoryError",
    "ensure_private",
    "file_of",
    "home_dir",
    "is_private",
    "run_dir",
    "socket_path",
    "state_dir",
]

APP = "fabricatio-checkpoint"

MAX_SOCKET_PATH_BYTES = 103
"""The shortest limit of ``sun_path`` among the systems we know (macOS; Linux has 107)."""

SCHEMES = ("tcp:", "pipe:")
"""How an address begins that is no path of a Unix socket: ``endpoint`` reads those."""

_HOST_CHARACTERS = 32


class InsecureDirectoryError(OSError):
    """A directory for sockets or logs that others could write to, or that is not a directory of ours."""


def home_dir(environ: Mapping[str, str]) -> str:
    """The user's home: ``$HOME`` where that is an absolute path, else what the system knows; ``/`` if nothing."""
    home = environ.get("HOME", "")
    return home if os.path.isabs(home) else _home()


def state_dir(environ: Mapping[str, str]) -> str:
    """The directory of logs and start locks: ``$XDG_STATE_HOME``, else ``~/.local/state``, and our name."""
    base = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(home_dir(environ), ".local", "state")
    return os.path.join(base, APP)


def run_dir(environ: Mapping[str, str]) -> str:
    """The directory of the socket: below ``$XDG_RUNTIME_DIR``, else in the state directory.

    A runtime directory that is not ours alone is passed over, as one that does not exist. A home may be shared by
    several machines: below the state directory each has a directory of its own, for sockets do not reach further.
    """
    base = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(base) and is_private(base):
        return os.path.join(base, APP)
    return os.path.join(state_dir(environ), "run", os.uname().nodename.replace("/", "_")[:_HOST_CHARACTERS] or "host")


def socket_path(environ: Mapping[str, str], configured: str | None = None) -> str:
    """The daemon's address: the configured one, else the Unix socket ``ckptd.sock`` in run_dir().

    One that is no path gets the address file in run_dir() that belongs to it, unless it names one. A path too long for
    a socket address becomes a short one below ``/tmp``, named by a hash of the long one; its directory is made private
    before use as any other.
    """
    if configured is not None and configured.startswith(SCHEMES):
        file = os.path.join(run_dir(environ), "ckptd." + configured.partition(":")[0])
        return configured if "@" in configured else f"{configured}@{file}"
    path = configured or os.path.join(run_dir(environ), "ckptd.sock")
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    import hashlib  # milliseconds that only a long path is worth

    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return f"/tmp/ckpt-{os.getuid()}-{digest}/ckptd.sock"


def file_of(address: str) -> str:
    """The file that leads clients to an address: the socket, or the address file of one that is no path."""
    return address.partition("@")[2] if address.startswith(SCHEMES) else address


def ensure_private(directory: str) -> None:
    """Make a directory of mode 0700, or check that the one there is ours alone.

    Raises InsecureDirectoryError where it is a link, another user's, open to others, or would be made by root in
    another user's directory (sudo); OSError where it cannot be made.
    """
    if os.getuid() == 0:
        _refuse_anothers(directory)
    _make_parents(os.path.dirname(directory))
    if not _made(directory) and not is_private(directory):
        raise InsecureDirectoryError(
            f"{directory} must be a directory of yours with mode 0700: check who made it, then chmod 700 it"
        )


def _make_parents(directory: str) -> None:
    if directory and not os.path.isdir(directory):
        _make_parents(os.path.dirname(directory))
        _made(directory)


def _made(directory: str) -> bool:
    """Make a directory of mode 0700; False where there is something of this name."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        return False
    found = os.lstat(directory)
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and found.st_mode & 0o700 != 0o700:
        # A umask that takes the owner's own rights away. It is a whole process's, so that it cannot be set for this.
        os.chmod(directory, 0o700)
    return True


def _refuse_anothers(directory: str) -> None:
    nearest = directory
    while nearest != os.path.dirname(nearest) and not os.path.exists(nearest):
        nearest = os.path.dirname(nearest)
    owner = os.stat(nearest).st_uid
    if owner != 0 and nearest != directory:
        raise InsecureDirectoryError(
            f"{nearest} belongs to user {owner}, this is root: run as that user (without sudo), or set HOME"
        )


def _home() -> str:
    try:
        import pwd  # not on every system, and needed by nobody who has HOME

        home = pwd.getpwuid(os.getuid()).pw_dir
    except ImportError:
        home = os.path.expanduser("~")
    except KeyError:
        home = ""
    return home if os.path.isabs(home) else os.sep


def is_private(directory: str) -> bool:
    """Tell whether it is a directory of ours that nobody else can enter; a link to one is none."""
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
