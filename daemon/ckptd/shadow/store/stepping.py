"""Going on for a moment with what takes long, so that others who wait for the same thread come in between."""

import time
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from ckptd.errors import DomainError
from ckptd.shadow.objects.pieces import Pieces
from ckptd.shadow.store.asker import Asker

__all__ = ["Steps", "go_on"]

R = TypeVar("R")

_STEP_S: Final = 0.02
"""So long a step takes: a hundred times of what it costs to begin one, and nobody notices that he has waited for it."""


def go_on(run: Iterator[object], asker: Asker, doing: str) -> bool:
    """Go on for a moment; tell whether it has come to its end. A piece that is True asks for a pause.

    Raises DomainError ``cancelled`` where it was called off, and what ``run`` raises.
    """
    end = time.monotonic() + _STEP_S
    for waits in run:
        if asker.is_cancelled():
            raise DomainError("cancelled", f"the {doing} was called off")
        if waits is True or time.monotonic() > end:
            return False
    return True


class Steps(Generic[R]):
    """Work in pieces that somebody has asked for; step() goes on with it. Used by one thread at a time."""

    is_waiting: Final = False

    def __init__(self, work: Pieces[R], asker: Asker, doing: str) -> None:
        self._asker = asker
        self._doing = doing
        self._result: R | None = None
        self._run: Final = self._keeping(work)

    def step(self) -> R | None:
        """Go on for a moment; give the result once it is there. Raises as go_on()."""
        try:
            return self._result if go_on(self._run, self._asker, self._doing) else None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of what is not finished; may be called again."""
        self._run.close()

    def _keeping(self, work: Pieces[R]) -> Pieces[None]:
        self._result = yield from work
