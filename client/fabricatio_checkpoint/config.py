"""The options: their types and defaults, and the configuration chain that sets them.

Highest first: arguments of the call; ``./.env``; the environment (``FABRICATIO_EXT__CHECKPOINT__<FIELD>``);
``[ext.checkpoint]`` of ``./fabricatio.toml``; ``[tool.fabricatio.ext.checkpoint]`` of ``./pyproject.toml``; the
user's own ``fabricatio.toml``; the defaults. Merging is per key.
"""

from __future__ import annotations

import os

from ckpt_protocol.address import SCHEMES
from fabricatio_checkpoint.configfile import home, places
from fabricatio_checkpoint.errors import error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any

    from fabricatio_checkpoint.configfile import Place

    Check = Callable[[object, bool], object]

__all__ = ["OPTIONS", "CheckpointConfig", "checkpoint_config", "read_options"]

_LARGEST = 2**63 - 1
_TRUE = ("1", "true", "yes", "on", "t", "y")
_FALSE = ("0", "false", "no", "off", "f", "n")


class _ExpectedError(ValueError):
    """A value of another type; the text says what is expected."""


class Option:
    """One option: ``check`` gives the typed value (or raises _ExpectedError), ``default`` what holds when unset."""

    def __init__(self, check: Check, default: object, *, path: bool = False) -> None:
        self.check = check
        self.default = default
        self.path = path


def read_options(environ: Mapping[str, str], cwd: str | None, names: tuple[str, ...]) -> dict[str, Any]:
    """Read the options ``names`` from the chain below the call's arguments; touch no more places than needed.

    Paths are absolute text, relative ones taken from ``cwd`` and ``~`` expanded. Raises InputError, naming place,
    key and what is expected, for a value that would hold and is wrong; KeyError for a name that is no option.
    """
    missing = {name: OPTIONS[name] for name in names}
    found: dict[str, Any] = {}
    for place in places(environ, cwd):
        for name in [name for name in missing if name in place.values]:
            found[name] = _checked(name, missing.pop(name), place)
        if not missing:
            break
    # A copy: a list may be appended to by who asked for it.
    found.update({name: _fresh(option.default) for name, option in missing.items()})
    return {name: _absolute(found[name], environ, cwd) if OPTIONS[name].path else found[name] for name in names}


class CheckpointConfig:
    """The options of this process, each read from the chain when it is first asked for, unless set before.

    Setting an attribute is the highest place of the chain. ``environ`` and ``cwd`` default to the process's own.
    """

    checkpoint_dir: Path
    cache_size: int
    socket: str | None
    scan: str
    idle_exit_s: float
    autosave: bool
    autosave_quiet_s: float
    autosave_max_wait_s: float
    scan_budget_ms: int
    max_file_bytes: int
    use_git_excludes: bool
    exclude: list[str]
    one_file_system: bool
    keep_last: int
    keep_hourly: int
    keep_daily: int
    keep_weekly: int
    keep_manual_days: int
    max_store_bytes: int

    def __init__(self, environ: Mapping[str, str] | None = None, cwd: str | None = None) -> None:
        self.__dict__["_environ"] = environ
        self.__dict__["_cwd"] = cwd

    def __getattr__(self, name: str) -> object:
        if name not in OPTIONS:
            raise AttributeError(f"{name!r} is not an option of fabricatio_checkpoint")
        environ = self.__dict__["_environ"]
        value = read_options(os.environ if environ is None else environ, self._directory(), (name,))[name]
        return self._keep(name, value)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in OPTIONS:
            raise AttributeError(f"{name!r} is not an option of fabricatio_checkpoint")
        try:
            checked = OPTIONS[name].check(value, False)
        except _ExpectedError as expected:
            raise error_of("bad_option", f"{name}: expected {expected}, found {value!r}") from None
        if OPTIONS[name].path:
            environ = self.__dict__["_environ"]
            checked = _absolute(checked, os.environ if environ is None else environ, self._directory())
        self._keep(name, checked)

    def reload(self) -> None:
        """Forget what was read and set; the next access reads the chain again."""
        for name in OPTIONS:
            self.__dict__.pop(name, None)

    def _keep(self, name: str, value: object) -> object:
        if name == "checkpoint_dir":
            from pathlib import Path

            value = Path(str(value))
        self.__dict__[name] = value
        return value

    def _directory(self) -> str | None:
        try:
            return self.__dict__["_cwd"] or os.getcwd()
        except OSError:
            return None


