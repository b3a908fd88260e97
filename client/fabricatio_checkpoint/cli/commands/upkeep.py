"""``verify``: looking after a worktree's store."""

from __future__ import annotations

from fabricatio_checkpoint.cli.text import MANY, counted, short, size, visible, wire_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from fabricatio_checkpoint.cli.session import Session

__all__ = ["verify"]

EXIT_DAMAGED = 50


def verify(session: Session) -> int:
    """Look for damage; 50 where there is some."""
    result = session.ask("store.verify", read_data=session.arguments.flag("read-data"))
    if session.out.json:
        session.out.document(result)
    else:
        for line in _found(result):
            session.out.line(line)
        for note in result["notes"]:
            session.out.note(visible(note))
    return 0 if result["clean"] else EXIT_DAMAGED


def _found(result: dict[str, Any]) -> Iterator[str]:
    read = f", {size(result['bytes'])} read" if result["read_data"] else ""
    looked_at = f"{counted(result['checkpoints'], 'checkpoint')}, {counted(result['objects'], 'object')}{read}"
    if result["clean"]:
        yield f"clean: {looked_at}"
        return
    yield f"damaged: {looked_at}"
    for file in result["files"]:
        yield f"  {wire_text(file['path'])}: {visible(file['problem'])}"
    for one in result["affected"]:
        name = f"checkpoint #{one['seq']}" + (f" {short(one['id'])}" if one["id"] else "")
        lost = counted(one.get("paths", 0), "path") + " lost" if one.get("readable", True) else "cannot be read at all"
        yield f"  {name}: {lost}"
    yield from _objects(result)
    yield "a save writes again what is still on disk; the other checkpoints are whole"


def _objects(result: dict[str, Any]) -> Iterator[str]:
    for one in result["damaged"][:MANY]:
        what = "missing" if one["missing"] else "damaged"
        needed = ", ".join(f"#{seq}" for seq in one["seqs"][:5])
        yield f"  {one['kind']} {short(one['id'])} is {what}" + (f", needed by {needed}" if needed else "")
        for path in one["paths"][:5]:
            yield f"    {wire_text(path) or '(all of it)'}"
    if result["damaged_count"] > MANY:
        yield f"  and {result['damaged_count'] - MANY} more objects (--json lists them)"
