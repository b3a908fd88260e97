"""Asking a person."""

from __future__ import annotations

import sys

from fabricatio_checkpoint.cli.output import is_terminal

__all__ = ["agreed", "somebody_there"]


def somebody_there() -> bool:
    """Whether a person can be asked: stdin and stderr are terminals."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def agreed(question: str) -> bool:
    """Ask on stderr; only y or yes is yes, an end of input is no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
