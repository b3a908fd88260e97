"""``status``: head, and what differs from it."""

from __future__ import annotations

import os

from fabricatio_checkpoint.cli import hookmark
from fabricatio_checkpoint.cli.clock import age, local
from fabricatio_checkpoint.cli.text import MANY, counted, quoted, short, visible, wire_text
from fabricatio_checkpoint.cli.words import change_line, left_out, named, print_changes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from fabricatio_checkpoint.cli.session import Session

__all__ = ["status"]


def status(session: Session) -> int:
    """Say what differs from head; an untracked directory is an error that says how to begin."""
    result = session.ask("worktree.status")
    if session.out.json:
        session.out.document(result)
        return 0
    # Where programs read, times must not change by themselves.
    when = age if session.out.for_people else local
    for line in _head(session, result, when):
        session.out.line(line)
    print_changes(session.out, [change_line(change) for change in result["changes"]])
    for line in _tail(result, when):
        session.out.line(line)
    for note in result.get("notes", ()):
        session.out.note(visible(note))
    for mark in hookmark.read_marks(os.environ, session.worktree):
        session.out.note(f"a hook could NOT save: {visible(mark)}")
    return 0


def _head(session: Session, result: dict[str, Any], when: Callable[[str], str]) -> Iterator[str]:
    from ckpt_protocol.wirepath import to_text

    yield f"worktree {quoted(to_text(session.worktree))}"
    record, manual = result["head_record"], result["last_manual"]
    if record is None:
        yield "no checkpoint yet; begin with: ckpt save"
        return
    yield f"head {named(record)} ({when(record['time'])})"
    if record["kind"] == "auto":
        last = f"the last manual checkpoint is {named(manual)} ({when(manual['time'])})" if manual else "none is manual"
        yield f"head is an autosave; {last}"


def _tail(result: dict[str, Any], when: Callable[[str], str]) -> Iterator[str]:
    if result["head"] is not None and not result["changes"]:
        yield "nothing changed since head"
    for what in ("skipped", "excluded"):
        for entry in result[what]:
            yield f"{what}: {left_out(entry)}"
    if result["interrupted"]:
        yield from _interrupted(short(result["interrupted"]), result.get("interruption"), when)
    watcher = result.get("watcher")
    if watcher is not None:
        from fabricatio_checkpoint.cli.commands.watch import lost_track, told

        yield from told(watcher, result["halted"])
        yield from lost_track(result.get("scans"))
    if result["halted"] and (watcher is None or watcher["state"] == "off"):
        yield f"halted: {visible(result['halted'])}"


def _interrupted(safety: str, found: dict[str, Any] | None, when: Callable[[str], str]) -> Iterator[str]:
    """What was cut off, what stands at its paths, and what to type."""
    if found is None:
        yield "a restore was interrupted"
    else:
        target = f" to {short(found['target'])}" if found["target"] and found["verb"] in ("reset", "rollback") else ""
        yield f"a {found['verb']}{target} was interrupted ({when(found['time'])})"
        if found["before"] is not None:
            yield (
                f"  {counted(found['before'], 'path')} as before it, {found['after']} as it was to leave them, "
                f"{found['other']} changed since"
            )
        for path in found["others"][:MANY]:
            yield f"  changed since: {wire_text(path)}"
    yield "  ckpt resume --finish goes on with it, ckpt resume --undo takes it back (--dry-run: only says how)"
    yield f"  what was there before is in the safety checkpoint {safety}"
