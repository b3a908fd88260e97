"""What the resources hold: checkpoints, their patches, their files. Nothing here knows the SDK."""

from binascii import a2b_base64
from typing import Any, Final, NamedTuple

from fabricatio_checkpoint import jsontext
from fabricatio_checkpoint.errors import StateError, error_of
from fabricatio_checkpoint.mcp.address import Address, record_address
from fabricatio_checkpoint.mcp.comparing import read_patch
from fabricatio_checkpoint.mcp.desk import Desk
from fabricatio_checkpoint.mcp.history import brief, shown_checkpoint
from fabricatio_checkpoint.mcp.page import MOST, clipped
from fabricatio_checkpoint.mcp.slice import as_text, patch_end

__all__ = ["Content", "Listed", "list_resources", "read_resource"]

_LISTED: Final = 50
_FILE_BYTES: Final = 1 << 20
_PATCH_BYTES: Final = 100_000
_NAME: Final = 60


class Listed(NamedTuple):
    """A checkpoint as the list of resources has it."""

    uri: str
    name: str
    text: str
    time: str


class Content(NamedTuple):
    """What a resource holds: text, or bytes that are none."""

    mime_type: str
    data: str | bytes


def list_resources(desk: Desk, before_seq: int | None) -> tuple[list[Listed], int | None]:
    """List the newest checkpoints, and say where the next page begins, if there is one."""
    try:
        result = desk.ask("checkpoint.list", {"limit": _LISTED, "before_seq": before_seq})
    except StateError as error:
        if error.kind != "not_tracked":
            raise
        return [], None
    records = result["checkpoints"]
    return [_listed(record) for record in records], records[-1]["seq"] if records and result["more"] else None


def read_resource(desk: Desk, address: Address) -> list[Content]:
    """Read what an address means; raises CheckpointError."""
    if address.path is not None:
        return [_file(desk, address)]
    result = desk.ask("checkpoint.show", {"id": address.id})
    if address.patch:
        return _patch(desk, result)
    return [Content("application/json", jsontext.dumps(shown_checkpoint(result, MOST)))]


def _listed(record: dict[str, Any]) -> Listed:
    shown = brief(record)
    message = " ".join((shown["message"] or "no message").split())
    tags = f" [{', '.join(record['tags'])}]" if record["tags"] else ""
    name = f"#{record['seq']} {clipped(message, _NAME)}{tags}"
    return Listed(
        record_address(record["id"]), name, f"{record['kind']} checkpoint of {record['time']}", record["time"]
    )


def _file(desk: Desk, address: Address) -> Content:
    wanted = {"id": address.id, "path": desk.path(address.path), "length": _FILE_BYTES}
    result = desk.ask("checkpoint.cat", wanted)
    data = a2b_base64(result["data"]["b64"])
    if len(data) < result["total_bytes"]:
        size = result["total_bytes"]
        raise error_of("frame_too_large", f"a file of {size} bytes", hint="checkpoint_read gives it in pieces")
    found = as_text(data)
    if found.binary or found.replaced:
        return Content("application/octet-stream", data)
    return Content("text/plain", found.text)


def _patch(desk: Desk, shown: dict[str, Any]) -> list[Content]:
    if shown["base"] is None:
        return [Content("text/plain", "The first checkpoint: there is nothing that it could be compared with.")]
    kept, notes = read_patch(desk, {"from_id": shown["base"], "to_id": shown["checkpoint"]["id"]})
    end = patch_end(kept.text, 0, _PATCH_BYTES)
    left = len(kept.text) - end + kept.missing_bytes
    if left:
        notes = [*notes, f"the patch goes on for {left} bytes: checkpoint_diff gives it in pages"]
    contents = [Content("text/x-diff", as_text(kept.text[:end]).text)]
    return [*contents, Content("text/plain", "\n".join(notes))] if notes else contents
