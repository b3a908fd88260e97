"""The addresses of resources: ``checkpoint:///ID``, ``checkpoint:///ID/patch``, ``checkpoint:///ID/files/PATH``. Pure.

Nothing stands where a host would: clients spell hosts in lower case, and tags are not.
"""

from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from ckpt_protocol.wirepath import encode
from fabricatio_checkpoint.errors import error_of
from fabricatio_checkpoint.wire import Json

__all__ = ["FILE_TEMPLATE", "PATCH_TEMPLATE", "RECORD_TEMPLATE", "Address", "read_address", "record_address"]

_ROOT: Final = "checkpoint:///"

RECORD_TEMPLATE: Final = _ROOT + "{id}"
PATCH_TEMPLATE: Final = _ROOT + "{id}/patch"
FILE_TEMPLATE: Final = _ROOT + "{id}/files/{+path}"


class Address(NamedTuple):
    """What is meant: the record of a checkpoint, its patch, or, with ``path``, a file of it."""

    id: str
    patch: bool = False
    path: Json | None = None


def record_address(checkpoint_id: str) -> str:
    """Give the address of a checkpoint."""
    return _ROOT + quote(checkpoint_id, safe="")


def read_address(uri: str) -> Address:
    """Read an address; raises InputError for what is none of ours."""
    if uri.startswith(_ROOT):
        name, _, rest = uri.removeprefix(_ROOT).partition("/")
        checkpoint_id = unquote_to_bytes(name).decode("utf-8", "replace")
        if checkpoint_id and not rest:
            return Address(checkpoint_id)
        if checkpoint_id and rest == "patch":
            return Address(checkpoint_id, patch=True)
        path = unquote_to_bytes(rest.removeprefix("files/"))
        if checkpoint_id and rest.startswith("files/") and path:
            return Address(checkpoint_id, path=encode(path))
    raise error_of("bad_path", f"there is no resource {uri!r}", hint=f"a checkpoint's address is {_ROOT}ID")
