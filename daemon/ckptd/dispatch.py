"""From the bytes of a frame to the bytes of its answer: envelope, params, errors.

The looking up and calling is jsonrpcserver's; decoding, encoding and every text that reaches a client are ours.
"""

import inspect
import json
import logging
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar, Final, NamedTuple, cast

import anyio.lowlevel
import msgspec
from jsonrpcserver import Error, async_dispatch
from jsonrpcserver import Result as Outcome
from jsonrpcserver import Success as Done

from ckpt_protocol.envelope import Call, ErrorBody, ErrorData, Failure, RequestId, Success, failure
from ckpt_protocol.events import CANCEL, CancelParams
from ckpt_protocol.framing import MAX_REPLY_BYTES
from ckpt_protocol.methods import METHODS, Method
from ckpt_protocol.structs import Request, Result, WirePath, Worktree, from_wire, to_wire
from ckpt_protocol.wirepath import PathError, check_absolute, check_relative, to_text
from ckptd import log
from ckptd.asked import Asked
from ckptd.errors import DomainError
from ckptd.handlers import HANDLERS, Daemon, Handler
from ckptd.peer import Peer

__all__ = ["MAX_BATCH", "Dispatcher", "encode_failure"]

MAX_BATCH: Final = 64
"""Members of a batch; they are done one after the other, in order."""

_LONGEST_REASON: Final = 300
"""Characters: the reason may quote the name of a field, which is as long as the client wants it."""

_AT_ONCE: Final = 1000
"""So many paths are checked before others have their turn."""

_BUG: Final = "unexpected error in the daemon"
_BUG_HINT: Final = "the daemon's log has it under this error id"

_logger = logging.getLogger(__name__)
_encode = msgspec.json.encode
_call_decoder = msgspec.json.Decoder(Call)
_cancel_decoder = msgspec.json.Decoder(CancelParams)
_batch_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class Dispatcher:
    """Answers frames for one daemon. Holds no state of a request and never raises for one."""

    def __init__(
        self, daemon: Daemon, handlers: dict[str, Handler] = HANDLERS, batch_bytes: int = MAX_REPLY_BYTES
    ) -> None:
        self._batch_bytes = batch_bytes
        self._methods = _Methods({name: _Method(METHODS[name], daemon, found) for name, found in handlers.items()})

    async def handle(self, frame: bytes, peer: Peer) -> bytes | None:
        """Answer one frame; None where there is nothing to say (a notification, or a batch of them)."""
        try:
            return await self._handle(frame, peer)
        except Exception:
            # Whatever a frame may bring to light, it must not end the connections of others.
            error_id = _log_bug("a frame")
            return _encode(failure(None, "internal", _BUG, hint=_BUG_HINT, error_id=error_id))

    async def _handle(self, frame: bytes, peer: Peer) -> bytes | None:
        if (refusal := _refuse_text(frame)) is not None:
            return refusal
        if not frame.lstrip().startswith(b"["):
            return await self._answer(_take(frame, peer))
        members = _split(frame)
        if isinstance(members, bytes):
            return members
        # All are known from the start: one that waits for its turn can be called off, by another member as well.
        taken = [_take(member, peer) for member in members]
        try:
            return await self._answer_all(taken)
        finally:
            for one in taken:
                if isinstance(one, _Invocation):
                    peer.end(one.asked)

    async def _answer_all(self, taken: list["_Taken"]) -> bytes | None:
        answers: list[bytes | None] = []
        room = self._batch_bytes
        for one in taken:
            answer = await self._answer(one)
            if answer is not None and len(answer) >= room:
                text = one.text if isinstance(one, _Invocation) else answer
                answer = _refuse_call(text, "frame_too_large", "the answers of the batch are too long together")
            room -= len(answer or b"") + 1
            answers.append(answer)
        return _join(answers)

    def refuse(self, frame: bytes, kind: str, message: str, peer: Peer) -> bytes | None:
        """Answer a frame with an error without doing it, ids echoed as handle() would. ``$/cancel`` is done."""
        if (refusal := _refuse_text(frame)) is not None:
            return refusal
        if not frame.lstrip().startswith(b"["):
            return _refuse_call(frame, kind, message, peer)
        members = _split(frame)
        if isinstance(members, bytes):
            return members
        return _join([_refuse_call(member, kind, message, peer) for member in members])

    async def _answer(self, taken: "_Taken") -> bytes | None:
        if not isinstance(taken, _Invocation):
            return taken
        try:
            answer: Any = await async_dispatch(
                # The library hands this to our deserializer and looks at nothing of it.
                taken.call,
                self._methods,
                context=taken,
                deserializer=_as_library_request,
                validator=_accept,
                # It is handed on as it is: bytes spare a copy of a long answer.
                serializer=cast("Any", _encode_answer),
            )
        finally:
            taken.asked.peer.end(taken.asked)
        return answer or None


class _Invocation(NamedTuple):
    call: Call
    text: bytes
    """The whole call as it was sent."""
    asked: Asked


