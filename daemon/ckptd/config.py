"""The daemon's own options: the global file and the environment, both given, each value checked."""

import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

__all__ = ["Config", "global_file", "load"]

_PREFIX: Final = "FABRICATIO_EXT__CHECKPOINT__"


class Config(NamedTuple):
    """``idle_exit_s`` in seconds, 0 for never; ``cache_size`` counts open stores; ``socket`` overrides the address.

    ``complaints`` has one line for each value that was refused; the default stands in for it.
    """

    idle_exit_s: float = 1800.0
    cache_size: int = 100
    socket: str | None = None
    complaints: tuple[str, ...] = ()


def global_file(environ: Mapping[str, str]) -> str:
    """Give the path of the user's ``fabricatio.toml``."""
    home = environ.get("HOME") or os.path.expanduser("~")
    base = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        mac = sys.platform == "darwin"
        base = os.path.join(home, "Library", "Application Support") if mac else os.path.join(home, ".config")
    return os.path.join(base, "fabricatio", "fabricatio.toml")


def load(environ: Mapping[str, str]) -> Config:
    """Read the global file and, above it, the environment. Never fails: what is wrong becomes a complaint."""
    complaints: list[str] = []
    path = global_file(environ)
    home = environ.get("HOME") or os.path.expanduser("~")
    values: dict[str, Any] = {}
    for source, table in ((path, _table(path, complaints)), ("environment", _variables(environ))):
        for name, check in _CHECKS.items():
            if name not in table:
                continue
            try:
                values[name] = check(table[name], home)
            except ValueError as error:
                complaints.append(f"{source}: {name}: {error}")
    return Config(**values, complaints=tuple(complaints))


def _table(path: str, complaints: list[str]) -> Mapping[str, Any]:
    try:
        with open(path, "rb") as file:
            found: dict[str, Any] = tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        complaints.append(f"{path}: {error}")
        return {}
    for key in ("ext", "checkpoint"):
        inner = found.get(key, {})
        if not isinstance(inner, dict):
            complaints.append(f"{path}: [ext.checkpoint] is not a table")
            return {}
        found = inner
    return found


def _variables(environ: Mapping[str, str]) -> dict[str, str]:
    upper = {name.upper(): value for name, value in environ.items()}
    return {name[len(_PREFIX) :].lower(): value for name, value in upper.items() if name.startswith(_PREFIX)}


def _seconds(value: object, _home: str) -> float:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if 0 <= number <= 10**9:
            return number
    raise ValueError("must be a number of seconds, 0 or more")


def _count(value: object, _home: str) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1_000_000:
        return value
    raise ValueError("must be a whole number, 1 or more")


def _path(value: object, home: str) -> str | None:
    if value == "":
        return None
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("must be a path")
    path = os.path.join(home, value[2:]) if value.startswith("~/") else value
    if not os.path.isabs(path):
        raise ValueError("must be an absolute path")
    return os.path.normpath(path)


_CHECKS: Final[dict[str, Callable[[object, str], Any]]] = {
    "idle_exit_s": _seconds,
    "cache_size": _count,
    "socket": _path,
}
