"""A daemon without stores for the client library's tests: speaks the wire over a real socket, as a test tells it.

Also runs as a process: stub_package() writes a ``ckptd`` package whose main program is this one.
"""

import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckpt_protocol.errors import BY_KIND
from ckpt_protocol.version import BUILD, PROTOCOL_VERSION

__all__ = ["HANG_UP", "FakeDaemon", "Notices", "Raw", "Refusal", "stub_environment"]

HANG_UP = object()
"""As an answer: close the connection without one."""

HELLO = {"protocol": PROTOCOL_VERSION, "build": BUILD, "pid": 4242, "capabilities": []}
_LIFE_S = 60.0


class Refusal(Exception):
    """Raised or returned by an answer: an error reply of one row of the table."""

    def __init__(self, kind: str, message: str = "refused", **data: Any) -> None:
        super().__init__(message)
        row = BY_KIND.get(kind)
        known = {"kind": kind, "retryable": row.retryable if row else False, "hint": None, "paths": []}
        self.body = {"code": row.code if row else 2999, "message": message, "data": {**known, **data}}


class Raw:
    """As an answer: these bytes, whatever they are."""

    def __init__(self, data: bytes) -> None:
        self.data = data


class Notices:
    """As an answer: notifications, and then the result."""

    def __init__(self, notices: list[dict[str, Any]], result: dict[str, Any]) -> None:
        self.notices = notices
        self.result = result


class FakeDaemon:
    """Serves ``path`` from a thread for each connection, until closed.

    ``answers`` maps a method to a result, one of the objects above, or a function of the params that gives one; a
    notification's is bytes, or hanging up, or nothing.
    ``asked`` lists (connection number, method, params) of every request, hellos included; ``connections`` and
    ``ended`` count connections.
    """

    def __init__(self, path: str, **answers: Any) -> None:
        self.path = path
        self.answers: dict[str, Any] = {"daemon.hello": HELLO}
        self.answers.update({name.replace("__", "."): answer for name, answer in answers.items()})
        self.asked: list[tuple[int, str, dict[str, Any]]] = []
        self.writes: list[int] = []
        self.connections = 0
        self.ended = 0
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listen()

    def __enter__(self) -> "FakeDaemon":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def methods(self) -> list[str]:
        """The methods that were asked for, without the hellos."""
        return [method for _, method, _ in self.asked if method != "daemon.hello"]

    def params(self, method: str) -> list[dict[str, Any]]:
        """The params of every request for a method."""
        return [params for _, name, params in self.asked if name == method]

    def restart(self) -> None:
        """End as a killed daemon does, socket file and all left in place, and serve again."""
        self.kill()
        os.unlink(self.path)
        self._listen()

    def kill(self) -> None:
        """Stop serving and hang up everywhere; the socket file stays."""
        self._stopped = True
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        self._threads = []

    def close(self) -> None:
        """End, if that has not happened, and remove the socket."""
        if not self._stopped:
            self.kill()
        Path(self.path).unlink(missing_ok=True)

    def _listen(self) -> None:
        Path(self.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._stopped = False
        self._server = socket.socket(socket.AF_UNIX)
        # As the real one: bound under another name, so that nobody finds a socket that does not listen yet.
        self._server.bind(self.path + ".new")
        self._server.listen(64)
        os.rename(self.path + ".new", self.path)
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(connection)
            self._start(self._serve, connection, self.connections)

    def _serve(self, connection: socket.socket, number: int) -> None:
        held = b""
        with connection:
            try:
                while data := connection.recv(1 << 20):
                    self.writes.append(number)
                    *lines, held = (held + data).split(b"\n")
                    if not all(self._answer(connection, number, json.loads(line)) for line in lines):
                        break
            except OSError:
                pass
            self._open.discard(connection)
        self.ended += 1

    def _answer(self, connection: socket.socket, number: int, document: dict[str, Any]) -> bool:
        method, params = document["method"], document["params"]
        self.asked.append((number, method, params))
        notification = "id" not in document
        if notification and method not in self.answers:
            return True
        answer = self._look_up(method, params)
        if answer is HANG_UP:
            return False
        notices = answer.notices if isinstance(answer, Notices) else []
        lines = [json.dumps({"jsonrpc": "2.0", **notice}).encode() + b"\n" for notice in notices]
        try:
            connection.sendall(b"".join([*lines, _encode(document.get("id"), answer)]))
        except OSError:
            # The client has gone, but what it said before is still to be read.
            pass
        return True

    def _look_up(self, method: str, params: dict[str, Any]) -> Any:
        answer = self.answers.get(method, Refusal("method_not_found", method))
        if not callable(answer):
            return answer
        try:
            return answer(params)
        except Refusal as refusal:
            return refusal


def _encode(request_id: Any, answer: Any) -> bytes:
    if isinstance(answer, Raw):
        return answer.data
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id}
    if isinstance(answer, Refusal):
        reply["error"] = answer.body
    else:
        reply["result"] = answer.result if isinstance(answer, Notices) else answer
    return json.dumps(reply).encode() + b"\n"


def stub_environment(place: Path, main: str = "from support.fake_daemon import main; main()") -> dict[str, str]:
    """Write a package ``ckptd`` below ``place``, and give an environment in which ``python -m ckptd`` is that one."""
    package = place / "stub" / "ckptd"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(main)
    tests = Path(__file__).resolve().parents[1]
    path = [place / "stub", tests, tests.parent / "protocol", tests.parent / "client"]
    return {**os.environ, "XDG_STATE_HOME": str(place / "state"), "PYTHONPATH": os.pathsep.join(map(str, path))}


def main() -> None:
    """Serve ``--socket`` until ``daemon.stop``; append one line about this process to the socket's ``.starts``."""
    path = sys.argv[sys.argv.index("--socket") + 1]
    facts = {
        "pid": os.getpid(),
        "session": os.getsid(0),
        "cwd": os.getcwd(),
        "environ": dict(os.environ),
        "files": sorted(int(name) for name in os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else [],
    }
    with open(path + ".starts", "a") as file:
        file.write(json.dumps(facts) + "\n")
    stopped = threading.Event()

    def stop(_params: dict[str, Any]) -> dict[str, Any]:
        stopped.set()
        return {"pid": os.getpid()}

    with FakeDaemon(path, worktree__list={"workspaces": [], "damaged": []}, daemon__stop=stop):
        # A test that fails must not leave this behind for ever.
        stopped.wait(_LIFE_S)