_Taken = _Invocation | bytes | None
"""A call that is to be done, or what has to be said instead."""


class _Methods(dict[str, "_Method"]):
    """The table that the library looks in; a name that is not there finds the method that says so."""

    def __missing__(self, name: str) -> "_UnknownMethod":
        return _UnknownMethod(name)


class _Callable:
    """What the library calls, as a plain function of the context: it asks for the signature at every call."""

    __signature__: ClassVar = inspect.Signature([inspect.Parameter("invocation", inspect.Parameter.POSITIONAL_ONLY)])


class _UnknownMethod(_Callable):
    def __init__(self, name: str) -> None:
        self._name = name

    async def __call__(self, _invocation: _Invocation) -> Outcome:
        log.request_line(self._name, None, 0.0, "method_not_found")
        return _error("method_not_found", f"there is no method {self._name[:64]!a}")


class _Method(_Callable):
    """One method: params in, result out, and nothing else ever leaves."""

    def __init__(self, row: Method, daemon: Daemon, handler: Handler) -> None:
        self._name = row.name
        self._writes = row.writes
        self._decode = msgspec.json.Decoder(row.params).decode
        self._daemon = daemon
        self._handler = handler

    async def __call__(self, invocation: _Invocation) -> Outcome:
        begun = time.perf_counter()
        worktree: str | None = None
        error_id: str | None = None
        outcome = "ok"
        asked = invocation.asked
        try:
            if asked.peer.refused is not None and not self._name.startswith("daemon."):
                raise asked.peer.refused
            params = self._decode(invocation.call.params)
            self._prepare(asked, params)
            if self._writes:
                _refuse_twice(invocation.text)
            worktree = await _check_paths(params)
            answer = Done(_result(await self._handler(self._daemon, asked, params)))
        except (msgspec.ValidationError, _TwiceError) as error:
            outcome, answer = "invalid_params", _error("invalid_params", f"invalid params: {error}"[:_LONGEST_REASON])
        except PathError as error:
            outcome, answer = "bad_path", _error("bad_path", str(error))
        except DomainError as error:
            told = asked.as_told(error)
            outcome, answer = told.kind, _domain_error(told)
        except Exception:
            outcome, error_id = "internal", _log_bug(self._name)
            answer = _error("internal", _BUG, hint=_BUG_HINT, error_id=error_id)
        log.request_line(self._name, worktree, time.perf_counter() - begun, outcome, error_id)
        return answer

    @staticmethod
    def _prepare(asked: Asked, params: Request) -> None:
        # A hello may have come since this arrived, in the same batch.
        asked.caller.client, asked.caller.session = asked.peer.client, asked.peer.session
        if params.deadline_s:
            asked.set_deadline(params.deadline_s)
        asked.caller.check()


def _log_bug(where: str) -> str:
    error_id = secrets.token_hex(6)
    _logger.exception("error_id=%s in %s", error_id, where)
    return error_id


def encode_failure(request_id: RequestId, kind: str, message: str, hint: str | None = None) -> bytes:
    """Make the frame's text of an error that concerns no method."""
    return _encode(failure(request_id, kind, message, hint=hint))


def _refuse_text(frame: bytes) -> bytes | None:
    # msgspec passes over the inside of params here, so that bad UTF-8 in it would be found too late.
    try:
        frame.decode("utf-8")
    except UnicodeDecodeError:
        return encode_failure(None, "parse_error", "the request is not UTF-8")
    return None


def _split(frame: bytes) -> list[msgspec.Raw] | bytes:
    try:
        members = _batch_decoder.decode(frame)
    except (msgspec.DecodeError, RecursionError):
        return _parse_error()
    if not members:
        return encode_failure(None, "invalid_request", "an empty batch")
    if len(members) > MAX_BATCH:
        return encode_failure(None, "invalid_request", f"a batch of more than {MAX_BATCH}")
    return members


def _join(answers: list[bytes | None]) -> bytes | None:
    said = [answer for answer in answers if answer is not None]
    return b"[" + b",".join(said) + b"]" if said else None


def _decode_call(text: bytes | msgspec.Raw) -> Call | bytes:
    try:
        return _call_decoder.decode(text)
    except msgspec.ValidationError as error:
        return _invalid_request(text, str(error))
    except (msgspec.DecodeError, RecursionError):
        return _parse_error()


def _invalid_request(text: bytes | msgspec.Raw, why: str) -> bytes:
    # Whether it is JSON at all shows only now, since the first wrong type ended the typed decoding. No more of it is
    # read than has to be: a frame full of brackets takes twenty times its length as a document.
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return _parse_error()
    return encode_failure(_readable_id(text), "invalid_request", f"not a JSON-RPC 2.0 request: {why[:_LONGEST_REASON]}")


def _readable_id(text: bytes | msgspec.Raw) -> RequestId:
    try:
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        return msgspec.json.decode(members.get("id", b"null"), type=str | int | None)
    except (msgspec.DecodeError, RecursionError):
        return None


