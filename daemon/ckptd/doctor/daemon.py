"""The daemon, asked over its socket: whether it answers, and which build it is. Nothing is started or removed."""

import json
import os
import socket
import stat
from collections.abc import Iterator
from typing import Final

from ckpt_protocol import remote
from ckpt_protocol.address import SCHEMES, file_of
from ckpt_protocol.endpoint import AddressError, parse
from ckpt_protocol.proof import UnprovedError
from ckpt_protocol.version import BUILD
from ckptd.doctor.finding import CannotFixError, Case, Finding
from ckptd.lock import HeldLock, LockedElsewhereError, this_process

__all__ = ["SilentDaemonError", "ask", "check"]

_PATIENCE_S: Final = 5.0


class SilentDaemonError(Exception):
    """Something listens at the socket and does not answer as a daemon does."""


def ask(path: str, method: str, **params: object) -> dict[str, object] | None:
    """Ask a daemon for one method; None where nobody listens.

    Raises SilentDaemonError, and OSError where the socket cannot be used at all.
    """
    call = {"jsonrpc": "2.0", "method": method, "params": params, "id": 1}
    connected = _connect(path)
    if connected is None:
        return None
    with connected as client:
        client.settimeout(_PATIENCE_S)
        try:
            client.sendall(json.dumps(call).encode() + b"\n")
            with client.makefile("rb") as lines:
                found = json.loads(lines.readline())["result"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SilentDaemonError(str(error)) from error
    return found if isinstance(found, dict) else {}


def _connect(path: str) -> socket.socket | None:
    if path.startswith(SCHEMES):
        return _connect_remote(path)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(_PATIENCE_S)
    try:
        client.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        client.close()
        return None
    except BaseException:
        client.close()
        raise
    return client


def _connect_remote(text: str) -> socket.socket | None:
    try:
        connected = remote.connect(parse(text))
    except (UnprovedError, AddressError) as error:
        raise SilentDaemonError(str(error)) from error
    return None if connected is None else socket.socket(fileno=connected.detach())


def check(case: Case) -> Iterator[Finding]:
    """Compare the builds; find a socket whose daemon is dead or silent, and locks that nobody answers for."""
    if case.answer is None:
        yield from _without_answer(case)
        return
    build = case.answer.get("version")
    if build != BUILD:
        yield Finding(
            "version",
            None,
            f"the daemon that runs is build {build}, this is build {BUILD}",
            "ask it to end when it is idle; the next command starts the other one",
            lambda: _replace(case.socket),
        )


def _without_answer(case: Case) -> Iterator[Finding]:
    if case.socket.startswith(SCHEMES):
        if case.silence is not None:
            file = os.fsencode(file_of(case.socket))
            yield Finding("socket", file, f"no daemon answers: {case.silence}", "a daemon that starts replaces it")
        return
    name = os.fsencode(case.socket)
    try:
        mode = os.lstat(name).st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        yield Finding("socket", name, "something else is where the socket should be", "look what it is, move it away")
        return
    if case.silence is not None:
        action = f"see ckpt daemon logs, then end the process that listens there{_listener(case.socket)}"
        yield Finding("socket", name, f"the daemon does not answer: {case.silence}", action)
    else:
        action = "remove it, if nobody has its lock (a daemon that starts replaces it as well)"
        yield Finding("socket", name, "nobody listens at the socket", action, lambda: _remove_socket(case.socket))


def _replace(path: str) -> None:
    try:
        answer = ask(path, "daemon.stop", if_idle=True)
    except SilentDaemonError as error:
        raise CannotFixError(f"it does not answer: {error}") from error
    if answer is not None and answer.get("stopping") is False:
        raise CannotFixError("it is at work, or the service manager would start the same build again")


def _remove_socket(path: str) -> None:
    try:
        lock = HeldLock.take(os.fsencode(path) + b".lock", this_process(""))
    except LockedElsewhereError as error:
        owner = "somebody" if error.owner is None else f"pid {error.owner.pid} on {error.owner.host}"
        raise CannotFixError(f"{owner} has its lock: a daemon is starting or ending") from error
    try:
        # Under the lock nobody can have bound it anew.
        os.unlink(path)
    finally:
        lock.close()


def _listener(path: str) -> str:
    """Name the process that listens, as the kernel knows it: what a file says may be another process by now."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return ""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_PATIENCE_S)
        try:
            client.connect(path)
            pid = int.from_bytes(client.getsockopt(socket.SOL_SOCKET, option, 12)[:4], "little")
        except OSError:
            return ""
    return f" (pid {pid})"
