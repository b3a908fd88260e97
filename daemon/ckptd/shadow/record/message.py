"""The message of a checkpoint's commit: the user's text, and our block of facts below it."""

import json
from typing import Final

import msgspec

from ckptd.errors import DomainError

__all__ = ["Facts", "check_text", "format_message", "parse_message"]

_SUBJECT: Final = "checkpoint"


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What the block says. ``base``, ``info`` are full ids or None; ``meta`` the caller's own data."""

    seq: int
    kind: str
    base: str | None = None
    scan: str = "full"
    complete: bool = True
    info: str | None = None
    client: str | None = None
    meta: dict[str, str] = {}


def check_text(text: str | None) -> str | None:
    """Return a message as it will be kept (an empty one is none).

    Raises DomainError ``bad_message`` for NUL, which a commit cannot hold, and for lone surrogates, which are
    not text.
    """
    if not text:
        return None
    if "\0" in text:
        raise DomainError("bad_message", "a message cannot hold NUL characters")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DomainError("bad_message", "a message must be valid Unicode text") from error
    return text


def format_message(text: str | None, facts: Facts) -> bytes:
    """Give the bytes of a commit message; ``text`` has gone through check_text()."""
    lines = [f"Ckpt-Seq: {facts.seq}", f"Ckpt-Kind: {facts.kind}"]
    if facts.base:
        lines.append(f"Ckpt-Base: {facts.base}")
    lines += [f"Ckpt-Scan: {facts.scan}", f"Ckpt-Complete: {'true' if facts.complete else 'false'}"]
    if facts.info:
        lines.append(f"Ckpt-Info: {facts.info}")
    if facts.client:
        lines.append(f"Ckpt-Client: {_printable(facts.client)}")
    if facts.meta:
        lines.append(f"Ckpt-Meta: {json.dumps(facts.meta, ensure_ascii=True, sort_keys=True)}")
    if text is None:
        lines.append("Ckpt-Message: none")
    block = "\n".join(lines)
    return f"{_SUBJECT if text is None else text}\n\n{block}\n".encode()


def parse_message(message: bytes) -> tuple[str | None, Facts]:
    """Read a commit message back.

    What follows the last blank line is ours: no text of a user can look like it, since the block holds none.
    Raises DomainError ``store_damaged`` for a commit that no save of ours made.
    """
    text, separator, block = message.decode("utf-8", "replace").rpartition("\n\n")
    fields = dict(line.partition(": ")[::2] for line in block.splitlines())
    try:
        if not separator:
            raise ValueError(separator)
        facts = Facts(
            seq=int(fields["Ckpt-Seq"]),
            kind=fields["Ckpt-Kind"],
            base=fields.get("Ckpt-Base"),
            scan=fields.get("Ckpt-Scan", "full"),
            complete=fields.get("Ckpt-Complete") == "true",
            info=fields.get("Ckpt-Info"),
            client=fields.get("Ckpt-Client"),
            meta=_read_meta(fields.get("Ckpt-Meta")),
        )
    except (KeyError, ValueError, RecursionError) as error:
        raise DomainError("store_damaged", "a checkpoint's commit has no readable block of facts") from error
    return (None if fields.get("Ckpt-Message") == "none" else text), facts


def _read_meta(text: str | None) -> dict[str, str]:
    data = json.loads(text) if text else {}
    if not isinstance(data, dict):
        raise ValueError("metadata is an object")
    return {str(key): str(value) for key, value in data.items()}


def _printable(text: str) -> str:
    """Keep a client's name to one line of printable ASCII."""
    return "".join(char if " " <= char <= "~" else "?" for char in text)[:200]
