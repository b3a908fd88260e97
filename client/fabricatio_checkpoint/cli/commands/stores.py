"""``workspaces``, ``usage``, ``prune`` and ``forget``: stores as a whole."""

from __future__ import annotations

from ckpt_protocol.wirepath import encode, to_text
from fabricatio_checkpoint.cli.clock import local
from fabricatio_checkpoint.cli.failure import UsageError
from fabricatio_checkpoint.cli.prompt import agreed, somebody_there
from fabricatio_checkpoint.cli.table import open_table
from fabricatio_checkpoint.cli.text import counted, quoted, size, wire_text
from fabricatio_checkpoint.errors import error_of
from fabricatio_checkpoint.wire import new_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fabricatio_checkpoint.cli.session import Session

__all__ = ["forget", "prune", "usage", "workspaces"]


def workspaces(session: Session) -> int:
    """List the worktrees that have a store."""
    result = session.ask_directory("worktree.list")
    if session.out.json:
        session.out.document(result)
        return 0
    table = open_table(session.out, ("state", "checkpoints", "size", "path"), (11, 16, 9))
    for entry in result["workspaces"]:
        number = counted(entry["checkpoints"], "checkpoint")
        table.add((entry["state"], number, size(entry["bytes"]), wire_text(entry["path"])))
    table.end()
    if not result["workspaces"]:
        session.out.note("no tracked worktrees; begin with: ckpt save")
    for store in result["damaged"]:
        session.out.note(f"cannot read the store {wire_text(store)}")
    return 0


def usage(session: Session) -> int:
    """Say what all stores hold and take, the largest first."""
    result = session.ask_directory("store.usage")
    if session.out.json:
        session.out.document(result)
        return 0
    headers = ("size", "manual", "auto", "safety", "newest", "path")
    table = open_table(session.out, headers, (9, 7, 7, 7, 19))
    for one in result["stores"]:
        numbers = (str(one["manual"]), str(one["auto"]), str(one["safety"]))
        newest = local(one["newest"]) if one["newest"] else "-"
        state = "" if one["state"] == "ok" else f"  ({one['state']})"
        table.add((size(one["bytes"]), *numbers, newest, wire_text(one["path"]) + state))
    table.end()
    session.out.note(f"{size(result['bytes'])} in all; ckpt thin --dry-run shows what could go")
    for one in result["stores"]:
        if one["bytes"] > result["max_store_bytes"]:
            session.out.note(f"{wire_text(one['path'])} takes more than max_store_bytes; ckpt drop removes by hand")
    for store in result["damaged"]:
        session.out.note(f"cannot read the store {wire_text(store)}")
    return 0


def prune(session: Session) -> int:
    """Delete the stores of worktrees that are proved gone."""
    dry = session.arguments.flag("dry-run")
    result = session.ask_directory("store.prune", token=new_token(), dry_run=dry)
    if session.out.json:
        session.out.document(result)
        return 0
    for entry in result["pruned"]:
        session.out.line(f"{'would prune' if dry else 'pruned'} {_described(entry)}")
    for path in result["unreachable"]:
        session.out.note(f"kept, as it cannot be seen now and may come back: {wire_text(path)}")
    if not result["pruned"]:
        session.out.note("nothing to prune")
    return 0


def _described(entry: dict[str, Any]) -> str:
    return f"{wire_text(entry['path'])} ({counted(entry['checkpoints'], 'checkpoint')}, {size(entry['bytes'])})"


def forget(session: Session) -> int:
    """Delete a worktree's store. There is no way back, so it is asked, or said with ``--yes``."""
    if not session.arguments.flag("yes"):
        _make_sure(session)
    result = session.ask("worktree.forget", token=new_token())
    if session.out.json:
        session.out.document(result)
    else:
        number = counted(result["checkpoints"], "checkpoint")
        session.out.line(f"forgot {quoted(to_text(session.worktree))} ({number}); its files were not touched")
    return 0


def _make_sure(session: Session) -> None:
    if not somebody_there():
        raise UsageError("forget deletes the history for good and needs --yes where nobody can be asked")
    path = encode(session.worktree)
    found = [entry for entry in session.ask_directory("worktree.list")["workspaces"] if entry["path"] == path]
    if not found:
        raise error_of("not_tracked", f"{quoted(to_text(session.worktree))} is not tracked")
    if not agreed(f"Delete the whole history of {_described(found[0])}? It cannot be taken back."):
        raise error_of("cancelled", "not forgotten; nothing was changed")
