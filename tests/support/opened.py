"""A store that a fake catalog has opened."""

from typing import NamedTuple

from ckptd.autosave import Autosave
from ckptd.core.ports import Reader, Writer

__all__ = ["Opened"]


class Opened(NamedTuple):
    """Fulfils the core's OpenedStore."""

    folder: bytes
    created: bool
    writer: Writer
    reader: Reader
    autosave: Autosave = Autosave()
    interrupted: str | None = None
