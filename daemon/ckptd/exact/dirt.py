"""What may have changed since the last scan that counted: names by directory, or "nobody knows". Pure."""

from typing import Final

from ckptd.doubt import Doubt

__all__ = ["MOST_NAMES", "Dirt", "Names"]

Names = dict[bytes, set[bytes]]
"""Names by the path of their directory; an empty name is the directory itself, who may enter it for one."""

MOST_NAMES: Final = 50_000
"""With more of them a scan of everything is cheaper than remembering them."""


class Dirt:
    """Collects names until a scan that looked at them is taken for good.

    What has been looked at is kept until adopted(): a save that fails has looked in vain. It begins as not known.
    """

    def __init__(self) -> None:
        self._fresh: Names = {}
        self._pending: Names = {}
        self._count = 0
        self._unknown = True
        self._losses = 0
        self._looked_at_loss: int | None = None
        self.lost_for = Doubt("starting", "not looked at yet")

    def add(self, folder: bytes, name: bytes) -> None:
        """Take a name that may have changed."""
        names = self._fresh.get(folder)
        if names is None:
            names = self._fresh[folder] = set()
        elif name in names:
            return
        names.add(name)
        self._count += 1
        if self._count > MOST_NAMES:
            self.lose(Doubt("too_many", "too many changes"))

    def add_folder(self, folder: bytes) -> None:
        """Take a directory that may have changed itself: its permission bits, or its owner."""
        self._fresh.setdefault(folder, set()).add(b"")

    def lose(self, reason: Doubt) -> None:
        """Forget everything: only a scan of all that begins from now on brings it back."""
        self._fresh, self._pending, self._count = {}, {}, 0
        if not self._unknown or self.lost_for.kind == "starting":
            # What comes next, until all is looked at, may be a consequence.
            self.lost_for = reason
        self._unknown = True
        self._losses += 1

    def look(self) -> Names | None:
        """Give all that may have changed, None where that is not known; a scan of it begins now."""
        for folder, names in self._fresh.items():
            self._pending.setdefault(folder, set()).update(names)
        self._fresh = {}
        self._looked_at_loss = self._losses
        if self._unknown:
            return None
        return {folder: set(names) for folder, names in self._pending.items()}

    def look_away(self) -> None:
        """A scan begins that nothing of this can be vouched for by."""
        self._looked_at_loss = None

    def adopted(self, *, whole: bool) -> None:
        """The scan that began with the last look() is the model now; ``whole`` says that it looked at everything."""
        if self._looked_at_loss != self._losses or (self._unknown and not whole):
            return
        self._unknown = False
        self._pending = {}
        self._count = sum(map(len, self._fresh.values()))
