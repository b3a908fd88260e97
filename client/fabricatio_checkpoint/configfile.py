"""Where options can be set, from the highest place to the lowest; each is read only when it is asked.

Cheap to import: ``tomllib`` and ``dotenv`` are loaded only for a file that holds the words to look for.
"""

from __future__ import annotations

import os
import stat
import sys

from ckpt_protocol.address import home_dir
from fabricatio_checkpoint.errors import error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from fabricatio_checkpoint.errors import CheckpointError

__all__ = ["PREFIX", "Place", "global_file", "home", "places"]

PREFIX = "FABRICATIO_EXT__CHECKPOINT__"


class Place:
    """Options found in one place. ``text`` tells that every value is text, as in an environment."""

    def __init__(self, name: str, values: Mapping[str, Any], *, text: bool, key: str, path: str | None = None) -> None:
        self.values = values
        self.text = text
        self.path = path
        self._name = name
        self._key = key

    def where(self, option: str) -> str:
        """Name the place of an option for an error: the file or environment, and the key."""
        return f"{self._name}: {self._key}{option.upper() if self.text else option}"


def places(environ: Mapping[str, str], cwd: str | None) -> Iterator[Place]:
    """Give the places below the call's own arguments: ``.env``, environment, the project's files, the user's file.

    A file that is not in ``cwd`` is looked for in the directories above, as fabricatio does; None leaves these files
    out. Raises InputError for a file that cannot be read or understood, when its turn comes.
    """
    if cwd is not None:
        yield _dotenv(_nearest(cwd, ".env"), environ)
    yield Place("environment", _options(environ), text=True, key=PREFIX)
    if cwd is not None:
        yield _toml(_nearest(cwd, "fabricatio.toml"), ("ext", "checkpoint"))
        yield _toml(_nearest(cwd, "pyproject.toml"), ("tool", "fabricatio", "ext", "checkpoint"))
    yield _toml(global_file(environ), ("ext", "checkpoint"))


def home(environ: Mapping[str, str]) -> str:
    """Give the user's home directory."""
    return home_dir(environ)


def global_file(environ: Mapping[str, str]) -> str:
    """Give the path of the user's own ``fabricatio.toml``, whether or not there is one."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if sys.platform == "win32":
        base = environ.get("APPDATA", "")
    if not os.path.isabs(base):
        below = ("Library", "Application Support") if sys.platform == "darwin" else (".config",)
        base = os.path.join(home(environ), *below)
    return os.path.join(base, "fabricatio", "fabricatio.toml")


def _options(variables: Mapping[str, str]) -> dict[str, str]:
    """Pick our variables, whatever their case; one that is set to nothing counts as not set."""
    length = len(PREFIX)
    return {
        name[length:].lower(): value for name, value in variables.items() if value and name[:length].upper() == PREFIX
    }


def _nearest(cwd: str, name: str) -> str:
    """Give the path of a file in ``cwd``, else in the nearest directory above that has it, else the one in ``cwd``."""
    here = cwd
    while True:
        path = os.path.join(here, name)
        if _is_ours(path, here == cwd):
            return path
        above = os.path.dirname(here)
        if above == here:
            return os.path.join(cwd, name)
        here = above


def _is_ours(path: str, chosen: bool) -> bool:
    """Tell whether there is a file; in a directory that nobody ``chose``, such as /tmp, it must not be a stranger's."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and (chosen or not hasattr(os, "geteuid") or found.st_uid in (0, os.geteuid()))


def _dotenv(path: str, environ: Mapping[str, str]) -> Place:
    values: dict[str, str] = {}
    data = _read(path)
    if PREFIX.encode() in data.upper():
        from fabricatio_checkpoint.dotenvfile import variables

        values = _options(variables(data.decode("utf-8", "surrogateescape"), environ))
    return Place(path, values, text=True, key=PREFIX, path=path)


def _toml(path: str, keys: tuple[str, ...]) -> Place:
    data = _read(path)
    table: Any = {}
    if all(key.encode() in data for key in keys):
        import tomllib

        try:
            table = tomllib.loads(data.decode("utf-8-sig"))
        except ValueError as error:
            raise _unreadable(path, f"not valid TOML: {error}") from error
        except RecursionError as error:
            raise _unreadable(path, "it is nested too deeply") from error
    for key in keys:
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise _unreadable(path, f"{key} of {'.'.join(keys)}: expected a table, found {table!r}")
    return Place(path, table, text=False, key=".".join(keys) + ".", path=path)


def _read(path: str) -> bytes:
    """Read a file; nothing where there is none. ``.env`` is often a directory, and a FIFO would wait for ever."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return b""
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error


def _unreadable(path: str, reason: str) -> CheckpointError:
    return error_of(
        "bad_option",
        f"cannot read the options in {path}: {reason}",
        hint="correct the file, or call from another directory",
        paths=[path],
    )
