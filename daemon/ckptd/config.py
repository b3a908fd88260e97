"""The daemon's options: the global file and the environment, both given, each value checked.

A worktree's own two files have a say in a few options only: whoever can edit a worktree must not be able to thin
its history away.
"""

import json
import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from ckpt_protocol.address import SCHEMES, home_dir
from ckpt_protocol.endpoint import parse
from ckptd.autosave import Autosave, AutosaveWishes
from ckptd.regular import read_regular

__all__ = ["Config", "WorktreeOptions", "global_file", "load", "worktree_options"]

_MAX_FILE_BYTES: Final = 4 * 1024 * 1024
# Shorter than this nobody can type, and the daemon would do nothing else than look.
_SHORTEST_DELAY_S: Final = 0.05
_LONGEST_DELAY_S: Final = 86_400.0
_PREFIX: Final = "FABRICATIO_EXT__CHECKPOINT__"


class Config(NamedTuple):
    """``idle_exit_s`` in seconds, 0 for never; ``cache_size`` counts open stores; ``socket`` overrides the address.

    ``keep_*`` and ``max_store_bytes`` say what thinning leaves.

    ``complaints`` has one line for each value that was refused; the default stands in for it.
    """

    idle_exit_s: float = 1800.0
    cache_size: int = 100
    socket: str | None = None
    max_file_bytes: int = 100 * 1024 * 1024
    use_git_excludes: bool = True
    exclude: tuple[str, ...] = ()
    one_file_system: bool = True
    scan: str = "auto"
    scan_budget_ms: int = 100
    autosave: bool = Autosave().on
    autosave_quiet_s: float = Autosave().quiet_s
    autosave_max_wait_s: float = Autosave().max_wait_s
    keep_last: int = 100
    keep_hourly: int = 24
    keep_daily: int = 14
    keep_weekly: int = 8
    keep_manual_days: int = 0
    max_store_bytes: int = 2 * 1024**3
    complaints: tuple[str, ...] = ()


class WorktreeOptions(NamedTuple):
    """What a worktree's own files set; None where they say nothing. ``complaints`` are sentences for people."""

    exclude: tuple[str, ...] | None = None
    max_file_bytes: int | None = None
    autosave: bool | None = None
    autosave_quiet_s: float | None = None
    autosave_max_wait_s: float | None = None
    complaints: tuple[str, ...] = ()

    def autosave_wishes(self) -> AutosaveWishes:
        """Give what is said of autosave."""
        return AutosaveWishes(self.autosave, self.autosave_quiet_s, self.autosave_max_wait_s)


def global_file(environ: Mapping[str, str]) -> str:
    """Give the path of the user's ``fabricatio.toml``."""
    home = home_dir(environ)
    base = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        mac = sys.platform == "darwin"
        base = os.path.join(home, "Library", "Application Support") if mac else os.path.join(home, ".config")
    return os.path.join(base, "fabricatio", "fabricatio.toml")


def load(environ: Mapping[str, str]) -> Config:
    """Read the global file and, above it, the environment. Never fails: what is wrong becomes a complaint."""
    complaints: list[str] = []
    path = global_file(environ)
    home = home_dir(environ)
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


def worktree_options(root: bytes) -> WorktreeOptions:
    """Read what ``fabricatio.toml`` and, below it, ``pyproject.toml`` of a worktree may set. Never fails."""
    complaints: list[str] = []
    values: dict[str, Any] = {}
    for name, keys in reversed(_WORKTREE_FILES):
        path = os.path.join(os.fsdecode(root), name)
        for key, value in _table(path, complaints, keys).items():
            if key not in _WORKTREE_CHECKS:
                if key in _KNOWN:
                    complaints.append(f"{name}: {key} is not taken from a worktree's own files")
                continue
            try:
                values[key] = _WORKTREE_CHECKS[key](value, "")
            except ValueError as error:
                complaints.append(f"{name}: {key}: {error}")
    known = {key: value for key, value in values.items() if key in WorktreeOptions._fields}
    return WorktreeOptions(**known, complaints=tuple(complaints))


