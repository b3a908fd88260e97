"""A checkpoint as one line of a list."""

from __future__ import annotations

from fabricatio_checkpoint.cli.clock import age, local
from fabricatio_checkpoint.cli.text import first_line, short, visible, wire_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["HEADERS", "WIDTHS", "cells", "number"]

HEADERS = ("id", "#", "time", "kind", "message")
WIDTHS = (10, 5, 19, 6)
"""The least width of each column but the last."""


def cells(record: dict[str, Any], head: str | None, *, relative: bool) -> tuple[str, ...]:
    """Give the cells; ``relative``: the time as an age."""
    labels = (["HEAD"] if record["id"] == head else []) + [visible(tag) for tag in record["tags"]]
    message = first_line(record["message"])
    message += f"  [{', '.join(labels)}]" if labels else ""
    message += "" if record["complete"] else "  (incomplete)"
    message += "  (legacy)" if record.get("legacy") else ""
    message += _renames(record.get("renames", ()))
    time = (age if relative else local)(record["time"])
    return short(record["id"]), number(record), time, record["kind"], message


def _renames(renames: Sequence[dict[str, Any]]) -> str:
    told = [f"renamed from {wire_text(one['renamed_from'])}" for one in renames]
    if len(told) > 1:
        told = [f"{wire_text(one['path'])} {text}" for one, text in zip(renames, told, strict=True)]
    return f"  ({', '.join(told)})" if told else ""


def number(record: dict[str, Any]) -> str:
    """Give its number; a checkpoint of 0.3.6 has none that would last."""
    return "-" if record.get("legacy") else f"#{record['seq']}"