def _checked(name: str, option: Option, place: Place) -> object:
    try:
        return option.check(place.values[name], place.text)
    except _ExpectedError as expected:
        raise error_of(
            "bad_option",
            f"{place.where(name)}: expected {expected}, found {place.values[name]!r}",
            hint="correct or remove it",
            paths=[place.path] if place.path else [],
        ) from None


def _fresh(default: object) -> object:
    return list(default) if isinstance(default, list) else default


def _absolute(path: object, environ: Mapping[str, str], cwd: str | None) -> str | None:
    if not isinstance(path, str):
        return None
    if path.startswith(SCHEMES):
        return path
    if path == "~" or path.startswith("~/"):
        path = os.path.join(home(environ), path[2:])
    elif path.startswith("~"):
        path = os.path.expanduser(path)
    found = os.path.normpath(os.path.join(cwd or "", path))
    # Two slashes in front mean what one means, but normpath leaves them.
    return found[1:] if found.startswith("//") else found


def _integer(least: int) -> Check:
    expected = f"a whole number of at least {least}"

    def check(value: object, text: bool) -> int:
        if text:
            try:
                value = int(str(value))
            except ValueError:
                raise _ExpectedError(expected) from None
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= _LARGEST:
            return value
        raise _ExpectedError(expected)

    return check


def _seconds(value: object, text: bool) -> float:
    expected = "a number of seconds, 0 or more"
    if text:
        try:
            value = float(str(value))
        except ValueError:
            raise _ExpectedError(expected) from None
    # The upper bound refuses infinity as well; NaN fails both comparisons.
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 10**9:
        return value
    raise _ExpectedError(expected)


def _flag(value: object, text: bool) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower() if text else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise _ExpectedError("true or false")


def _choice(*words: str) -> Check:
    def check(value: object, _text: bool) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise _ExpectedError("one of " + ", ".join(words))

    return check


def _path(value: object, _text: bool) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str) and value and "\0" not in value:
        return value
    raise _ExpectedError("a path")


def _address(value: object, text: bool) -> str | None:
    if value is None or value == "":
        return None
    if not (isinstance(value, str) and value.startswith(SCHEMES)):
        return _path(value, text)
    from ckpt_protocol.endpoint import AddressError, parse

    try:
        parse(value)
    except AddressError as error:
        raise _ExpectedError(f"an address ({error})") from error
    return value


def _strings(value: object, text: bool) -> list[str]:
    if text:
        import json

        try:
            value = json.loads(str(value))
        except ValueError:
            value = _bare_list(str(value).strip())
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return list(value)
    raise _ExpectedError('a list of strings, such as ["*.log", "data/"]')


def _bare_list(text: str) -> list[str] | None:
    """Read ``[*.log, data/]``, which fabricatio takes without quotes."""
    if not (text.startswith("[") and text.endswith("]")) or '"' in text:
        return None
    return [each.strip() for each in text[1:-1].split(",") if each.strip()]


OPTIONS: dict[str, Option] = {
    "checkpoint_dir": Option(_path, "~/.fabricatio-checkpoint", path=True),
    "cache_size": Option(_integer(1), 100),
    "socket": Option(_address, None, path=True),
    "scan": Option(_choice("auto", "full"), "auto"),
    "idle_exit_s": Option(_seconds, 1800),
    "autosave": Option(_flag, False),
    "autosave_quiet_s": Option(_seconds, 2),
    "autosave_max_wait_s": Option(_seconds, 30),
    "scan_budget_ms": Option(_integer(0), 100),
    "max_file_bytes": Option(_integer(1), 100 * 1024 * 1024),
    "use_git_excludes": Option(_flag, True),
    "exclude": Option(_strings, []),
    "one_file_system": Option(_flag, True),
    "keep_last": Option(_integer(0), 100),
    "keep_hourly": Option(_integer(0), 24),
    "keep_daily": Option(_integer(0), 14),
    "keep_weekly": Option(_integer(0), 8),
    "keep_manual_days": Option(_integer(0), 0),
    "max_store_bytes": Option(_integer(1), 2 * 1024**3),
}
"""Every option of the table ``[ext.checkpoint]``."""

checkpoint_config: CheckpointConfig = CheckpointConfig()
"""The options of this process. ``from fabricatio_checkpoint.config import checkpoint_config``"""
