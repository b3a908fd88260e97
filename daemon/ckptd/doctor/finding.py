"""One thing that is wrong, and the case that it is found in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["CannotFixError", "Case", "Finding"]


class CannotFixError(Exception):
    """A finding stays as it is; the text says why."""


class Finding(NamedTuple):
    """``problem`` says what is wrong, ``action`` what would be done, or who has to do what where ``fix`` is None.

    ``fix`` does it; it raises CannotFixError or OSError where it cannot, and proves first that nobody alive owns
    what it removes.
    """

    check: str
    path: bytes | None
    problem: str
    action: str
    fix: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """What is looked at. ``answer`` is what the daemon said of itself, None where none could be asked.

    ``silence`` is why not, where something is at the socket and does not answer.
    """

    socket: str
    checkpoint_dir: bytes
    state_dir: str
    answer: dict[str, object] | None
    silence: str | None = None
