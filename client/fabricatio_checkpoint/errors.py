"""The exceptions of this package, and the one table from a family of errors to its class.

Imports nothing: the command line loads this module before it knows whether anything goes wrong.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

__all__ = [
    "CheckpointError",
    "ConnectionLost",
    "DaemonStartError",
    "InputError",
    "InternalError",
    "Interrupted",
    "StateError",
    "StorageError",
    "TransportError",
    "error_of",
    "from_reply",
]

_PATHS_SHOWN = 3
_SHORT = 3


class CheckpointError(RuntimeError):
    """Base of every exception of this package; the subclass says what the caller can do.

    ``kind`` is a stable word (``unknown_checkpoint``), ``code`` its JSON-RPC number, ``message`` says what is wrong
    and where, ``hint`` what can be done, ``paths`` which paths it is about (as ``os.fsdecode`` gives them),
    ``retryable`` whether the same call can succeed later, ``error_id`` what to look for in the daemon's log,
    ``method`` the request that failed. ``exit_code`` is what the command line ends with.
    """

    exit_code = 70

    def __init__(
        self,
        message: str = "",
        *,
        kind: str = "internal",
        hint: str | None = None,
        paths: Iterable[str] = (),
        retryable: bool = False,
        error_id: str | None = None,
        method: str | None = None,
        code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.hint = hint
        self.paths: list[str] = list(paths)
        self.retryable = retryable
        self.error_id = error_id
        self.method = method
        self.code = code

    def __str__(self) -> str:
        """What, where, what to do."""
        text = self.message + _unnamed(self.message, self.paths)
        if self.hint:
            text += f"; {self.hint}"
        if self.error_id:
            text += f" (error {self.error_id} in the daemon's log)"
        return text


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a call. ``answer`` is the daemon's reply if it came soon after: an error, or what was done."""

    def __init__(self, method: str, answer: dict[str, Any] | None) -> None:
        super().__init__()
        self.method = method
        self.answer = answer


class InputError(CheckpointError):
    """Something was asked that cannot be: another path, id, tag or option is needed."""

    exit_code = 10


class StateError(CheckpointError):
    """The worktree or its history is not as the call needs it."""

    exit_code = 20


class StorageError(CheckpointError):
    """The disk or the store failed: space, permissions, damage."""

    exit_code = 50


class TransportError(CheckpointError):
    """The daemon could not be reached, started or understood."""

    exit_code = 60


class InternalError(CheckpointError):
    """A fault of ours. ``error_id`` leads to the details in the daemon's log."""

    exit_code = 70


class ConnectionLost(TransportError):
    """The connection broke during a call. ``sent`` tells whether the daemon may have done what was asked."""

    sent = False


class DaemonStartError(TransportError):
    """The daemon was started and did not come up; the message ends with the last lines it wrote."""


_BY_FAMILY: dict[str, type[CheckpointError]] = {
    "input": InputError,
    "state": StateError,
    "storage": StorageError,
    "daemon": TransportError,
    "bug": InternalError,
}
_BY_KIND: dict[str, type[CheckpointError]] = {
    "connection_lost": ConnectionLost,
    "start_failed": DaemonStartError,
}
_FAMILY_OF_THOUSAND = {1: "input", 2: "state", 3: "storage", 4: "daemon"}


def error_of(
    kind: str, message: str, *, hint: str | None = None, paths: Iterable[str] = (), method: str | None = None
) -> CheckpointError:
    """Make the exception of one row of the protocol's table; raises KeyError for a kind that is not in it."""
    from ckpt_protocol.errors import BY_KIND

    row = BY_KIND[kind]
    cls = _BY_KIND.get(kind) or _BY_FAMILY[row.family]
    return cls(message, kind=kind, hint=hint, paths=paths, retryable=row.retryable, method=method, code=row.code)


def from_reply(body: dict[str, Any], method: str | None) -> CheckpointError:
    """Make the exception of the ``error`` member of a reply, also of a kind that only a newer daemon knows."""
    data = body.get("data")
    data = data if isinstance(data, dict) else {}
    code = body.get("code")
    kind, family = _classify(data.get("kind"), code)
    message = str(body.get("message") or kind)
    if kind == "outside_worktree" and "prefix not found" not in message:
        message = f"prefix not found: {message}"
    return (_BY_KIND.get(kind) or _BY_FAMILY[family])(
        message,
        kind=kind,
        hint=_text(data.get("hint")),
        paths=_paths(data.get("paths")),
        retryable=data.get("retryable") is True,
        error_id=_text(data.get("error_id")),
        method=method,
        code=code if isinstance(code, int) else None,
    )


def _classify(kind: object, code: object) -> tuple[str, str]:
    from ckpt_protocol.errors import BY_CODE, BY_KIND

    row = BY_KIND.get(kind) if isinstance(kind, str) else None
    if row is None and isinstance(code, int):
        row = BY_CODE.get(code)
    if row is not None:
        return row.kind, row.family
    thousand = code // 1000 if isinstance(code, int) else 0
    return kind if isinstance(kind, str) else "internal", _FAMILY_OF_THOUSAND.get(thousand, "bug")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _paths(values: object) -> list[str]:
    from os import fsdecode

    from ckpt_protocol.wirepath import PathError, decode

    found = []
    for value in values if isinstance(values, list) else []:
        try:
            found.append(fsdecode(decode(value)))
        except PathError:
            # An error that cannot be read to the end is still better told than lost.
            found.append(str(value))
    return found


def _unnamed(message: str, paths: list[str]) -> str:
    """Name the paths that the message does not: the first few, and how many more there are."""
    words = [word.strip("'\"`:;,.()") for word in message.split()]
    if not paths or any(path in words or (len(path) > _SHORT and path in message) for path in paths):
        return ""
    more = len(paths) - _PATHS_SHOWN
    return f": {', '.join(paths[:_PATHS_SHOWN])}" + (f" and {more} more" if more > 0 else "")
