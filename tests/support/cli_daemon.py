"""A daemon of cardboard for the command line's tests: a real socket, and answers that the test has written."""

import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ckpt_protocol.errors import BY_KIND
from ckpt_protocol.version import BUILD, PROTOCOL_VERSION

__all__ = ["AfterCancel", "CardboardDaemon", "Refusal", "Told"]

Answer = Callable[[dict[str, Any]], dict[str, Any]] | dict[str, Any]


class Refusal(Exception):
    """Raised by an answer: the daemon replies with this error."""

    def __init__(self, kind: str, message: str = "refused", **data: Any) -> None:
        super().__init__(message)
        row = BY_KIND[kind]
        self.body = {
            "code": row.code,
            "message": message,
            "data": {"kind": kind, "retryable": row.retryable, "hint": None, "paths": [], "error_id": None, **data},
        }


class AfterCancel(dict[str, Any]):
    """As an answer: this result, or ``refusal``, once a notification has come; ``asked`` is called before."""

    def __init__(self, asked: Callable[[], object], result: Mapping[str, Any], refusal: Refusal | None = None) -> None:
        super().__init__(result)
        self.asked = asked
        self.refusal = refusal


class Told(dict[str, Any]):
    """As an answer: these notifications of progress, and then the result."""

    def __init__(self, result: Mapping[str, Any], *progress: Mapping[str, Any]) -> None:
        super().__init__(result)
        self.progress = progress


class CardboardDaemon:
    """Serves until closed. ``answers`` maps a method to its result, or to a function of the params.

    ``asked`` is every request but the hello, in order; methods without an answer are refused as not tracked.
    """

    def __init__(self, path: str, answers: Mapping[str, Answer] | None = None) -> None:
        self.path = path
        self.answers: dict[str, Answer] = dict(answers or {})
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.hellos: list[dict[str, Any]] = []
        self._ours: set[socket.socket] = set()
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen(16)
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> "CardboardDaemon":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def calls(self, method: str) -> list[dict[str, Any]]:
        """The params of every request for a method."""
        return [params for name, params in self.asked if name == method]

    def close(self) -> None:
        """Hang up, and remove the socket."""
        self._server.shutdown(socket.SHUT_RDWR)
        for connection in list(self._ours):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(10)
        self._server.close()
        if os.path.exists(self.path):
            os.unlink(self.path)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._ours.add(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                if "id" not in request:
                    self.asked.append((request["method"], request["params"]))
                    continue
                found = self._reply(request)
                answer, told = found.get("result"), b""
                if isinstance(answer, AfterCancel):
                    answer.asked()
                    note = json.loads(lines.readline())
                    self.asked.append((note["method"], note["params"]))
                    found = {"error": answer.refusal.body} if answer.refusal else found
                if isinstance(answer, Told):
                    told = b"".join(_progress(request["id"], one) for one in answer.progress)
                reply = {"jsonrpc": "2.0", "id": request["id"], **found}
                try:
                    connection.sendall(told + json.dumps(reply).encode() + b"\n")
                except OSError:
                    return

    def _reply(self, request: dict[str, Any]) -> dict[str, Any]:
        method, params = request["method"], request["params"]
        if method == "daemon.hello":
            self.hellos.append(params)
            return {"result": {"protocol": PROTOCOL_VERSION, "build": BUILD, "pid": os.getpid(), "capabilities": []}}
        self.asked.append((method, params))
        try:
            answer = self.answers.get(method, _not_tracked)
            return {"result": answer(params) if callable(answer) else answer}
        except Refusal as refusal:
            return {"error": refusal.body}


def _not_tracked(_params: dict[str, Any]) -> dict[str, Any]:
    raise Refusal("not_tracked", "not tracked")


def _progress(request_id: object, told: Mapping[str, Any]) -> bytes:
    params = {"id": request_id, "phase": "hash", "done": 0, "total": 0, "bytes": 0, **told}
    return json.dumps({"jsonrpc": "2.0", "method": "$/progress", "params": params}).encode() + b"\n"
