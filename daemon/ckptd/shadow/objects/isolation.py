"""Keeps every Git configuration but a store's own out of libgit2."""

import pygit2
from pygit2.enums import ConfigLevel

__all__ = ["isolate"]


def isolate() -> None:
    """Empty libgit2's configuration search paths; for the whole process, and before any repository is opened."""
    for level in (ConfigLevel.PROGRAMDATA, ConfigLevel.SYSTEM, ConfigLevel.XDG, ConfigLevel.GLOBAL):
        pygit2.settings.search_path[level] = ""
