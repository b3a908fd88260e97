"""What a chore, run by hand as a process of its own, has to say: the entry point prints it."""

from typing import NamedTuple

__all__ = ["Said"]


class Said(NamedTuple):
    """The exit code, and the text for stdout and stderr, both without a line end."""

    code: int
    out: str = ""
    err: str = ""
