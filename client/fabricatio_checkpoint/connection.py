"""The way to the daemon that all threads of a service share: calls, reconnects, retries.

Each call checks a socket out of a pool and puts it back: one thread always uses the same one, two calls at once use
two, and a short call never waits behind a long one. There is no limit on sockets in use (a limit would bring back
just that wait, and the daemon has its own); at most ``_MAX_IDLE`` are kept for later.
"""

from __future__ import annotations

import os
import time
from _thread import allocate_lock

from ckpt_protocol.address import SCHEMES
from ckpt_protocol.version import BUILD, PROTOCOL_VERSION
from fabricatio_checkpoint import launch
from fabricatio_checkpoint.errors import CheckpointError, ConnectionLost, Interrupted, error_of, from_reply
from fabricatio_checkpoint.interruption import current
from fabricatio_checkpoint.link import BrokenLinkError, Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Any

    from fabricatio_checkpoint.link import Notice

__all__ = ["READS", "Connection", "Listening"]

READS = frozenset(
    {
        "worktree.list",
        "worktree.status",
        "checkpoint.head",
        "checkpoint.list",
        "checkpoint.search",
        "checkpoint.show",
        "checkpoint.diff",
        "checkpoint.cat",
        "daemon.status",
        "rpc.discover",
        "store.usage",
        "store.verify",
    }
)
"""Methods that change nothing: they may be asked again. So may any request that carries a token."""

_MAX_IDLE = 4
_STOPPING_DEADLINE_S = 15.0
_STOPPING_PAUSE_S = 0.05
_OWNER_DEADLINE_S = 10.0
"""How long the owner of a checkpoint directory may be out of reach: one that lost its socket ends by itself."""
_OWNER_PAUSE_S = 0.25
_UNHEARD_TRIES = 5
_LAST_WORD_S = 3.0
"""How long an interrupted call waits to hear what came of it."""


