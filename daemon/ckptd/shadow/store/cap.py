"""The size cap of a store, and whether what nobody thins takes more by itself."""

from typing import Final

from ckptd.shadow.objects.store import ObjectStore

__all__ = ["Cap"]

_LEAST_BYTES: Final = 8 * 1024 * 1024
_MOST_BYTES: Final = 512 * 1024 * 1024
_SHARE: Final = 16
_LEAST_PRESSURE: Final = 0.5
_MOST_PRESSURE: Final = 4.0


class Cap:
    """``max_bytes`` for what is packed in a store."""

    def __init__(self, objects: ObjectStore, max_bytes: int) -> None:
        self._objects = objects
        self._max_bytes = max_bytes
        self._waste = max_bytes // _SHARE
        self._left: int | None = None
        self._looked_at: int | None = None

    def is_over(self, more_bytes: int = 0) -> bool:
        """Whether the store takes more, or would with so many bytes; be it needed or not."""
        return self._objects.packed_bytes() + more_bytes > self._max_bytes

    def excess_bytes(self) -> int:
        """Give how much has to go for the store not to be above the cap any more."""
        return max(0, self._objects.packed_bytes() - self._max_bytes)

    @property
    def slice_bytes(self) -> int:
        """How much may stand beside what is there while packs are made new: none is to be larger, then."""
        return min(max(self._waste, _LEAST_BYTES), _MOST_BYTES)

    def is_wasteful(self) -> bool:
        """Whether the store is above the cap by what nothing needs: what was removed before it was last opened, too."""
        return self._left is not None and self.is_over() and self._objects.packed_bytes() - self._left > self._waste

    def is_weighing_due(self) -> bool:
        """Whether the store is above the cap and has grown by a sixteenth of it since it was looked at."""
        if self._looked_at is None:
            return self.is_over()
        packed = self._objects.packed_bytes()
        # A collection has made it smaller since: from there on it grows.
        self._looked_at = min(self._looked_at, packed)
        return packed > max(self._max_bytes, self._looked_at + self._waste)

    def pressure(self) -> float:
        """Tell how long what makes it smaller is to have for each second that others have had.

        A store that is a sixteenth above the cap gets half as long, one that is twice as far twice that: what is saved
        may come as fast as a disk takes it.
        """
        excess = self.excess_bytes() * _SHARE / (2 * max(self._max_bytes, 1))
        return min(max(_LEAST_PRESSURE, excess), _MOST_PRESSURE)

    def looking(self) -> None:
        """Remember that it is being weighed; what is damaged now is damaged at the next look, too."""
        self._looked_at = self._objects.packed_bytes()

    def weighed(self, left: int) -> None:
        """Remember what thinning leaves, or would leave, in bytes."""
        self.looking()
        self._left = left

    def note(self) -> str | None:
        """Say that only a person can make the store small enough; None where that is not so, or not known."""
        if self._left is None or not self.is_over():
            return None
        return self.note_of(self._left)

    def note_of(self, left: int) -> str | None:
        """Say the same of so many bytes that thinning leaves."""
        if left <= self._max_bytes:
            return None
        return (
            f"thinning leaves {left} bytes, more than max_store_bytes ({self._max_bytes}): manual, tagged and needed "
            "checkpoints are never thinned; ckpt drop removes them by hand"
        )