def _parse_error() -> bytes:
    return encode_failure(None, "parse_error", "the request is not JSON, or nested too deeply")


def _take(text: bytes | msgspec.Raw, peer: Peer) -> _Taken:
    """Read a call and note it as under way; ``$/cancel`` is done at once."""
    call = _decode_call(text)
    if isinstance(call, bytes):
        return call
    if call.method == CANCEL:
        return _cancel(call, peer)
    row = METHODS.get(call.method)
    request_id = None if isinstance(call.id, msgspec.UnsetType) else call.id
    return _Invocation(call, bytes(text), peer.begin(request_id, writes=row is not None and row.writes))


def _cancel(call: Call, peer: Peer) -> bytes | None:
    """Call a request off; it is a notification, but who gives it an id gets an answer."""
    try:
        peer.cancel(_cancel_decoder.decode(call.params).id)
    except msgspec.MsgspecError as error:
        told: Failure | Success = failure(None, "invalid_params", f"invalid params: {error}"[:_LONGEST_REASON])
    else:
        told = Success(result=msgspec.Raw(b"{}"), id=None)
    return None if isinstance(call.id, msgspec.UnsetType) else _encode(msgspec.structs.replace(told, id=call.id))


def _refuse_call(text: bytes | msgspec.Raw, kind: str, message: str, peer: Peer | None = None) -> bytes | None:
    call = _decode_call(text)
    if isinstance(call, bytes):
        return call
    if call.method == CANCEL and peer is not None:
        return _cancel(call, peer)
    return None if call.id is msgspec.UNSET else encode_failure(call.id, kind, message)


def _as_library_request(call: Call) -> dict[str, Any]:
    # Params stay with the context: the library would bind them to names.
    request: dict[str, Any] = {"jsonrpc": "2.0", "method": call.method}
    if call.id is not msgspec.UNSET:
        request["id"] = call.id
    return request


def _accept(request: dict[str, Any]) -> dict[str, Any]:
    return request


def _encode_answer(document: dict[str, Any]) -> bytes:
    if "result" in document:
        return _encode(Success(result=document["result"], id=document["id"]))
    error = document["error"]
    if not isinstance(error.get("data"), ErrorData):
        # The library's own error: it has logged what it is.
        return encode_failure(document["id"], "internal", _BUG)
    body = ErrorBody(code=error["code"], message=error["message"], data=error["data"])
    return _encode(Failure(error=body, id=document["id"]))


def _result(result: Result) -> msgspec.Raw:
    text = _encode(result)
    if len(text) >= MAX_REPLY_BYTES:
        raise DomainError(
            "frame_too_large", f"the answer has {len(text)} bytes", hint="ask for less: a limit, or fewer paths"
        )
    return msgspec.Raw(text)


def _error(kind: str, message: str, hint: str | None = None, error_id: str | None = None) -> Outcome:
    return _outcome(failure(None, kind, _printable(message), hint=hint, error_id=error_id))


def _domain_error(error: DomainError) -> Outcome:
    hint = None if error.hint is None else _printable(error.hint)
    paths = [to_wire(path) for path in error.paths]
    return _outcome(failure(None, error.kind, _printable(error.message), hint=hint, paths=paths))


def _outcome(told: Failure) -> Outcome:
    return Error(told.error.code, told.error.message, told.error.data)


def _printable(text: str) -> str:
    """Spell out the lone surrogates that stand for bytes of names that are not UTF-8: JSON cannot hold them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class _TwiceError(Exception):
    """A name that stands twice in one object."""


def _refuse_twice(text: bytes) -> None:
    """Refuse a call in which a name stands twice in one object; raises _TwiceError.

    The decoder takes the last one, other readers take the first: whoever looked at the call before it came here may
    have seen another one. ``text`` has been decoded before, so that it cannot be nested deeply.
    """
    json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, object]]) -> None:
    # Compared as a whole first: an object may have a million members.
    if len(dict(pairs)) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise _TwiceError(f"{counts.most_common(1)[0][0][:64]!a} stands twice in one object")


async def _check_paths(params: Request) -> str | None:
    """Check all paths of a request; return its worktree's, for the log. Raises PathError."""
    for number, value in enumerate(_file_paths(params), 1):
        check_relative(from_wire(value))
        if number % _AT_ONCE == 0:
            # A frame has room for two million of them, and others are waiting for their answers.
            await anyio.lowlevel.checkpoint()
    for name in ("checkpoint_dir", "destination"):
        if (path := getattr(params, name, None)) is not None:
            check_absolute(from_wire(path))
    place: Worktree | None = getattr(params, "worktree", None)
    return None if place is None else to_text(check_absolute(from_wire(place.path)))


def _file_paths(params: Request) -> Iterator[WirePath]:
    if (path := getattr(params, "path", None)) is not None:
        yield path
    for name in ("paths", "follow"):
        yield from getattr(params, name, None) or ()
