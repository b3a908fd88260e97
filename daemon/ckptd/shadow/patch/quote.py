"""Names in patches and listings, quoted the way git quotes them (``core.quotePath=true``)."""

import re
from typing import Final

__all__ = ["quote", "quote_prefixed"]

_SPECIAL: Final = re.compile(rb'[\x00-\x1f"\\\x7f-\xff]')
_LETTERS: Final = {
    b"\a": b"\\a",
    b"\b": b"\\b",
    b"\t": b"\\t",
    b"\n": b"\\n",
    b"\v": b"\\v",
    b"\f": b"\\f",
    b"\r": b"\\r",
    b'"': b'\\"',
    b"\\": b"\\\\",
}


def quote(name: bytes) -> bytes:
    """Give a name as git prints it: as it is, or in double quotes with C escapes where a byte needs one."""
    escaped = _SPECIAL.sub(_escape, name)
    return name if escaped == name else b'"' + escaped + b'"'


def quote_prefixed(prefix: bytes, name: bytes) -> bytes:
    """Quote ``prefix`` (``a/`` or ``b/``) and a name as one word."""
    return quote(prefix + name)


def _escape(match: re.Match[bytes]) -> bytes:
    byte: bytes = match[0]
    return _LETTERS.get(byte) or b"\\%03o" % byte[0]
