"""``status``: head, and what differs from it."""

from __future__ import annotations

from fabricatio_checkpoint.cli.clock import age
from fabricatio_checkpoint.cli.text import quoted, short, visible
from fabricatio_checkpoint.cli.words import change_line, left_out, named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from fabricatio_checkpoint.cli.session import Session

__all__ = ["status"]


def status(session: Session) -> int:
    """Say what differs from head; an untracked directory is an error that says how to begin."""
    result = session.ask("worktree.status")
    if session.out.json:
        session.out.document(result)
        return 0
    for line in _head(session, result):
        session.out.line(line)
    _print_changes(session, [change_line(change) for change in result["changes"]])
    for line in _tail(result):
        session.out.line(line)
    return 0


def _head(session: Session, result: dict[str, Any]) -> Iterator[str]:
    from ckpt_protocol.wirepath import to_text

    yield f"worktree {quoted(to_text(session.worktree))}"
    record, manual = result["head_record"], result["last_manual"]
    if record is None:
        yield "no checkpoint yet; begin with: ckpt save"
        return
    yield f"head {named(record)} ({age(record['time'])})"
    if record["kind"] == "auto":
        last = f"the last manual checkpoint is {named(manual)} ({age(manual['time'])})" if manual else "none is manual"
        yield f"head is an autosave; {last}"


def _print_changes(session: Session, lines: Sequence[str]) -> None:
    if lines and session.out.colour:
        from fabricatio_checkpoint.cli.render import print_changes

        if print_changes(session.out, lines):
            return
    for line in lines:
        session.out.line(line)


def _tail(result: dict[str, Any]) -> Iterator[str]:
    if result["head"] is not None and not result["changes"]:
        yield "nothing changed since head"
    for what in ("skipped", "excluded"):
        for entry in result[what]:
            yield f"{what}: {left_out(entry)}"
    if result["interrupted"]:
        safety = short(result["interrupted"])
        yield f"a restore was interrupted; what was there before is in the safety checkpoint {safety}:"
        yield f"  ckpt reset {safety} goes back to it, ckpt status lists what differs from head"
    if result["halted"]:
        yield f"halted: {visible(result['halted'])}"
