"""Reads the variables of a ``.env`` file. Imports python-dotenv: load it when there is something to read."""

import io
import re
from collections.abc import Mapping

from dotenv.parser import parse_stream

__all__ = ["variables"]

_SINGLE_QUOTED = re.compile(r"=\s*'")
_REFERENCE = re.compile(r"\\\$|\$\{(?P<braced>[^}]*)\}|\$(?P<bare>\w+)")


def variables(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Give the variables of a ``.env`` file, the last of each name; lines that are none are passed over.

    ``$NAME`` and ``${NAME}`` stand for a variable of ``environ``, else of a line before, else for nothing; not
    between single quotes. So fabricatio reads them.
    """
    found: dict[str, str] = {}
    for line in parse_stream(io.StringIO(text)):
        if line.key is None or line.value is None:
            continue
        literal = _SINGLE_QUOTED.search(line.original.string) is not None
        found[line.key] = line.value if literal else _expanded(line.value, {**found, **environ})
    return found


def _expanded(value: str, known: Mapping[str, str]) -> str:
    def stands_for(reference: re.Match[str]) -> str:
        name = reference["braced"] or reference["bare"]
        return known.get(name, "") if name else "$"

    return _REFERENCE.sub(stands_for, value)
