"""One socket to the daemon: requests out, replies in, the hello before the first of them."""

from __future__ import annotations

import _socket
import time

from ckpt_protocol.framing import MAX_REPLY_BYTES, MAX_REQUEST_BYTES, FrameDecoder, FrameTooLargeError, encode_frame
from ckpt_protocol.version import BUILD, PROTOCOL_VERSION
from fabricatio_checkpoint import jsontext
from fabricatio_checkpoint.errors import CheckpointError, error_of, from_reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fabricatio_checkpoint.launch import Channel

    Notice = Callable[[dict[str, Any]], None]

__all__ = ["BrokenLinkError", "Link"]

_HELLO_ID = 0
_PIECE_BYTES = 256 * 1024
_QUICK_S = 30.0
"""The longest silence before a hello or a ``daemon.*`` method is answered: a daemon that lives does so at once."""


class BrokenLinkError(Exception):
    """The socket cannot be used any more; ``sent`` tells whether the daemon may have got the whole request.

    ``unheard`` is set where the daemon had not even answered the socket's hello.
    """

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent
        self.unheard = False


class Link:
    """A connected socket, used by one call at a time. After any exception of request() it has to be closed."""

    def __init__(self, sock: Channel, path: str, hello: dict[str, Any], quick_s: float = _QUICK_S) -> None:
        self.path = path
        self._quick_s = quick_s
        self.peer: dict[str, Any] | None = None
        self._sock = sock
        self._hello = hello
        self._decoder = FrameDecoder(MAX_REPLY_BYTES)
        self._frames: list[bytes] = []
        self._last_id = _HELLO_ID
        self._is_sent = False
        self._listens = False

    def request(self, method: str, params: dict[str, Any], on_notice: Notice | None = None) -> dict[str, Any]:
        """Send one request and wait for its reply, the whole JSON-RPC object; notifications go to ``on_notice``.

        ``daemon.*`` needs no hello and is sent without: it has to work with a daemon of any version. Raises
        BrokenLinkError, and CheckpointError where the daemon refuses the hello or the request cannot be sent.
        """
        self._last_id += 1
        request_id = self._last_id
        frame = _frame(request_id, method, params)
        greet = self.peer is None and not method.startswith("daemon.")
        if greet:
            frame = _frame(_HELLO_ID, "daemon.hello", self._hello) + frame
        try:
            return self._exchange(frame, request_id, greet, on_notice)
        except (OSError, FrameTooLargeError, RecursionError) as error:
            raise BrokenLinkError(str(error), sent=True) from error

    def is_idle(self) -> bool:
        """Tell whether the daemon still holds the other end and has said nothing that nobody asked for."""
        limit = self._sock.gettimeout()
        try:
            self._sock.settimeout(0)
            self._sock.recv(1, _socket.MSG_PEEK)
        except BlockingIOError:
            self._sock.settimeout(limit)
            return True
        except OSError:
            return False
        return False

    def cancel(self) -> None:
        """Ask the daemon to give up the last request, if that can be said without waiting."""
        try:
            self._sock.send(_frame(None, "$/cancel", {"id": self._last_id}), _socket.MSG_DONTWAIT)
        except OSError:
            return

    def call_off(self) -> None:
        """Let go of the request that another thread waits for: ask the daemon to give it up, or do not send it.

        The other thread gets the daemon's answer, or BrokenLinkError.
        """
        if self._is_sent and not self._listens:
            self.cancel()
        else:
            # Half a request may be out, and nothing may follow it.
            self.hang_up()

    def last_word(self, seconds: float) -> dict[str, Any] | None:
        """Ask the daemon to give up the last request, and wait so long for its reply; None where none comes."""
        if not self._is_sent:
            return None
        self.cancel()
        until = time.monotonic() + seconds
        try:
            while (left := until - time.monotonic()) > 0:
                self._sock.settimeout(left)
                document = self._next(True)
                if document.get("id") == self._last_id and "method" not in document:
                    return document
        except (OSError, BrokenLinkError, CheckpointError, FrameTooLargeError):
            return None
        return None

    def next_notice(self) -> dict[str, Any]:
        """Wait for the next notification, however long; raises BrokenLinkError."""
        self._listens = True
        try:
            self._sock.settimeout(None)
            while "method" not in (document := self._next(True)):
                continue
        except (OSError, FrameTooLargeError) as error:
            raise BrokenLinkError(str(error), sent=True) from error
        return document

    def hang_up(self) -> None:
        """End the waiting of another thread with BrokenLinkError."""
        try:
            self._sock.shutdown(_socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        """Close this process's end; after a fork the other process's one stays usable."""
        self._sock.close()

    def _exchange(self, frame: bytes, request_id: int, greet: bool, on_notice: Notice | None) -> dict[str, Any]:
        sent = True
        self._is_sent = False
        try:
            self._sock.sendall(frame)
            self._is_sent = True
        except ConnectionError:
            # The last byte did not go out, so nothing was asked. The daemon may have said why it hung up: read on.
            sent = False
        waiting = {request_id, _HELLO_ID} if greet else {request_id}
        replies: dict[int, dict[str, Any]] = {}
        patience = self._sock.gettimeout()
        while waiting:
            quick = self.peer is None
            self._sock.settimeout(min(patience or self._quick_s, self._quick_s) if quick else patience)
            document = self._next(sent)
            if "method" in document:
                if on_notice is not None:
                    on_notice(document)
                continue
            found = document.get("id")
            if found is None:
                raise from_reply(_error(document), None)
            if not isinstance(found, int) or found not in waiting:
                continue
            waiting.discard(found)
            replies[found] = document
            if found == _HELLO_ID:
                self._greeted(document)
        self._sock.settimeout(patience)
        return replies[request_id]

    def wait_until_closed(self, seconds: float) -> bool:
        """Wait for the daemon to hang up; False where it has not done so after ``seconds``."""
        try:
            self._sock.settimeout(seconds)
            while self._sock.recv(_PIECE_BYTES):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def _next(self, sent: bool) -> dict[str, Any]:
        while not self._frames:
            try:
                data = self._sock.recv(_PIECE_BYTES)
            except ConnectionError as error:
                raise BrokenLinkError(error.strerror or str(error), sent=sent) from error
            except TimeoutError as error:
                raise error_of("unreachable", "the daemon does not answer", hint="see ckpt daemon logs") from error
            if not data:
                raise BrokenLinkError("the daemon closed the connection", sent=sent)
            self._frames = self._decoder.feed(data)[::-1]
        return _document(self._frames.pop())

    def _greeted(self, document: dict[str, Any]) -> None:
        if "error" in document:
            raise _with_builds(from_reply(_error(document), "daemon.hello"))
        peer = document.get("result")
        if not isinstance(peer, dict) or peer.get("protocol") != PROTOCOL_VERSION:
            raise _mismatch(peer if isinstance(peer, dict) else {})
        self.peer = peer


def _frame(request_id: int | None, method: str, params: dict[str, Any]) -> bytes:
    document: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    if request_id is not None:
        document["id"] = request_id
    try:
        frame = encode_frame(jsontext.dumps(document).encode("utf-8"))
    except UnicodeEncodeError as error:
        what = ascii(error.object[error.start : error.end])
        raise error_of("bad_message", f"text that is not valid Unicode: {what}", method=method) from error
    if len(frame) > MAX_REQUEST_BYTES:
        raise error_of(
            "frame_too_large", f"a request of {len(frame)} bytes", hint="name fewer paths in one call", method=method
        )
    return frame


def _document(frame: bytes) -> dict[str, Any]:
    try:
        document = jsontext.loads(frame.decode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise error_of("internal", "the daemon's answer is not JSON") from error
    if not isinstance(document, dict):
        raise error_of("internal", "the daemon's answer is not a JSON-RPC object")
    return document


def _error(document: dict[str, Any]) -> dict[str, Any]:
    body = document.get("error")
    return body if isinstance(body, dict) else {}


def _mismatch(peer: dict[str, Any]) -> CheckpointError:
    theirs = f"build {peer.get('build', 'unknown')} (protocol {peer.get('protocol', 'unknown')})"
    return error_of(
        "protocol_mismatch",
        f"the daemon is {theirs}, this client is build {BUILD} (protocol {PROTOCOL_VERSION})",
        hint="end it with: ckpt daemon stop",
        method="daemon.hello",
    )


def _with_builds(error: CheckpointError) -> CheckpointError:
    """The daemon names its own build; whatever it says, the line names this one as well."""
    if error.kind == "protocol_mismatch":
        if BUILD not in error.message:
            error.message += f" (this client is build {BUILD}, protocol {PROTOCOL_VERSION})"
        error.hint = error.hint or "end it with: ckpt daemon stop"
    return error
