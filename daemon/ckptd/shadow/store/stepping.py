"""Going on for a moment with what takes long, so that others who wait for the same thread come in between."""

import time
from collections.abc import Iterator
from typing import Final

from ckptd.errors import DomainError
from ckptd.shadow.store.asker import Asker

__all__ = ["go_on"]

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
