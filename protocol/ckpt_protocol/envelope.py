"""JSON-RPC 2.0 as this project speaks it: one Struct for a request, two for a reply."""

from typing import Literal

import msgspec

from ckpt_protocol.errors import BY_KIND, ErrorKind
from ckpt_protocol.structs import Part, Result, WirePath

__all__ = [
    "Call",
    "ErrorBody",
    "ErrorData",
    "Failure",
    "Notification",
    "RequestId",
    "Success",
    "failure",
    "notification",
]

RequestId = str | int | None


class Call(Part, frozen=True, kw_only=True):
    """A request; without ``id`` a notification, which gets no answer."""

    jsonrpc: Literal["2.0"]
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")
    id: RequestId | msgspec.UnsetType = msgspec.UNSET


class Success(Result, frozen=True, kw_only=True):
    """The answer to a call that was done."""

    jsonrpc: Literal["2.0"] = "2.0"
    result: msgspec.Raw
    id: RequestId


class ErrorData(Result, frozen=True, kw_only=True):
    """What a program can act on: the kind of the table, paths, a hint for people, an id to find in the log."""

    kind: str
    retryable: bool
    hint: str | None = None
    paths: list[WirePath] = []
    error_id: str | None = None


class ErrorBody(Result, frozen=True, kw_only=True):
    """The ``error`` member of a reply."""

    code: int
    message: str
    data: ErrorData


class Failure(Result, frozen=True, kw_only=True):
    """The answer to a call that was not done; ``id`` is null where the request's could not be read."""

    jsonrpc: Literal["2.0"] = "2.0"
    error: ErrorBody
    id: RequestId


class Notification(Result, frozen=True, kw_only=True):
    """What the daemon says without being asked at that moment; there is no answer to it."""

    jsonrpc: Literal["2.0"] = "2.0"
    method: str
    params: msgspec.Raw


def notification(method: str, params: Result) -> bytes:
    """Make the text of a notification."""
    return msgspec.json.encode(Notification(method=method, params=msgspec.Raw(msgspec.json.encode(params))))


def failure(
    request_id: RequestId,
    kind: str,
    message: str,
    *,
    hint: str | None = None,
    paths: list[WirePath] | None = None,
    error_id: str | None = None,
) -> Failure:
    """Make the reply of one row of the error table; raises KeyError for a kind that is not in it."""
    row: ErrorKind = BY_KIND[kind]
    data = ErrorData(kind=kind, retryable=row.retryable, hint=hint, paths=paths or [], error_id=error_id)
    return Failure(error=ErrorBody(code=row.code, message=message, data=data), id=request_id)
