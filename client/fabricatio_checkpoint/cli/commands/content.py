"""``diff`` and ``cat``: bytes, passed on as they come; on a terminal a patch is coloured and paged."""

from __future__ import annotations

from binascii import a2b_base64
from itertools import chain

from ckpt_protocol.wirepath import encode
from fabricatio_checkpoint.cli.failure import UsageError
from fabricatio_checkpoint.cli.pager import Paged
from fabricatio_checkpoint.cli.text import counted, size, wire_text
from fabricatio_checkpoint.cli.words import print_changes
from fabricatio_checkpoint.wire import destination

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from fabricatio_checkpoint.cli.session import Session

__all__ = ["cat", "diff", "export"]


def diff(session: Session) -> int:
    """Print a patch, or a summary of one."""
    params = _diff_params(session)
    result = session.ask("checkpoint.diff", **params)
    notes = result.get("notes", ())
    for note in notes:
        session.out.note(note)
    pieces = _patch(session, params, result)
    if session.out.json:
        whole = b"".join(pieces)
        session.out.document({"format": params.get("format", "patch"), "data": encode(whole)})
        return 0
    # An empty patch is said on stderr, and errors come before a pager takes the screen.
    first = next(pieces)
    if not first:
        if not notes:
            session.out.note("no differences")
        return 0
    with Paged(session.out):
        _print_patch(session, chain((first,), pieces), params)
    return 0


def _print_patch(session: Session, pieces: Iterable[bytes], params: dict[str, Any]) -> None:
    if not session.out.for_people:
        for piece in pieces:
            session.out.raw(piece)
        return
    from fabricatio_checkpoint.cli.patchview import patch_lines, stat_lines

    # The same characters are marks in a patch, bars in a summary, and parts of names in a list of them.
    lines = {None: patch_lines, "stat": stat_lines}.get(params.get("format"))
    if lines is None:
        print_changes(session.out, list(patch_lines(pieces, colour=False)))
        return
    for line in lines(pieces, colour=session.out.colour):
        session.out.line(line)


def _diff_params(session: Session) -> dict[str, Any]:
    given = session.arguments
    if given.flag("stat") and given.flag("name-status"):
        raise UsageError("--stat and --name-status exclude each other")
    ends = {"from_id": given.word("FROM"), "to_id": given.word("TO")}
    params: dict[str, Any] = {field: word for field, word in ends.items() if word is not None}
    if given.flag("stat") or given.flag("name-status"):
        params["format"] = "stat" if given.flag("stat") else "name-status"
    return {**params, **session.filter(given.all_words("PATH"))}


def _patch(session: Session, params: dict[str, Any], result: dict[str, Any]) -> Iterator[bytes]:
    """Read a patch to its end, after its first piece; the cursor keeps it the very same patch."""
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


def export(session: Session) -> int:
    """Write a checkpoint elsewhere; DEST is relative to the current directory, the paths to the worktree."""
    words = session.arguments.words
    place = destination(words["DEST"][0])
    paths = session.paths(session.arguments.all_words("PATH"))
    result = session.ask("checkpoint.export", id=words["ID"][0], destination=place, paths=paths)
    if session.out.json:
        session.out.document(result)
    else:
        files = counted(result["files"], "file")
        session.out.line(f"{files}, {size(result['bytes'])}, written to {wire_text(result['destination'])}")
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