class Connection:
    """Calls methods of the daemon at a socket; starts it where it does not run. Safe for threads and after a fork.

    ``client`` names the program that asks, ``session`` whatever it tells apart. ``timeout_s`` is the longest
    silence in seconds that a call bears (default: any; progress and replies end a silence). ``environ`` is what a
    started daemon inherits.
    """

    def __init__(
        self,
        socket_path: str,
        *,
        client: str,
        session: str | None = None,
        timeout_s: float | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._home = socket_path
        self._path = socket_path
        self._timeout_s = timeout_s
        self._environ = environ
        self._hello: dict[str, Any] = {
            "protocol": PROTOCOL_VERSION,
            "build": BUILD,
            "client": client,
            "session": session,
            "capabilities": ["progress"],
        }
        self._pool = _Pool()
        self._renewed = False
        self.peer: dict[str, Any] | None = None
        """What the daemon said of itself in its last hello, or None before the first."""

    def call(
        self,
        method: str,
        params: dict[str, Any],
        *,
        start: bool = True,
        repeatable: bool | None = None,
        on_notice: Notice | None = None,
    ) -> dict[str, Any]:
        """Ask for one method and return its result.

        ``start`` starts the daemon where it does not run (never for ``daemon.*``). ``repeatable`` says whether the
        request may be sent a second time after a broken connection: by default a read, and one with a token.
        ``on_notice`` gets notifications such as progress. Raises CheckpointError; ConnectionLost tells in ``sent``
        whether the daemon may have done it. Ctrl-C cancels the call, leaves this usable, and comes
        out as Interrupted.
        """
        if repeatable is None:
            repeatable = method in READS or "token" in params
        again = _Again(method)
        while True:
            try:
                return self._attempt(method, params, start and not again.own, on_notice)
            except BrokenLinkError as broken:
                if (interruption := current()) is not None:
                    interruption.check()
                if (broken.sent and not repeatable) or not again.may_resend(broken):
                    raise _lost(broken, method, self._path) from broken
            except CheckpointError as error:
                self._follow(error, again)

    def close(self) -> None:
        """Close the sockets that are not in use. The next call makes new ones."""
        self._pool.close_idle()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _attempt(self, method: str, params: dict[str, Any], start: bool, on_notice: Notice | None) -> dict[str, Any]:
        pool = self._own_pool()
        link = pool.take(self._path) or self._connect(pool, start)
        try:
            reply = _ask(link, method, params, on_notice)
        except CheckpointError:
            pool.drop(link)
            raise
        except BrokenLinkError as broken:
            broken.unheard = link.peer is None
            # The idle ones lead to the same daemon, which has just gone.
            pool.drop(link)
            pool.close_idle()
            raise
        except KeyboardInterrupt:
            raise self._interrupted(pool, link, method) from None
        except BaseException:
            link.cancel()
            pool.drop(link)
            raise
        self.peer = link.peer or self.peer
        if not self._renewed and self.peer is not None and self.peer.get("build") != BUILD:
            self._renew(pool, link)
        else:
            pool.put_back(link)
        return _result(reply, method)

    @staticmethod
    def _interrupted(pool: _Pool, link: Link, method: str) -> Interrupted:
        """Have the daemon give it up, and hear what came of it; another Ctrl-C ends the waiting."""
        try:
            return Interrupted(method, link.last_word(_LAST_WORD_S))
        finally:
            pool.drop(link)

    def listen(self, params: dict[str, Any], *, start: bool = True) -> Listening:
        """Subscribe to events, on a socket of its own; with ``start``, start the daemon where it does not run."""
        pool = self._own_pool()
        link = self._connect(pool, start=start)
        early: list[dict[str, Any]] = []
        try:
            _result(_ask(link, "events.subscribe", params, early.append), "events.subscribe")
        except BrokenLinkError as broken:
            pool.drop(link)
            raise _lost(broken, "events.subscribe", self._path) from broken
        except BaseException:
            pool.drop(link)
            raise
        return Listening(pool, link, early)

    def _renew(self, pool: _Pool, link: Link) -> None:
        """Let an older daemon make room, once: what comes next starts our own. This call has its answer already."""
        from fabricatio_checkpoint import renewal

        self._renewed = True
        try:
            leaves = renewal.after_call(link)
        except (BrokenLinkError, CheckpointError):
            leaves = True
        if leaves:
            pool.drop(link)
            pool.close_idle()
        else:
            pool.put_back(link)

    def _connect(self, pool: _Pool, start: bool) -> Link:
        sock = None
        if self._path != self._home:
            sock = launch.dial(self._path)
            if sock is None:
                self._path = self._home
        path = self._path
        if sock is None:
            sock = launch.connect(path, start=start, environ=self._environ)
        sock.settimeout(self._timeout_s)
        link = Link(sock, path, self._hello)
        pool.add(link)
        return link

    def _follow(self, error: CheckpointError, again: _Again) -> None:
        """Prepare another attempt where the answer says how it can succeed, else raise the error."""
        owner = error.hint or ""
        elsewhere = error.kind == "owned_elsewhere" and owner.startswith(("/", *SCHEMES)) and owner != self._path
        if elsewhere and again.may_follow(self._path == self._home):
            self._path = owner
        elif error.kind == "stopping" and not again.own and time.monotonic() < again.deadline:
            # Refused by a daemon that is about to end: nothing was done, and soon another one can be started.
            _pause(_STOPPING_PAUSE_S)
        elif error.kind == "protocol_mismatch" and not again.renewed:
            from fabricatio_checkpoint import renewal

            again.renewed = True
            if not renewal.instead_of(self._path, error):
                raise error
        else:
            raise error

    def _own_pool(self) -> _Pool:
        pool = self._pool
        if pool.pid != os.getpid():
            # Sockets from before a fork belong to the other process too: let go of them without a word.
            pool.abandon()
            pool = self._pool = _Pool()
        return pool


class Listening:
    """The notifications of a socket that is used for nothing else."""

    def __init__(self, pool: _Pool, link: Link, early: list[dict[str, Any]]) -> None:
        self._pool = pool
        self._link = link
        self._early = early
        self._closed = False

    def next(self) -> dict[str, Any] | None:
        """Wait for the next one; None after close(). Raises ConnectionLost, and what an interruption raises."""
        if self._early:
            return self._early.pop(0)
        interruption = current()
        try:
            if interruption is not None:
                interruption.watch(self._link)
            return None if self._closed else self._link.next_notice()
        except BrokenLinkError as broken:
            if self._closed:
                return None
            raise _lost(broken, "events.subscribe", self._link.path) from broken
        finally:
            if interruption is not None:
                interruption.watch(None)

    def close(self) -> None:
        """Hang up. May be called again, and while another thread waits."""
        if not self._closed:
            self._closed = True
            self._link.hang_up()
            self._pool.drop(self._link)


class _Again:
    """What one call has already tried. ``own`` marks methods about the daemon itself, which never start one."""

    def __init__(self, method: str) -> None:
        self.own = method.startswith("daemon.")
        self._resent = False
        self._unheard = 0
        self.redirected = False
        self.renewed = False
        self.deadline = time.monotonic() + _STOPPING_DEADLINE_S
        self._owner_deadline = time.monotonic() + _OWNER_DEADLINE_S

    def may_follow(self, at_home: bool) -> bool:
        """Whether to go to the owner of the directory; once more where it was tried and nobody was there."""
        if self.redirected:
            if not at_home or time.monotonic() > self._owner_deadline:
                return False
            _pause(_OWNER_PAUSE_S)
        self.redirected = True
        return True

    def may_resend(self, broken: BrokenLinkError) -> bool:
        """Whether a request that may be repeated is to be sent again; counts it."""
        if broken.unheard and not self.own and self._unheard < _UNHEARD_TRIES:
            # A process that is killed hangs up on its clients before it stops listening: who comes back at once
            # meets it once more, and was never heard.
            self._unheard += 1
            time.sleep(_STOPPING_PAUSE_S)
            return True
        first, self._resent = not self._resent, True
        return first


class _Pool:
    """The sockets of one process: those in use, and the idle ones."""

    def __init__(self) -> None:
        self.pid: int = os.getpid()
        self._lock = allocate_lock()
        self._idle: list[Link] = []
        self._busy: set[Link] = set()

    def take(self, path: str) -> Link | None:
        """Check out an idle socket to ``path``; those that lead elsewhere or nowhere are closed."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                link = self._idle.pop()
                self._busy.add(link)
            if link.path == path and link.is_idle():
                return link
            self.drop(link)

    def add(self, link: Link) -> None:
        """Count a new socket as in use."""
        with self._lock:
            self._busy.add(link)

    def put_back(self, link: Link) -> None:
        """Keep a socket for the next call, or close it where enough are kept."""
        with self._lock:
            self._busy.discard(link)
            kept = len(self._idle) < _MAX_IDLE
            if kept:
                self._idle.append(link)
        if not kept:
            link.close()

    def drop(self, link: Link) -> None:
        """Close a socket that was in use."""
        with self._lock:
            self._busy.discard(link)
        link.close()

    def close_idle(self) -> None:
        """Close all that are not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for link in idle:
            link.close()

    def abandon(self) -> None:
        """Close everything without the lock, which a thread of the other process may have held when it forked."""
        for link in [*self._idle, *self._busy]:
            link.close()

    def __del__(self) -> None:
        for link in self._idle:
            link.close()


def _pause(seconds: float) -> None:
    if (interruption := current()) is not None:
        interruption.check()
    time.sleep(seconds)


def _ask(link: Link, method: str, params: dict[str, Any], on_notice: Notice | None) -> dict[str, Any]:
    interruption = current()
    if interruption is None:
        return link.request(method, params, on_notice)
    try:
        interruption.watch(link)
        return link.request(method, params, on_notice)
    finally:
        # From here on the socket may be closed or serve another thread.
        interruption.watch(None)


def _result(reply: dict[str, Any], method: str) -> dict[str, Any]:
    body = reply.get("error")
    if isinstance(body, dict):
        raise from_reply(body, method)
    result = reply.get("result")
    if not isinstance(result, dict):
        raise error_of("internal", f"the daemon's answer to {method} has no result", method=method)
    return result


def _lost(broken: BrokenLinkError, method: str, path: str) -> ConnectionLost:
    from ckpt_protocol.errors import BY_KIND

    done = "it may have been done" if broken.sent else "nothing was asked of the daemon"
    lost = ConnectionLost(
        f"the connection to the daemon at {path} broke during {method}: {broken}; {done}",
        kind="connection_lost",
        hint="look what is there before you repeat it" if broken.sent else "try again",
        retryable=not broken.sent,
        method=method,
        code=BY_KIND["connection_lost"].code,
    )
    lost.sent = broken.sent
    return lost