def _table(path: str, complaints: list[str], keys: tuple[str, ...] = ("ext", "checkpoint")) -> Mapping[str, Any]:
    try:
        # In a worktree any name may be anything: a FIFO would be waited for.
        text = read_regular(path, _MAX_FILE_BYTES) or b""
        # Most project files say nothing to us, and parsing one takes far longer than looking for the word.
        found: dict[str, Any] = tomllib.loads(text.decode()) if keys[-1].encode() in text else {}
    except RecursionError:
        complaints.append(f"{path}: it is nested too deeply")
        return {}
    except (OSError, ValueError) as error:
        complaints.append(f"{path}: {error}")
        return {}
    for key in keys:
        inner = found.get(key, {})
        if not isinstance(inner, dict):
            complaints.append(f"{path}: [{'.'.join(keys)}] is not a table")
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


def _number(value: object, _home: str) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1_000_000:
        return value
    raise ValueError("must be a whole number, 0 or more")


def _size(value: object, _home: str) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    raise ValueError("must be a number of bytes, 0 or more")


def _path(value: object, home: str) -> str | None:
    if value == "":
        return None
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("must be a path")
    path = os.path.join(home, value[2:]) if value.startswith("~/") else value
    if not os.path.isabs(path):
        raise ValueError("must be an absolute path")
    return os.path.normpath(path)


def _address(value: object, home: str) -> str | None:
    if isinstance(value, str) and value.startswith(SCHEMES):
        return parse(value).text if "@" in value else parse(value).name
    return _path(value, home)


def _flag(value: object, _home: str) -> bool:
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else ""
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    raise ValueError("must be true or false")


def _scan(value: object, _home: str) -> str:
    if value in ("auto", "full"):
        return str(value)
    raise ValueError("must be auto or full")


def _milliseconds(value: object, _home: str) -> int:
    number = int(value) if isinstance(value, str) and value.strip().isdigit() else value
    if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
        return number
    raise ValueError("must be a number of milliseconds from 0 on")


def _listed(text: str) -> object:
    """Read a list as an environment has it: JSON, or ``[*.log, data/]``, which fabricatio takes without quotes."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    if '"' not in text:
        return text[1:-1].split(",")
    try:
        return cast("object", json.loads(text))
    except ValueError:
        return None


def _patterns(value: object, _home: str) -> tuple[str, ...]:
    if isinstance(value, str):
        value = _listed(value.strip())
    if isinstance(value, list) and all(isinstance(one, str) and "\n" not in one for one in value):
        return tuple(one.strip() for one in value if one.strip())
    raise ValueError("must be a list of patterns")


def _delay(value: object, home: str) -> float:
    number = _seconds(value, home)
    if number > _LONGEST_DELAY_S:
        raise ValueError(f"must be at most {_LONGEST_DELAY_S:g} seconds")
    return max(number, _SHORTEST_DELAY_S)


_AUTOSAVE: Final[dict[str, Callable[[object, str], Any]]] = {
    "autosave": _flag,
    "autosave_quiet_s": _delay,
    "autosave_max_wait_s": _delay,
}
_CHECKS: Final[dict[str, Callable[[object, str], Any]]] = {
    "idle_exit_s": _seconds,
    "cache_size": _count,
    "socket": _address,
    "max_file_bytes": _size,
    "use_git_excludes": _flag,
    "exclude": _patterns,
    "one_file_system": _flag,
    "scan": _scan,
    "scan_budget_ms": _milliseconds,
    **_AUTOSAVE,
    **dict.fromkeys(("keep_last", "keep_hourly", "keep_daily", "keep_weekly", "keep_manual_days"), _number),
    "max_store_bytes": _size,
}
_WORKTREE_CHECKS: Final[dict[str, Callable[[object, str], Any]]] = {
    "exclude": _patterns,
    "max_file_bytes": _size,
    **_AUTOSAVE,
}
_WORKTREE_FILES: Final = (
    ("fabricatio.toml", ("ext", "checkpoint")),
    ("pyproject.toml", ("tool", "fabricatio", "ext", "checkpoint")),
)
_KNOWN: Final = frozenset({*_CHECKS, "checkpoint_dir"})
