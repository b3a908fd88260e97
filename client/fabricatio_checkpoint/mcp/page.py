"""How much of a result a model is shown at once. Pure.

A result of the daemon may name a hundred thousand paths. What is shown of it is bounded by count and by bytes;
``counts`` says how many there are, ``next_after_path`` where the next page begins.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ckpt_protocol.wirepath import decode
from fabricatio_checkpoint import jsontext

__all__ = ["BUDGET_BYTES", "LONG", "MOST", "clipped", "head_of", "paged"]

BUDGET_BYTES = 20_000
"""How many bytes of JSON the lists of one answer may take: some seven thousand tokens."""

MOST = 1000
"""The largest ``limit`` that a model may ask for."""

LONG = 300
"""How many characters of a text a list shows."""

_HOW = "Call again with after_path set to next_after_path for the paths after these."
_HIGHER = "Of {names} the first are shown; a higher limit shows more."

_OPTIONAL = ("dir", "detail")

_T = TypeVar("_T")
Wire = Mapping[str, Any]


def paged(
    result: Wire, along: Sequence[str], beside: Sequence[str], limit: int, after: object = None
) -> dict[str, Any]:
    """Show a page of a result: the ``limit`` first paths after ``after`` of the lists ``along``, taken together.

    The lists ``beside`` are what has to be seen whatever the page is, so each begins at its beginning.
    """
    result = {**result, **{name: [_lean(entry) for entry in result[name]] for name in (*along, *beside)}}
    shown = {**result, "counts": {name: len(result[name]) for name in (*along, *beside)}}
    cut = []
    for name in beside:
        shown[name] = head_of(result[name], limit, BUDGET_BYTES // 8)
        cut += [name] if len(shown[name]) < len(result[name]) else []
    rest = BUDGET_BYTES - sum(_size(shown[name]) for name in beside)
    last, whole = _last_path([result[name] for name in along], limit, max(rest, BUDGET_BYTES // 4), after)
    for name in along:
        shown[name] = _between(result[name], after, last)
    more = [] if whole else [_HOW]
    if not whole:
        shown["next_after_path"] = last
    if cut:
        more.append(_HIGHER.format(names=", ".join(cut)))
    if more:
        shown["hint"] = " ".join(more)
    return shown


def head_of(entries: Sequence[_T], limit: int, budget_bytes: int) -> list[_T]:
    """Give the first entries that fit; the first one always does."""
    taken: list[_T] = []
    for entry in entries[:limit]:
        budget_bytes -= _size(entry)
        if taken and budget_bytes < 0:
            break
        taken.append(entry)
    return taken


def clipped(text: str, most: int = LONG) -> str:
    """Shorten a long text, and say by how much."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most} more characters)"


def _last_path(lists: Iterable[Sequence[object]], limit: int, budget_bytes: int, after: object) -> tuple[object, bool]:
    """The last path of the page, and whether nothing comes after it."""
    start = None if after is None else decode(after)
    entries = sorted((entry for entries in lists for entry in entries), key=_name)
    rest = entries[0 if start is None else bisect_right(entries, start, key=_name) :]
    page = head_of(rest, limit, budget_bytes)
    return (_path(page[-1]) if page else after), len(page) == len(rest)


def _between(entries: Sequence[object], after: object, last: object) -> list[object]:
    if last is None:
        return []
    start, end = (b"" if after is None else decode(after)), decode(last)
    return [entry for entry in entries if start < _name(entry) <= end]


def _lean(entry: object) -> object:
    """Leave out of an entry what is as it mostly is."""
    if not isinstance(entry, dict):
        return entry
    return {name: value for name, value in entry.items() if name not in _OPTIONAL or value}


def _path(entry: object) -> Any:  # noqa: ANN401 - a path as the wire carries it
    return entry["path"] if isinstance(entry, dict) and "path" in entry else entry


def _name(entry: object) -> bytes:
    return decode(_path(entry))


def _size(value: object) -> int:
    return len(jsontext.dumps(value).encode("utf-8", "replace"))
