"""``checkpoint_read``."""

from binascii import a2b_base64, b2a_base64
from typing import Annotated, Any, Final, Literal

import msgspec

from ckpt_protocol.checkpoint import CatParams, CatResult
from fabricatio_checkpoint.errors import error_of
from fabricatio_checkpoint.mcp.answer import Answer
from fabricatio_checkpoint.mcp.field import Field, arguments_of, result_of
from fabricatio_checkpoint.mcp.slice import as_text, lines_end
from fabricatio_checkpoint.mcp.tool import HINT, MAX_BYTES, Call, Tool

__all__ = ["READ"]

_CHUNK_BYTES: Final = 1 << 20

_TEXT: Final = """\
Read one file as it was in a checkpoint, without changing anything. Long files come in pieces that end with a line: \
offset (or start_line) begins elsewhere, next_offset is where the next piece begins. A file that is not text is only \
described, unless encoding is base64. Of a symbolic link it gives the target."""


def _read(call: Call) -> Answer:
    given = call.arguments
    wanted = {"id": given["id"], "path": call.desk.path(given["path"])}
    first = given.get("start_line")
    offset = given["offset"]
    if first is not None and offset:
        raise error_of("invalid_params", "offset and start_line exclude each other")
    if first is not None:
        wanted["id"], offset = _find_line(call, wanted, first)
    most = given["max_bytes"] if given["encoding"] == "text" else given["max_bytes"] * 3 // 4
    result = call.desk.ask("checkpoint.cat", {**wanted, "offset": offset, "length": most + 1}, call.tell)
    data = a2b_base64(result.pop("data")["b64"])
    shown: dict[str, Any] = {**result, "next_offset": None}
    if given["encoding"] == "base64":
        b64 = b2a_base64(data[:most], newline=False).decode("ascii")
        return _ended(shown, offset, data[:most], Answer({"b64": b64}))
    piece = data[: lines_end(data, 0, most)]
    found = as_text(piece)
    if found.binary:
        return Answer(
            {**shown, "binary": True, "hint": "Not text. encoding=base64 gives its bytes, if they are of use."}
        )
    body: dict[str, Any] = {"text": found.text, "binary": False}
    if first is not None or not offset:
        body["first_line"] = first or 1
    if found.replaced:
        body["hint"] = f"{found.replaced} characters that are not UTF-8 are shown as U+FFFD."
    return _ended(shown, offset, piece, Answer(body, found.text))


def _ended(shown: dict[str, Any], offset: int, piece: bytes, answer: Answer) -> Answer:
    """Say where the next piece begins, if there is one."""
    end = offset + len(piece)
    whole = {**shown, **answer.structured}
    hints = [whole["hint"]] if "hint" in whole else []
    if end < shown["total_bytes"]:
        whole["next_offset"] = end
        hints.append(f"Of {shown['total_bytes']} bytes these are {offset} to {end}: call again with offset={end}.")
    if hints:
        whole["hint"] = " ".join(hints)
    text = None if answer.text is None else answer.text + "".join(f"\n[{hint}]" for hint in hints)
    return Answer(whole, text)


def _find_line(call: Call, wanted: dict[str, Any], line: int) -> tuple[str, int]:
    """Where a line begins, and which checkpoint the id meant."""
    before, offset = 0, 0
    place = wanted
    while True:
        result = call.desk.ask("checkpoint.cat", {**place, "offset": offset, "length": _CHUNK_BYTES}, call.tell)
        data = a2b_base64(result["data"]["b64"])
        place = {**place, "id": result["id"]}
        if line == 1:
            return result["id"], 0
        found = data.count(b"\n")
        if before + found >= line - 1:
            at = 0
            for _ in range(line - 1 - before):
                at = data.find(b"\n", at) + 1
            return result["id"], offset + at
        before += found
        offset += len(data)
        if not data or offset >= result["total_bytes"]:
            raise error_of("invalid_params", f"there is no line {line}: the file has {before} line ends")


READ: Final = Tool(
    "checkpoint_read",
    "Read a file of a checkpoint",
    _TEXT,
    arguments_of(
        "ReadArguments",
        CatParams,
        {
            "id": "The checkpoint: an id in any form, HEAD for the last one.",
            "path": "The file: relative to the worktree, or absolute and inside of it.",
            "offset": "Where to begin, in bytes.",
        },
        (
            Field("start_line", Annotated[int, msgspec.Meta(ge=1)], "Where to begin, as the number of a line."),
            MAX_BYTES,
            Field("encoding", Literal["text", "base64"], "base64 for the bytes of a file that is not text.", "text"),
        ),
    ),
    result_of(
        "ReadAnswer",
        CatResult,
        ("data",),
        (
            Field("text", str, "The piece, as text."),
            Field("b64", str, "The piece, as base64 of its bytes."),
            Field("binary", bool, "Whether the piece is no text."),
            Field("first_line", int, "The number of the first line."),
            Field("next_offset", int | None, "Where the next piece begins; null at the end.", None),
            HINT,
        ),
    ),
    _read,
)
