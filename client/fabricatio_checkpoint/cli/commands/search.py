"""``search``: the checkpoints that add or remove a text, shown as they are found."""

from __future__ import annotations

import os

from fabricatio_checkpoint.cli.commands.history import filters
from fabricatio_checkpoint.cli.failure import EXIT_LEFT_OUT, UsageError
from fabricatio_checkpoint.cli.recordline import WIDTHS, cells, label
from fabricatio_checkpoint.cli.table import Table
from fabricatio_checkpoint.cli.text import counted, wire_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from fabricatio_checkpoint.cli.session import Session

__all__ = ["search"]

_PAGE = 1000
_COUNTED = ("searched", "damaged", "unread")
_ADDED, _REMOVED = "green", "red"


def search(session: Session) -> int:
    """Look for a text, newest checkpoint first; what was shown stays when Ctrl-C ends it. No pager: it streams."""
    found: list[dict[str, Any]] = []
    counts = dict.fromkeys(_COUNTED, 0)
    last: dict[str, Any] = {}
    for page in _pages(session):
        last = page
        found += page["hits"]
        counts = {name: counts[name] + page.get(name, 0) for name in _COUNTED}
        if not session.out.json:
            _show(session, page)
    if session.out.json:
        session.out.document({**last, "hits": found, **counts})
    elif not found:
        session.out.note("no checkpoint adds or removes that")
    return EXIT_LEFT_OUT if _tell_missed(session, counts) else 0


def _pages(session: Session) -> Iterator[dict[str, Any]]:
    from fabricatio_checkpoint.wire import searched_text

    given = session.arguments
    text = os.fsencode(given.words["TEXT"][0])
    if not text:
        raise UsageError("search needs a text that is not empty")
    wanted = {"text": searched_text(text), **filters(session)}
    if given.flag("ignore-case"):
        wanted["ignore_case"] = True
    left = given.number("limit")
    while True:
        size = _PAGE if left is None else min(left, _PAGE)
        page = session.ask("checkpoint.search", limit=size, **wanted)
        yield page
        left = None if left is None else left - len(page["hits"])
        if page["next_seq"] is None or left == 0:
            return
        wanted["before_seq"] = page["next_seq"]


def _show(session: Session, page: dict[str, Any]) -> None:
    out = session.out
    plain = Table(out, WIDTHS)
    for hit in page["hits"]:
        row = cells(hit["checkpoint"], relative=out.colour)
        told = label(hit["checkpoint"], page["head"])
        lines = [(_line(one), _ADDED if one["after"] > one["before"] else _REMOVED) for one in hit["paths"]]
        if hit.get("left_out"):
            lines.append((f"         and {counted(hit['left_out'], 'path')} more", ""))
        if not (out.colour and _coloured(session, [(plain.text(row, told), "bold"), *lines])):
            plain.add(row, told)
            for text, _ in lines:
                out.line(text)
    # A program that reads along gets them now.
    out.flush()


def _coloured(session: Session, lines: list[tuple[str, str]]) -> bool:
    from fabricatio_checkpoint.cli.render import print_styled

    return print_styled(session.out, lines)


def _line(one: dict[str, Any]) -> str:
    return f"  {one['after'] - one['before']:+6d} {wire_text(one['path'])}"


def _tell_missed(session: Session, counts: dict[str, int]) -> bool:
    for name, noun in (("damaged", "checkpoint"), ("unread", "path")):
        if counts[name]:
            session.out.note(f"{counted(counts[name], noun)} could not be read and searched (see ckpt verify)")
    return bool(counts["damaged"] or counts["unread"])
