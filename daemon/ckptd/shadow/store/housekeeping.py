"""Housekeeping by itself, while nothing else is asked for: a pure decision, and the step that carries it out."""

import logging
import os
from typing import Final, NamedTuple

from ckptd.errors import DomainError
from ckptd.shadow.store.collecting import Collection, Extent
from ckptd.shadow.store.repository import Repository

__all__ = ["Housekeeper", "Situation", "is_due"]

_logger = logging.getLogger(__name__)

_MANY_LOOSE_REFS: Final = 1_000
_MANY_PACKS: Final = 24
_MANY_LOOSE_OBJECT_FOLDERS: Final = 16


class Situation(NamedTuple):
    """What a store has by now; ``done_packs`` is how many packs the last housekeeping left that it could not merge."""

    loose_refs: int
    packs: int
    loose_object_folders: int = 0
    done_packs: int = 0


def is_due(now: Situation) -> bool:
    """Decide whether there is something to do: looking a thing up costs the number of files that it may be in."""
    return (
        now.loose_refs > _MANY_LOOSE_REFS
        or now.packs - now.done_packs > _MANY_PACKS
        or now.loose_object_folders > _MANY_LOOSE_OBJECT_FOLDERS
    )


class Housekeeper:
    """Looks after one store in its idle time, a moment at a time."""

    def __init__(self, repository: Repository) -> None:
        self._repo = repository
        self._under_way: Collection | None = None
        self._done_packs = 0

    def tend(self) -> bool:
        """Do a little, if there is something to do; tell whether there is more. Raises nothing that is no bug.

        It begins with nothing while somebody has asked for a collection.
        """
        try:
            if self._under_way is None:
                if self._repo.collecting or not is_due(self._look()):
                    return False
                self._under_way = Collection(self._repo, Extent(keep_all=True))
            if self._under_way.step() is None:
                return True
            self._done_packs = self._repo.objects.pack_count
        except DomainError as error:
            # Another time: by then there may be space, or whoever asked for a collection is served.
            _logger.info("housekeeping ended: %s", error)
            self._done_packs = self._repo.objects.pack_count
        self.stop()
        return False

    def stop(self) -> None:
        """End what is under way; nothing is lost by it."""
        if self._under_way is not None:
            self._under_way.close()
            self._under_way = None

    def _look(self) -> Situation:
        self._repo.objects.refresh()
        try:
            names = os.listdir(os.path.join(self._repo.folder, b"objects"))
        except OSError:
            names = []
        return Situation(
            loose_refs=self._repo.refs.loose_count(),
            packs=self._repo.objects.pack_count,
            loose_object_folders=sum(1 for name in names if len(name) == 2),
            done_packs=self._done_packs,
        )
