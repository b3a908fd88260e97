"""From what a person or program writes for a checkpoint to the checkpoint that is meant."""

import re
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ckpt_protocol.checkpoint import WORKTREE
from ckptd.errors import DomainError
from ckptd.shadow.record.checkpoint import Checkpoint
from ckptd.shadow.record.moment import parse_moment

__all__ = ["Names", "check_tag", "resolve"]

_FULL: Final = re.compile(r"[0-9a-f]{40}")
_PREFIX: Final = re.compile(r"[0-9a-f]{4,40}")
_SEQ: Final = re.compile(r"#([0-9]{1,18})")
_STEPS: Final = re.compile(r"HEAD(?:~([0-9]{0,9}))?")
_TIME: Final = re.compile(r"@\{(.+)\}")
_BAD_IN_TAG: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|//|@\{|/\.|\.lock(/|$)|\.$|/$|^/|^\.|^-")


class Names(NamedTuple):
    """What names can stand for: ids, also by sequence number, tags, head; ``load`` reads a checkpoint by its id."""

    by_seq: Mapping[int, str]
    ids: frozenset[str]
    tags: Mapping[str, str]
    head: str | None
    load: Callable[[str], Checkpoint]


def resolve(text: str, names: Names) -> str:
    """Give the full id of a checkpoint.

    Taken in this order: a full id, a tag, a unique prefix of at least 4 digits, ``#SEQ``, ``HEAD``, ``HEAD~N``
    (N manual or automatic checkpoints before head), ``@{TIME}`` (the newest at that time, as parse_moment() reads
    it). Raises DomainError ``unknown_checkpoint``, ``ambiguous_id``, or ``no_checkpoint`` for a HEAD that is not
    there yet.
    """
    ids = names.ids
    if _FULL.fullmatch(text) and text in ids:
        return text
    if names.tags.get(text) in ids:
        return names.tags[text]
    if _PREFIX.fullmatch(text):
        return _by_prefix(text, ids)
    if (match := _SEQ.fullmatch(text)) and int(match[1]) in names.by_seq and int(match[1]) > 0:
        return names.by_seq[int(match[1])]
    if match := _STEPS.fullmatch(text):
        return _before_head(0 if match[1] is None else int(match[1] or 1), names)
    if match := _TIME.fullmatch(text):
        return _at_time(match[1], names)
    raise _unknown(text)


def check_tag(name: str) -> str:
    """Return a tag name, or raise DomainError ``bad_tag``: git's rules for refs, and nothing that reads as an id."""
    if (
        not name
        or name in ("HEAD", WORKTREE)
        or name.startswith("@")
        or _PREFIX.fullmatch(name)
        or _BAD_IN_TAG.search(name)
        or not name.isprintable()
        or len(name.encode("utf-8", "surrogatepass")) > 200
    ):
        raise DomainError(
            "bad_tag",
            f"{name!r} cannot be a tag",
            hint="use letters, digits, '-', '_', '.' and '/', not 4 hex digits or more",
        )
    return name


def _by_prefix(prefix: str, ids: frozenset[str]) -> str:
    found = sorted(one for one in ids if one.startswith(prefix))
    if not found:
        raise _unknown(prefix)
    if len(found) > 1:
        raise DomainError(
            "ambiguous_id",
            f"{prefix} stands for {len(found)} checkpoints: {', '.join(one[:12] for one in found[:4])}",
            hint="give more digits",
        )
    return found[0]


def _before_head(steps: int, names: Names) -> str:
    if names.head is None:
        raise DomainError("no_checkpoint", "there is no checkpoint yet", hint="make one with: ckpt save")
    if steps == 0:
        return names.head
    left = steps
    seq = names.load(names.head).facts.seq
    for number in sorted((one for one in names.by_seq if one < seq), reverse=True):
        left -= names.load(names.by_seq[number]).facts.kind in ("manual", "auto")
        if left == 0:
            return names.by_seq[number]
    raise DomainError(
        "unknown_checkpoint", f"HEAD~{steps}: there are not that many checkpoints before head", hint="see: ckpt ls"
    )


def _at_time(text: str, names: Names) -> str:
    wanted = parse_moment(text, time.time())
    for number in sorted(names.by_seq, reverse=True):
        if names.load(names.by_seq[number]).time_s <= wanted:
            return names.by_seq[number]
    raise DomainError("unknown_checkpoint", f"no checkpoint is as old as {text}", hint="see: ckpt ls")


def _unknown(text: str) -> DomainError:
    return DomainError("unknown_checkpoint", f"no checkpoint {text!r} in this worktree's store", hint="see: ckpt ls")
