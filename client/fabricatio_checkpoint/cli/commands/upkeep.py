"""``drop``, ``thin``, ``gc`` and ``verify``: looking after a worktree's store."""

from __future__ import annotations

from fabricatio_checkpoint.cli.failure import EXIT_LEFT_OUT
from fabricatio_checkpoint.cli.prompt import agreed, somebody_there
from fabricatio_checkpoint.cli.text import MANY, counted, short, size, visible, wire_text
from fabricatio_checkpoint.errors import error_of
from fabricatio_checkpoint.wire import new_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from fabricatio_checkpoint.cli.session import Session

__all__ = ["drop", "gc", "thin", "verify"]

EXIT_DAMAGED = 50


def drop(session: Session) -> int:
    """Remove checkpoints. There is no way back, so a person at a terminal is asked."""
    given = session.arguments
    params: dict[str, Any] = {"ids": given.words["ID"], "force": given.flag("force")}
    if not (given.flag("dry-run") or given.flag("yes")) and somebody_there():
        for line in _dropped(_ask_drop(session, params, dry_run=True)):
            session.out.note(line)
        if not agreed("Drop for good?"):
            raise error_of("cancelled", "not dropped; nothing was changed")
    result = _ask_drop(session, params, dry_run=given.flag("dry-run"))
    if session.out.json:
        session.out.document(result)
        return 0
    for line in _dropped(result):
        session.out.line(line)
    for note in result.get("notes", ()):
        session.out.note(visible(note))
    return 0


def _ask_drop(session: Session, params: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    return session.ask("checkpoint.drop", token=new_token(), dry_run=dry_run, **params)


def _dropped(result: dict[str, Any]) -> Iterator[str]:
    verb = "would drop" if result["dry_run"] else "dropped"
    for one in result["dropped"]:
        tags = f" [{visible(', '.join(one['tags']))}]" if one["tags"] else ""
        yield f"{verb} #{one['seq']} {short(one['id'])} ({one['kind'] or 'unreadable'}){tags}"
    yield f"head {'would be' if result['dry_run'] else 'is'} {short(result['head']) if result['head'] else 'nothing'}"
    if not result["files"]:
        return
    brought = f"{counted(result['files'], 'file content')} came with it"
    held = ", ".join(f"#{one['seq']} ({one['files']})" for one in result["held"][:MANY])
    more = f" and {len(result['held']) - MANY} more" if len(result["held"]) > MANY else ""
    searched = "" if result["all_searched"] else "; not all checkpoints were looked at"
    yield f"{brought}; also in: {held or 'no other checkpoint'}{more}{searched}"


def thin(session: Session) -> int:
    """Remove what goes by rule."""
    dry = session.arguments.flag("dry-run")
    result = session.ask("store.thin", token=new_token(), dry_run=dry)
    if session.out.json:
        session.out.document(result)
        return 0
    for one in result["dropped"]:
        session.out.line(f"{'would drop' if dry else 'dropped'} #{one['seq']} {short(one['id'])} ({one['kind']})")
    number = counted(len(result["dropped"]), "checkpoint")
    frees = "would free" if dry else "frees, with the next gc,"
    session.out.line(f"{number}; that {frees} {size(result['frees_bytes'])}")
    for note in result["notes"]:
        session.out.note(visible(note))
    return 0


def gc(session: Session) -> int:
    """Remove what nothing needs; 3 where damage has kept it all."""
    result = session.ask("store.gc", token=new_token(), dry_run=session.arguments.flag("dry-run"))
    if session.out.json:
        session.out.document(result)
    else:
        session.out.line(_collected(result))
        for note in result["notes"]:
            session.out.note(visible(note))
    return EXIT_LEFT_OUT if result["all_kept"] else 0


def _collected(result: dict[str, Any]) -> str:
    objects = counted(result["objects_removed"], "object")
    if result["dry_run"]:
        return f"would remove {objects} of {size(result['removed_bytes'])}"
    return (
        f"{objects} removed; {size(result['bytes_before'])} in {counted(result['packs_before'], 'pack')} before, "
        f"{size(result['bytes_after'])} in {counted(result['packs_after'], 'pack')} now"
    )


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
