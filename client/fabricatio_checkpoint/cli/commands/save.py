"""``save``: the id on stdout, what people want to know on stderr."""

from __future__ import annotations

from fabricatio_checkpoint.cli.failure import EXIT_LEFT_OUT
from fabricatio_checkpoint.cli.text import counted, visible
from fabricatio_checkpoint.cli.words import tell_left_out
from fabricatio_checkpoint.wire import new_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fabricatio_checkpoint.cli.output import Output
    from fabricatio_checkpoint.cli.session import Session

__all__ = ["save"]


def save(session: Session) -> int:
    """Make a checkpoint; 3 where something that should be in it is not."""
    result = session.ask("checkpoint.save", token=new_token(), **_params(session))
    if session.out.json:
        session.out.document(result)
    else:
        session.out.line(result["id"])
        session.out.flush()
        _explain(result, session.out)
    return 0 if result["complete"] else EXIT_LEFT_OUT


def _params(session: Session) -> dict[str, Any]:
    given = session.arguments
    params: dict[str, Any] = {name: True for name in ("full", "rehash", "force") if given.flag(name)}
    texts = {
        "message": given.word("MESSAGE"),
        "tag": given.value("tag"),
        "expect_head": given.value("expect-head"),
    }
    params.update({name: text for name, text in texts.items() if text is not None})
    meta = given.pairs("meta")
    if meta:
        params["meta"] = meta
    return params


def _explain(result: dict[str, Any], out: Output) -> None:
    if result["created"]:
        out.note(f"checkpoint #{result['seq']}, {counted(result['files'], 'file')}")
    else:
        out.note(f"nothing changed since checkpoint #{result['seq']}")
    for note in result.get("notes", ()):
        out.note(visible(note))
    tell_left_out(out, "skipped", result["skipped"])
    if result["excluded"]:
        out.note(f"{counted(len(result['excluded']), 'path')} excluded; ckpt status lists them")
    if not result["complete"]:
        out.note("the checkpoint is incomplete: the skipped paths are not in it")
