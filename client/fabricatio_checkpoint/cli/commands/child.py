"""``doctor``, ``daemon install`` and ``daemon uninstall``: done by a child, as only the daemon's side knows how."""

from __future__ import annotations

import os
import sys

from fabricatio_checkpoint.cli.commands.daemon import stop_quietly
from fabricatio_checkpoint.errors import error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fabricatio_checkpoint.cli.session import Session

__all__ = ["doctor", "install", "uninstall"]

_EXIT_BUG = 70


def doctor(session: Session) -> int:
    """Look for what is wrong, and put it right with ``--fix``. No daemon is started."""
    words = ["doctor", "--socket", session.socket, "--checkpoint-dir", session.options["checkpoint_dir"]]
    return _run(session, words + (["--fix"] if session.arguments.flag("fix") else []))


def install(session: Session) -> int:
    """Write the systemd user units and enable them."""
    # Systemd is going to bind the socket: a daemon that has it would take it back.
    stop_quietly(session)
    return _run(session, ["install-units"])


def uninstall(session: Session) -> int:
    """Take the units away again."""
    return _run(session, ["install-units", "--remove"])


def _run(session: Session, words: list[str]) -> int:
    import subprocess

    session.out.flush()
    flags = ["--json"] if session.out.json else []
    command = [sys.executable, "-P", "-m", "ckptd", *words, *flags]
    try:
        done = subprocess.run([os.fsencode(word) for word in command], stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        raise error_of("start_failed", f"cannot run {sys.executable}: {error.strerror}") from error
    return done.returncode if done.returncode >= 0 else _EXIT_BUG
