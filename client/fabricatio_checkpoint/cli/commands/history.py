"""``ls`` and ``show``: the checkpoints of a worktree."""

from __future__ import annotations

from itertools import chain

from fabricatio_checkpoint.cli.clock import age, local
from fabricatio_checkpoint.cli.failure import UsageError
from fabricatio_checkpoint.cli.pager import Paged
from fabricatio_checkpoint.cli.recordline import HEADERS, STYLES, WIDTHS, cells, label, number
from fabricatio_checkpoint.cli.table import open_table
from fabricatio_checkpoint.cli.text import short, visible
from fabricatio_checkpoint.cli.words import change_line, left_out, print_changes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from fabricatio_checkpoint.cli.session import Session

__all__ = ["filters", "ls", "show"]

_PAGE = 1000
_KINDS = ("manual", "auto", "safety")


def ls(session: Session) -> int:
    """List checkpoints, newest first, page by page: however many there are, the first ones come at once."""
    pages = _pages(session, filters(session), session.arguments.number("limit"))
    if session.out.json:
        session.out.document(_whole(pages))
    else:
        # An error must not come from behind a pager.
        first = next(pages)
        with Paged(session.out):
            _print(session, chain((first,), pages))
    return 0


def filters(session: Session) -> dict[str, Any]:
    """Give the conditions that a command line has for checkpoints; raises UsageError."""
    given = session.arguments
    kind, meta = given.value("kind"), given.pairs("meta")
    if kind is not None and kind not in _KINDS:
        raise UsageError(f"--kind takes {', '.join(_KINDS[:-1])} or {_KINDS[-1]}, not {kind!r}")
    filters: dict[str, Any] = {"kind": kind} if kind else {}
    if meta:
        filters["meta"] = meta
    return {**filters, **session.filter(given.all_words("PATH"))}


def _pages(session: Session, filters: dict[str, Any], limit: int | None) -> Iterator[dict[str, Any]]:
    left = limit
    # Of a path it is the history, also of the time when it had another name.
    position: dict[str, Any] = {"follow": []} if "paths" in filters else {}
    while True:
        size = _PAGE if left is None else min(left, _PAGE)
        page = session.ask("checkpoint.list", limit=size, **filters, **position)
        yield page
        found = page["checkpoints"]
        left = None if left is None else left - len(found)
        if not page["more"] or not found or left == 0:
            return
        position["before_seq"] = found[-1]["seq"]
        if "follow" in position:
            position["follow"] = page.get("followed", [])


def _whole(pages: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Put the pages together; head and ``more`` are those of the last."""
    records: list[Any] = []
    last: dict[str, Any] = {}
    damaged = 0
    for page in pages:
        records += page["checkpoints"]
        damaged += page.get("damaged", 0)
        last = page
    return {**last, "checkpoints": records, "damaged": damaged}


def _print(session: Session, pages: Iterable[dict[str, Any]]) -> None:
    table = open_table(session.out, HEADERS, WIDTHS, STYLES)
    rows = damaged = 0
    for page in pages:
        damaged += page.get("damaged", 0)
        for record in page["checkpoints"]:
            table.add(cells(record, relative=table.relative), label(record, page["head"]))
            rows += 1
    table.end()
    if not rows:
        session.out.note("no checkpoint is like that" if _narrowed(session) else "no checkpoints yet")
    if damaged:
        session.out.note(f"{damaged} more cannot be read and are not listed")


def _narrowed(session: Session) -> bool:
    given = session.arguments
    return bool(given.all_words("PATH") or given.value("kind") or given.pairs("meta"))


def show(session: Session) -> int:
    """Show one checkpoint: what is known about it, its message, what it changed."""
    result = session.ask("checkpoint.show", id=session.arguments.words["ID"][0])
    if session.out.json:
        session.out.document(result)
        return 0
    record = result["checkpoint"]
    with Paged(session.out):
        for line in [*_facts(record, with_age=session.out.for_people), *_message(record)]:
            session.out.line(line)
        print_changes(session.out, list(_changes(result)))
    return 0


def _facts(record: dict[str, Any], *, with_age: bool) -> Iterator[str]:
    yield f"checkpoint {record['id']}"
    facts = [number(record), record["kind"], *([] if record["complete"] else ["incomplete"])]
    yield f"number     {', '.join(facts)}" + (" (legacy)" if record.get("legacy") else "")
    yield f"time       {local(record['time'])}" + (f" ({age(record['time'])})" if with_age else "")
    if record["tags"]:
        yield f"tags       {visible(', '.join(record['tags']))}"
    for key, value in record["meta"].items():
        yield f"meta       {visible(key)}={visible(value)}"
    if record.get("client"):
        yield f"client     {visible(record['client'])}"


def _message(record: dict[str, Any]) -> Iterator[str]:
    if record["message"]:
        yield ""
        for line in record["message"].splitlines():
            yield f"    {visible(line)}".rstrip()


def _changes(result: dict[str, Any]) -> Iterator[str]:
    since = f" since {short(result['base'])}" if result["base"] else " (nothing was before it)"
    yield ""
    yield f"changes{since}:" if result["changes"] else f"no changes{since}"
    for change in result["changes"]:
        yield f"  {change_line(change)}"
    for what in ("skipped", "excluded"):
        for entry in result[what]:
            yield f"{what}: {left_out(entry)}"
