"""An environment of its own for tests and demos: no file of the real user is read or written."""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping

__all__ = ["private_environment", "remove", "short_directory"]

_OURS = {
    "HOME": "h",
    "XDG_CONFIG_HOME": "h/.config",
    "XDG_CACHE_HOME": "h/.cache",
    "XDG_DATA_HOME": "h/.local/share",
    "XDG_STATE_HOME": "h/.local/state",
    "XDG_RUNTIME_DIR": "r",
    "TMPDIR": "t",
}
_FOREIGN = ("GIT_", "FABRICATIO_", "CKPT", "XDG_", "PYTEST_")
_FOREIGN_NAMES = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    # With it each process that is started would compile all modules anew.
    "PYTHONDONTWRITEBYTECODE",
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
)
_EFFORT = ("CKPT_TEST_LONG", "CKPT_TEST_BRIEF")


def short_directory(prefix: str = "ckt") -> str:
    """Make a private directory whose path is short enough for sockets below it."""
    base = "/tmp" if os.path.isdir("/tmp") else None
    return os.path.realpath(tempfile.mkdtemp(prefix=prefix, dir=base))


def private_environment(place: str, base: Mapping[str, str]) -> dict[str, str]:
    """Give ``base`` with home, XDG and temporary directories below ``place``, and without settings of git or ours.

    The directories are made, with mode 0700. The system's git configuration is left out as well: the tests
    compare with git's own behaviour, not with somebody's settings.
    """
    environ = {
        name: value for name, value in base.items() if not name.startswith(_FOREIGN) and name not in _FOREIGN_NAMES
    }
    for name, below in _OURS.items():
        environ[name] = os.path.join(place, below)
        os.makedirs(environ[name], mode=0o700, exist_ok=True)
    environ.update({name: base[name] for name in _EFFORT if name in base})
    environ["GIT_CONFIG_NOSYSTEM"] = "1"
    return environ


def remove(place: str) -> None:
    """Remove a directory made here, also where a test took away permissions inside it."""
    # The older name of the argument is deprecated, the newer one is not there in 3.11.
    handler = {"onexc" if sys.version_info >= (3, 12) else "onerror": _allow_and_retry}
    try:
        shutil.rmtree(place, **handler)
    except OSError as error:
        print(f"left behind: {place} ({error})")


def _allow_and_retry(function, path, _error):
    if not os.path.lexists(path):
        return
    os.chmod(os.path.dirname(path), 0o700)
    if not os.path.islink(path):
        os.chmod(path, 0o700)
    function(path)
