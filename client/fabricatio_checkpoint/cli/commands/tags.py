"""``tag`` and ``untag``: names of checkpoints."""

from __future__ import annotations

from fabricatio_checkpoint.cli.text import short, visible
from fabricatio_checkpoint.wire import new_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fabricatio_checkpoint.cli.session import Session

__all__ = ["tag", "untag"]


def tag(session: Session) -> int:
    """Name a checkpoint."""
    words = session.arguments.words
    name = words["NAME"][0]
    move = session.arguments.flag("move")
    result = session.ask("checkpoint.tag", token=new_token(), id=words["ID"][0], name=name, move=move)
    if session.out.json:
        session.out.document(result)
        return 0
    moved = result["before"] not in (None, result["id"])
    session.out.line(
        f"{visible(name)} is {short(result['id'])}" + (f", was {short(result['before'])}" if moved else "")
    )
    return 0


def untag(session: Session) -> int:
    """Remove a name."""
    name = session.arguments.words["NAME"][0]
    result = session.ask("checkpoint.untag", token=new_token(), name=name)
    if session.out.json:
        session.out.document(result)
    else:
        session.out.line(f"{visible(name)} was {short(result['before'])}")
    return 0
