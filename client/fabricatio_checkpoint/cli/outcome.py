"""A restore's outcome, or its plan, in words."""

from __future__ import annotations

from fabricatio_checkpoint.cli.text import MANY, counted, short, visible, wire_text
from fabricatio_checkpoint.cli.words import left_out
from fabricatio_checkpoint.errors import CheckpointError, error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["conflict_error", "is_empty", "lines", "notes", "question"]

_GROUPS = ("written", "deleted", "kept")


def is_empty(result: dict[str, Any]) -> bool:
    """Whether a restore has nothing to write and nothing to delete."""
    return not (result["written"] or result["deleted"])


def lines(result: dict[str, Any], done: str, way_back: str) -> Iterator[str]:
    """Say what was done, path by path where it is a plan or they are few, and how to take it back."""
    dry = result["dry_run"]
    target = f"{done} {short(result['target'])}" if result["target"] else done.partition(":")[0].removesuffix(" to")
    prefix = "would be " if dry else ""
    if is_empty(result):
        yield f"{prefix}{target}: nothing {'was changed' if result['conflicts'] and not dry else 'to change'}"
    else:
        yield f"{prefix}{target}: {_counts(result)}"
    for group in _GROUPS:
        yield from _listed(group, [wire_text(path) for path in result[group]], everything=dry)
    yield from _listed("conflict", [left_out(entry) for entry in result["conflicts"]], everything=dry)
    if result["safety"] and not dry:
        yield f"what was there before is in the safety checkpoint {short(result['safety'])}"
        if result["written"] or result["deleted"]:
            yield f"take it back with: {way_back}"


def _counts(result: dict[str, Any]) -> str:
    return ", ".join(f"{len(result[group])} {group}" for group in _GROUPS)


def _listed(what: str, names: list[str], *, everything: bool) -> Iterator[str]:
    shown = len(names) if everything else MANY
    for name in names[:shown]:
        yield f"  {what} {name}"
    if len(names) > shown:
        yield f"  {what}: and {len(names) - shown} more (--json lists all)"


def notes(result: dict[str, Any]) -> Iterator[str]:
    """What a person might not expect."""
    for path in result["edited"][:MANY]:
        yield f"edited since, and overwritten: {wire_text(path)}"
    if len(result["edited"]) > MANY:
        yield f"edited since, and overwritten: {len(result['edited']) - MANY} more"
    if result["conflicts"]:
        yield f"{counted(len(result['conflicts']), 'path')} in conflict {_left(result)}"
    if result["weak"]:
        yield "this file system cannot exchange files: an edit in the very moment of the restore could be lost"
    for note in result.get("notes", ()):
        yield visible(note)


def _left(result: dict[str, Any]) -> str:
    if result["dry_run"]:
        return "would stop it; --skip-conflicts restores everything else"
    return "left alone"


def question(plan: dict[str, Any]) -> Iterator[str]:
    """The plan's counts, as the question before a reset shows them."""
    target = f" to {short(plan['target'])}" if plan["target"] else ""
    yield (
        f"reset{target}: {counted(len(plan['written']), 'file')} to write, {len(plan['deleted'])} to delete, "
        f"{len(plan['kept'])} kept"
    )
    yield from notes(plan)
    yield "what it overwrites or deletes is saved first: ckpt undo brings it back"


def conflict_error(plan: dict[str, Any]) -> CheckpointError:
    """The error of a plan that would stop at its conflicts."""
    from ckpt_protocol.wirepath import decode, to_text

    number = counted(len(plan["conflicts"]), "path")
    paths = [to_text(decode(entry["path"])) for entry in plan["conflicts"]]
    return error_of("conflicts", f"{number} in conflict; nothing was changed", paths=paths)
