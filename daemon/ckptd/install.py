"""``python -m ckptd install-units``: writes the systemd user units, and tells systemd about them."""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ckpt_protocol.address import SCHEMES, home_dir
from ckpt_protocol.version import BUILD
from ckpt_protocol.wirepath import encode
from ckptd import config
from ckptd.chore import Said

__all__ = ["run", "unit_text"]

EXIT_OK: Final = 0
EXIT_LEFT: Final = 3
"""The files are as they should be, but systemd could not be told."""
EXIT_STORAGE: Final = 50
EXIT_DAEMON: Final = 60

_NAMES: Final = ("ckptd.socket", "ckptd.service")
_RELOAD: Final = ("systemctl", "--user", "daemon-reload")
_ENABLE: Final = ("systemctl", "--user", "enable", "--now", "ckptd.socket")
# With the session, not at once: autosave goes on after a reboot before anybody asks for anything.
_ENABLE_SERVICE: Final = ("systemctl", "--user", "enable", "ckptd.service")
_DISABLE: Final = ("systemctl", "--user", "disable", "--now", *_NAMES)
_PATIENCE_S: Final = 60.0


class _Outcome(NamedTuple):
    """``left`` are the commands that somebody has to run by hand, ``problem`` is why."""

    units: list[str]
    left: list[tuple[str, ...]]
    problem: str | None = None


def run(argv: Sequence[str], environ: Mapping[str, str]) -> Said:
    """Install the units, or remove them, and tell."""
    parser = argparse.ArgumentParser(prog="ckptd install-units", description="Let systemd start the daemon.")
    parser.add_argument("--remove", action="store_true", help="take them away again")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args(argv)
    directory = _directory(environ)
    socket = config.load(environ).socket
    if not options.remove and socket is not None and socket.startswith(SCHEMES):
        problem = f"systemd starts the daemon by a Unix socket, and the option socket is {socket}: remove it first"
        return _failed(EXIT_DAEMON, problem, as_json=options.json)
    try:
        outcome = _remove(directory) if options.remove else _install(directory, environ, socket)
    except OSError as error:
        return _failed(EXIT_STORAGE, f"cannot write the units: {error}", as_json=options.json)
    if outcome is None:
        problem = f"{sys.executable} cannot run ckptd {BUILD} without this environment: install the package first"
        return _failed(EXIT_DAEMON, problem, as_json=options.json)
    text = _document(outcome, removed=options.remove) if options.json else _text(outcome, removed=options.remove)
    return Said(EXIT_LEFT if outcome.left else EXIT_OK, text)


def unit_text(text: str, socket: str | None) -> str:
    """Fill in a unit: this interpreter, and the socket's path where it is not the usual one."""
    command = f"ExecStart={_quoted(sys.executable)} -P -m ckptd"
    text = re.sub(r"^ExecStart=.*$", lambda _: command, text, flags=re.MULTILINE)
    if socket is not None:
        line = f"ListenStream={socket.replace('%', '%%')}"
        text = re.sub(r"^ListenStream=.*$", lambda _: line, text, flags=re.MULTILINE)
    return text


def _quoted(word: str) -> str:
    """Write a program's path so that systemd reads it as it is; variables are not replaced in it."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{plain}"'


def _install(directory: str, environ: Mapping[str, str], socket: str | None) -> _Outcome | None:
    if not _runs_alone(environ):
        return None
    os.makedirs(directory, exist_ok=True)
    for name in _NAMES:
        _replace(os.path.join(directory, name), unit_text(_template(name), socket))
    return _ran((_RELOAD, _ENABLE, _ENABLE_SERVICE), _paths(directory))


def _remove(directory: str) -> _Outcome:
    paths = _paths(directory)
    if not any(os.path.lexists(path) for path in paths):
        return _Outcome([], [])
    first = _ran((_DISABLE,), paths)
    for path in paths:
        if os.path.lexists(path):
            os.unlink(path)
    second = _ran((_RELOAD,), paths)
    return _Outcome(paths, [*first.left, *second.left], first.problem or second.problem)


def _runs_alone(environ: Mapping[str, str]) -> bool:
    """Tell whether the interpreter finds this build without what only this shell knows, as systemd has it."""
    kept = {name: value for name, value in environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-P", "-m", "ckptd", "--version"]
    done = subprocess.run(
        command, env=kept, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_PATIENCE_S
    )
    return done.stdout.decode().strip() == f"ckptd {BUILD}"


def _ran(commands: Sequence[tuple[str, ...]], units: list[str]) -> _Outcome:
    for index, command in enumerate(commands):
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_PATIENCE_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return _Outcome(units, list(commands[index:]), str(error))
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            return _Outcome(units, list(commands[index:]), said[-1] if said else f"status {done.returncode}")
    return _Outcome(units, [])


def _directory(environ: Mapping[str, str]) -> str:
    base = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(home_dir(environ), ".config")
    return os.path.join(base, "systemd", "user")


def _paths(directory: str) -> list[str]:
    return [os.path.join(directory, name) for name in _NAMES]


def _template(name: str) -> str:
    """Read a unit: package data where the package is installed, the room ``systemd/`` in a source tree."""
    here = os.path.dirname(os.path.abspath(__file__))
    installed = os.path.join(here, "units", name)
    path = installed if os.path.exists(installed) else os.path.join(here, "..", "..", "systemd", name)
    with open(path, encoding="utf-8") as file:
        return file.read()


def _replace(path: str, text: str) -> None:
    temporary = f"{path}.new"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


def _text(outcome: _Outcome, *, removed: bool) -> str:
    if not outcome.units:
        return "no units are installed"
    lines = [f"{'removed' if removed else 'wrote'} {path}" for path in outcome.units]
    if outcome.left:
        lines.append(f"systemd could not be told ({outcome.problem}); in a session that has it, run:")
        lines += [f"  {' '.join(command)}" for command in outcome.left]
    else:
        lines.append("systemd knows it" if removed else "systemd listens, and starts the daemon when it is needed")
    return "\n".join(lines)


def _document(outcome: _Outcome, *, removed: bool) -> str:
    units = [encode(os.fsencode(path)) for path in outcome.units]
    left = [" ".join(command) for command in outcome.left]
    return json.dumps({"removed": removed, "units": units, "left": left, "problem": outcome.problem})


def _failed(code: int, problem: str, *, as_json: bool) -> Said:
    if not as_json:
        return Said(code, err=f"ckptd: {problem}")
    kind = "io_error" if code == EXIT_STORAGE else "start_failed"
    return Said(code, json.dumps({"error": {"kind": kind, "message": problem, "hint": None, "paths": []}}))
