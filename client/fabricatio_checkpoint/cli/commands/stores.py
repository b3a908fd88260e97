"""``workspaces``, ``usage``, ``prune``, ``adopt`` and ``forget``: stores as a whole."""

from __future__ import annotations

from ckpt_protocol.wirepath import encode, to_text
from fabricatio_checkpoint import wire
from fabricatio_checkpoint.cli.clock import age, local
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

__all__ = ["adopt", "forget", "prune", "usage", "workspaces"]

_STYLES = {"newest": "dim", "missing": "red", "unreachable": "magenta"}
_MOVED = "a worktree that was only moved keeps its history: type ckpt adopt OLD where it is now"


def workspaces(session: Session) -> int:
    """List the worktrees that have a store."""
    result = session.ask_directory("worktree.list")
    if session.out.json:
        session.out.document(result)
        return 0
    table = open_table(session.out, ("state", "checkpoints", "size", "path"), (11, 16, 9), _STYLES)
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
    headers = ("size", "files", "manual", "auto", "safety", "newest", "path")
    table = open_table(session.out, headers, (9, 7, 7, 7, 7, 19), _STYLES)
    for one in result["stores"]:
        files = one.get("files")
        numbers = ("-" if files is None else str(files), str(one["manual"]), str(one["auto"]), str(one["safety"]))
        newest = (age if table.relative else local)(one["newest"]) if one["newest"] else "-"
        state = "" if one["state"] == "ok" else f"  ({one['state']})"
        state += f"  (watched: {one['watcher']})" if one.get("watcher") else ""
        state += f"  (thinning frees about {size(one['thinning_frees'])})" if one.get("thinning_frees") else ""
        table.add((size(one["bytes"]), *numbers, newest, wire_text(one["path"])), state)
    table.end()
    session.out.note(f"{size(result['bytes'])} in all; ckpt thin --dry-run shows what could go")
    for one in result["stores"]:
        if one["bytes"] > result["max_store_bytes"]:
            session.out.note(f"{wire_text(one['path'])} takes more than max_store_bytes; ckpt drop removes by hand")
    for store in result["damaged"]:
        session.out.note(f"cannot read the store {wire_text(store)}")
    return 0


def prune(session: Session) -> int:
    """Delete the stores of worktrees that are proved gone. A person at a terminal is asked: one may only be moved."""
    dry = session.arguments.flag("dry-run")
    if not (dry or session.arguments.flag("yes")) and somebody_there():
        _agree_to_prune(session)
    result = session.ask_directory("store.prune", token=new_token(), dry_run=dry)
    if session.out.json:
        session.out.document(result)
        return 0
    for entry in result["pruned"]:
        session.out.line(f"{'would prune' if dry else 'pruned'} {_described(entry)}")
    if dry and result["pruned"]:
        session.out.note(_MOVED)
    for path in result["unreachable"]:
        session.out.note(f"kept, as it cannot be seen now and may come back: {wire_text(path)}")
    if not result["pruned"]:
        session.out.note("nothing to prune")
    return 0


def _agree_to_prune(session: Session) -> None:
    planned = session.ask_directory("store.prune", token=new_token(), dry_run=True)["pruned"]
    for entry in planned:
        session.out.note(f"would prune {_described(entry)}")
    if planned:
        session.out.note(_MOVED)
        if not agreed("Delete these histories for good?"):
            raise error_of("cancelled", "not pruned; nothing was changed")


def adopt(session: Session) -> int:
    """Go on with the history of a worktree that was moved; asks where it is not certain that it is the same one."""
    given = session.arguments
    here = wire.real_directory(given.value("workspace") or ".")
    params: dict[str, Any] = {
        "worktree": wire.worktree(here),
        "old": wire.directory(wire.former_place(given.words["OLD"][0])),
        "force": given.flag("force"),
    }
    dry = given.flag("dry-run")
    result = session.ask_directory("worktree.adopt", token=new_token(), dry_run=True, **params)
    if not dry:
        if not (result["sure"] or given.flag("yes")):
            _agree_to_adopt(result)
        result = session.ask_directory("worktree.adopt", token=new_token(), dry_run=False, **params)
    if session.out.json:
        session.out.document(result)
        return 0
    session.out.line(f"{'would adopt' if dry else 'adopted'} {_adopted(result)}")
    return 0


def _agree_to_adopt(plan: dict[str, Any]) -> None:
    if not somebody_there():
        raise UsageError("adopt needs --yes here: it is not certain that this is the same directory")
    if not agreed(f"Was {wire_text(plan['old'])} moved to {wire_text(plan['path'])}? Adopt {_adopted(plan)}?"):
        raise error_of("cancelled", "not adopted; nothing was changed")


def _adopted(result: dict[str, Any]) -> str:
    return f"the history of {wire_text(result['old'])} ({counted(result['checkpoints'], 'checkpoint')})"


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
