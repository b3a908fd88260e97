"""``diff`` and ``cat``: bytes, passed on as they come."""

from __future__ import annotations

from binascii import a2b_base64

from ckpt_protocol.wirepath import encode
from fabricatio_checkpoint.cli.failure import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from fabricatio_checkpoint.cli.session import Session

__all__ = ["cat", "diff"]


def diff(session: Session) -> int:
    """Print a patch, or a summary of one."""
    params = _diff_params(session)
    if session.out.json:
        whole = b"".join(_patch(session, params))
        session.out.document({"format": params.get("format", "patch"), "data": encode(whole)})
        return 0
    empty = True
    for piece in _patch(session, params):
        session.out.raw(piece)
        empty = empty and not piece
    if empty:
        session.out.note("no differences")
    return 0


def _diff_params(session: Session) -> dict[str, Any]:
    given = session.arguments
    if given.flag("stat") and given.flag("name-status"):
        raise UsageError("--stat and --name-status exclude each other")
    ends = {"from_id": given.word("FROM"), "to_id": given.word("TO")}
    params: dict[str, Any] = {field: word for field, word in ends.items() if word is not None}
    if given.flag("stat") or given.flag("name-status"):
        params["format"] = "stat" if given.flag("stat") else "name-status"
    return {**params, **session.filter(given.all_words("PATH"))}


def _patch(session: Session, params: dict[str, Any]) -> Iterator[bytes]:
    """Read a patch to its end; the cursor keeps it the very same patch."""
    result = session.ask("checkpoint.diff", **params)
    while True:
        piece = a2b_base64(result["data"]["b64"])
        yield piece
        if result["cursor"] is None:
            return
        _check_progress(piece)
        position = {"cursor": result["cursor"], "offset": result["offset"] + len(piece)}
        result = session.ask("checkpoint.diff", **params, **position)


def cat(session: Session) -> int:
    """Print one file of a checkpoint, byte for byte; of a link, its target."""
    first = _first_piece(session)
    pieces = _file(session, first)
    if session.out.json:
        known = {"id": first["id"], "path": first["path"], "mode": first["mode"], "total_bytes": first["total_bytes"]}
        session.out.document({**known, "data": encode(b"".join(pieces))})
        return 0
    for piece in pieces:
        session.out.raw(piece)
    return 0


def _first_piece(session: Session) -> dict[str, Any]:
    path = session.paths(session.arguments.words["PATH"])[0]
    return {**session.ask("checkpoint.cat", id=session.arguments.words["ID"][0], path=path), "path": path}


def _file(session: Session, first: dict[str, Any]) -> Iterator[bytes]:
    """Read on by the id of the first answer: what was asked for as HEAD may be another checkpoint by now."""
    result, done = first, 0
    while True:
        piece = a2b_base64(result["data"]["b64"])
        yield piece
        done += len(piece)
        if done >= result["total_bytes"]:
            return
        _check_progress(piece)
        result = session.ask("checkpoint.cat", id=first["id"], path=first["path"], offset=done)


def _check_progress(piece: bytes) -> None:
    if not piece:
        raise RuntimeError("the daemon sent an empty piece before the end")
