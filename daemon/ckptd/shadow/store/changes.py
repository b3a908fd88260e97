"""The wire form of what differs, and of what was left out."""

from ckpt_protocol.structs import Change, LeftOut, to_wire
from ckptd.shadow.scan.exclusion import Exclusion
from ckptd.shadow.trees.compare import Delta, change_kind, visible

__all__ = ["to_change", "to_changes", "to_left_out"]


def to_changes(deltas: list[Delta]) -> list[Change]:
    """Give the wire form of what a person is told of what differs."""
    return [to_change(delta) for delta in visible(deltas)]


def to_change(delta: Delta) -> Change:
    """Give the wire form of one path that differs."""
    only_dir = all(state.is_dir for state in (delta.old, delta.new) if state is not None)
    return Change(path=to_wire(delta.path), change=change_kind(delta), dir=only_dir)


def to_left_out(items: list[Exclusion]) -> list[LeftOut]:
    """Give the wire form of what was left out."""
    return [item.left_out() for item in items]
