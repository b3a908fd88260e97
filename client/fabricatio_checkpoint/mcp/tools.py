"""The table of tools, and the one way to call them. Nothing here knows the SDK."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from fabricatio_checkpoint.errors import error_of
from fabricatio_checkpoint.mcp.answer import Answer
from fabricatio_checkpoint.mcp.comparing import DIFF, STATUS
from fabricatio_checkpoint.mcp.desk import Desk, Notice
from fabricatio_checkpoint.mcp.history import LIST, SHOW
from fabricatio_checkpoint.mcp.reading import READ
from fabricatio_checkpoint.mcp.restoring import REDO, RESTORE, UNDO
from fabricatio_checkpoint.mcp.saving import SAVE
from fabricatio_checkpoint.mcp.searching import SEARCH
from fabricatio_checkpoint.mcp.tool import Call, Tool

__all__ = ["TOOLS", "run_tool"]

TOOLS: Final = {tool.name: tool for tool in (SAVE, STATUS, DIFF, LIST, SHOW, SEARCH, READ, RESTORE, UNDO, REDO)}


def run_tool(tool: Tool, desk: Desk, given: Mapping[str, Any] | None, agent: str | None, tell: Notice | None) -> Answer:
    """Check the arguments against the tool's Struct and run it. Blocks; raises CheckpointError."""
    try:
        arguments = msgspec.convert(dict(given or {}), tool.arguments)
    except msgspec.ValidationError as error:
        raise error_of("invalid_params", f"{tool.name}: {error}") from error
    return tool.run(Call(desk, msgspec.to_builtins(arguments), agent, tell))
