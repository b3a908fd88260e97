"""The one thing that the user's Git configuration has a say in: where their global excludes file lies."""

import os

import pygit2

__all__ = ["global_excludes_path"]


def global_excludes_path(home: bytes, config_home: bytes) -> bytes | None:
    """Give the path of ``core.excludesFile``, else git's default place for it (gitignore(5)).

    ``config_home`` is ``$XDG_CONFIG_HOME`` or its default. A configuration that cannot be read or parsed counts as
    one that says nothing: it must not keep anybody from saving.
    """
    for file in (os.path.join(home, b".gitconfig"), os.path.join(config_home, b"git", b"config")):
        value = _excludes_file(file)
        if value is not None:
            return _expanded(value, home)
    return os.path.join(config_home, b"git", b"ignore")


def _excludes_file(path: bytes) -> str | None:
    if not os.path.isfile(path):
        return None
    try:
        config = pygit2.Config(os.fsdecode(path))
        return str(config["core.excludesFile"]) if "core.excludesFile" in config else None
    except (pygit2.GitError, KeyError, OSError, ValueError):
        return None


def _expanded(value: str, home: bytes) -> bytes | None:
    if not value:
        return None
    path = os.fsencode(value)
    if path == b"~" or path.startswith(b"~/"):
        return home + path[1:]
    return path if os.path.isabs(path) else None
