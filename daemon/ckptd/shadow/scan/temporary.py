"""The names that a restore gives to files in the making."""

import re
from typing import Final

__all__ = ["is_temporary"]

_TEMPORARY: Final = re.compile(rb"\.ckpt-[0-9a-f]{16}\.tmp")


def is_temporary(name: bytes) -> bool:
    """Tell whether a name is one that a restore gives to a file in the making: never saved."""
    return name.startswith(b".ckpt-") and _TEMPORARY.fullmatch(name) is not None
