"""Proving, before a restore's first write, that everything it is going to write can be written.

Missing or damaged content is never taken for absent, and never found when half of the files are written.
"""

from collections.abc import Iterable
from typing import Final

from ckptd.errors import DomainError
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.restore.stage import is_link_target
from ckptd.shadow.scan.exclusion import Exclusion
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.trees.step import State, Step
from ckptd.shadow.trees.tree import LINK

__all__ = ["DAMAGE", "unwritable"]

DAMAGE: Final = frozenset({"object_missing", "store_damaged"})
_MAX_NAME_BYTES: Final = 255


def unwritable(steps: Iterable[Step], objects: ObjectStore, asker: Asker) -> list[Exclusion]:
    """Give the steps that cannot be done, and why: all content is read and its hash checked.

    The reasons are ``object_missing``, ``store_damaged``, ``bad_link`` (no link can have this target) and
    ``bad_name`` (no file system takes it). Raises DomainError ``cancelled``, and what is no fault of one object.
    """
    proof = _Proof(objects)
    found = []
    for step in steps:
        asker.check("restore")
        problem = proof.problem(step)
        if problem is not None:
            found.append(problem)
    return found


class _Proof:
    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._known: dict[tuple[bytes, bool], tuple[str, str] | None] = {}

    def problem(self, step: Step) -> Exclusion | None:
        after = step.after
        if after is None:
            return None
        if len(step.path.rpartition(b"/")[2]) > _MAX_NAME_BYTES:
            return Exclusion(step.path, "bad_name", "its name is too long for a file system")
        if after.is_dir or (step.before is not None and step.before.oid == after.oid):
            return None
        key = (after.oid, after.mode == LINK)
        if key not in self._known:
            self._known[key] = self._content_problem(after)
        told = self._known[key]
        return None if told is None else Exclusion(step.path, *told)

    def _content_problem(self, after: State) -> tuple[str, str] | None:
        start = b""
        try:
            for chunk in self._objects.chunks(after.oid):
                start = start or chunk
        except DomainError as error:
            if error.kind not in DAMAGE:
                raise
            return error.kind, error.message
        if after.mode == LINK and not is_link_target(start):
            return "bad_link", "the target of this link can't stand in a file system"
        return None
