"""JSON without the ``json`` package, which would bring ``re`` and ``enum``: half of what a short command imports.

The interpreter's own accelerator does the work, as it does for ``json``. Where it is missing or wants to be called in
another way than it has been since Python 3.5, ``json`` does it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["dumps", "loads"]

_SPACE = " \t\n\r"

# Private, and so looked at with care: the tests compare it with json.
make_encoder: Any = None
make_scanner: Any = None
try:
    import _json
except ImportError:
    pass
else:
    make_encoder, make_scanner = _json.make_encoder, _json.make_scanner


class _Terms:
    """How the scanner is to read: as json.loads() does."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def dumps(document: Any) -> str:  # noqa: ANN401 - whatever JSON can hold
    """Write JSON: compact, and only what has to be escaped is. Raises TypeError, ValueError for what is no JSON."""
    if make_encoder is not None:
        try:
            encode = make_encoder(None, _refuse, _json.encode_basestring, None, ":", ",", False, False, True)
            return "".join(encode(document, 0))
        except TypeError:
            # Not for JSON, or not this encoder: json tells which.
            pass
    import json

    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def loads(text: str) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Read one JSON document; raises ValueError for anything else, RecursionError for one that is nested too deep."""
    if make_scanner is not None:
        text = text.strip(_SPACE)
        try:
            value, end = make_scanner(_Terms)(text, 0)
        except StopIteration:
            raise ValueError("not a JSON document") from None
        except (TypeError, AttributeError):
            # It wants to be told more than it did.
            end = -1
        if end == len(text):
            return value
        if end >= 0:
            raise ValueError("more than a JSON document")
    import json

    return json.loads(text)


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is not for JSON")
