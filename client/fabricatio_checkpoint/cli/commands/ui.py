"""``ui``: the timeline. What it needs is loaded when it is asked for."""

from __future__ import annotations

import os
import sys

from fabricatio_checkpoint.cli.failure import UsageError
from fabricatio_checkpoint.cli.output import is_terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from fabricatio_checkpoint.cli.session import Session

__all__ = ["theme_for", "ui"]

_MISSING = "ui needs Textual"
_INSTALL = 'pip install "fabricatio-checkpoint[ui]"'
_INSTEAD = "ckpt status, ckpt ls, ckpt show and ckpt diff say the same as text"
_LIGHT_BACKGROUNDS = ("7", "15")


def ui(session: Session) -> int:
    """Show the timeline of the worktree until its user has had enough."""
    if session.out.json:
        raise UsageError("ui is for a person and has no JSON", "use status, ls, show and diff with --json")
    # Textual draws on stderr.
    if not all(map(is_terminal, (sys.stdin, sys.stdout, sys.stderr))):
        raise UsageError("ui needs a terminal: stdin, stdout and stderr have to lead to one", _INSTEAD)
    if os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError("ui needs a terminal that can move its cursor (TERM says it is dumb)", _INSTEAD)
    try:
        from fabricatio_checkpoint.ui import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("textual", "rich"):
            raise
        raise UsageError(_MISSING, _INSTALL) from error
    del app
    return _run(session)


def _run(session: Session) -> int:
    from fabricatio_checkpoint.aio import AsyncCheckpointService, AsyncCheckPointStore
    from fabricatio_checkpoint.service import CheckpointService
    from fabricatio_checkpoint.ui.app import Look, TimelineApp
    from fabricatio_checkpoint.ui.source import Source

    # Asked before the screen is taken: what is not tracked, or misspelt, is an error like any other command's.
    session.ask("checkpoint.list", limit=1)
    service = CheckpointService(session.options["checkpoint_dir"], socket=session.options["socket"])
    store = service.find_store(session.worktree)
    source = Source(AsyncCheckpointService.of(service), AsyncCheckPointStore(store))
    app = TimelineApp(source, look=Look(not os.environ.get("NO_COLOR"), theme_for(os.environ), os.environ.get("HOME")))
    try:
        app.run()
    finally:
        service.close()
    if app.broken_by is not None:
        raise app.broken_by
    return 0


def theme_for(environ: Mapping[str, str]) -> str | None:
    """Choose the theme: the user's own word, else a light one where the terminal says that its background is light."""
    if environ.get("TEXTUAL_THEME"):
        return None
    light = environ.get("COLORFGBG", "").rpartition(";")[2] in _LIGHT_BACKGROUNDS
    if environ.get("NO_COLOR"):
        return "ansi-light" if light else "ansi-dark"
    return "textual-light" if light else None
