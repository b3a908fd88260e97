"""A checkpoint as one line of a list."""

from __future__ import annotations

from fabricatio_checkpoint.cli.clock import age, local
from fabricatio_checkpoint.cli.text import first_line, short, visible, wire_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["HEADERS", "STYLES", "WIDTHS", "cells", "label", "number"]

HEADERS = ("id", "#", "time", "kind", "message")
WIDTHS = (10, 5, 19, 6)
"""The least width of each column but the last."""

STYLES = {"#": "dim", "time": "dim", "auto": "dim", "safety": "dim"}
"""Those of columns and of cells, as open_table() takes them."""


def cells(record: dict[str, Any], *, relative: bool) -> tuple[str, ...]:
    """Give the cells; ``relative``: the time as an age."""
    time = (age if relative else local)(record["time"])
    return short(record["id"]), number(record), time, record["kind"], first_line(record["message"])


def label(record: dict[str, Any], head: str | None) -> str:
    """Give what stands behind the message: tags, and what is out of the ordinary; nothing for most."""
    names = (["HEAD"] if record["id"] == head else []) + [visible(tag) for tag in record["tags"]]
    told = f"  [{', '.join(names)}]" if names else ""
    told += "" if record["complete"] else "  (incomplete)"
    told += "  (legacy)" if record.get("legacy") else ""
    return told + _renames(record.get("renames", ()))


def _renames(renames: Sequence[dict[str, Any]]) -> str:
    told = [f"renamed from {wire_text(one['renamed_from'])}" for one in renames]
    if len(told) > 1:
        told = [f"{wire_text(one['path'])} {text}" for one, text in zip(renames, told, strict=True)]
    return f"  ({', '.join(told)})" if told else ""


def number(record: dict[str, Any]) -> str:
    """Give its number; a checkpoint of 0.3.6 has none that would last."""
    return "-" if record.get("legacy") else f"#{record['seq']}"
