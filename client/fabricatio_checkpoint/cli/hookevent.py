"""What a coding agent tells its hooks, and whether it is a moment to save. Pure.

The form is the one that Claude Code documents: one JSON object on stdin, with ``session_id``, ``cwd``,
``hook_event_name`` and, around a tool call, ``tool_name`` and ``tool_use_id``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EVENTS", "HookEvent", "read_event", "settings_with_hook"]

AGENT = "claude-code"

EVENTS = ("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop")
"""When the installed hook is called: before a tool runs and after it, before a new task, when the agent has finished.

The save after it tells where what the tool did ends: others may be at work in the same directory.
"""

_OF_TOOLS = frozenset({"PreToolUse", "PostToolUse"})

_HARMLESS = frozenset(
    {
        "AskUserQuestion", "BashOutput", "EnterPlanMode", "ExitPlanMode", "Glob", "Grep", "KillBash", "KillShell", "LS",
        "NotebookRead", "Read", "Skill", "TaskOutput", "TodoRead", "TodoWrite", "WebFetch", "WebSearch",
    }
)  # fmt: skip
"""Tools that are known to change no file. Any other one, of a version to come or a server's, may."""

_COMMAND = "ckpt hook"
_LONGEST = 200


class HookEvent:
    """One event; ``tool`` is None outside of tool calls, ``directory`` where the agent is."""

    def __init__(self, name: str, session: str | None, directory: str | None, tool: str | None) -> None:
        self.name = name
        self.session = session
        self.directory = directory
        self.tool = tool

    def is_worth_a_save(self) -> bool:
        """Whether something may be changed next, or has just been."""
        return self.name not in _OF_TOOLS or self.tool not in _HARMLESS

    def message(self) -> str:
        """Give the message of the checkpoint."""
        if self.name in _OF_TOOLS:
            return f"{'before' if self.name == 'PreToolUse' else 'after'} {self.tool or 'a tool'}"
        return {"UserPromptSubmit": "before a new task", "Stop": "the agent has finished"}.get(self.name, self.name)

    def meta(self) -> dict[str, str]:
        """Give the metadata by which the checkpoint is found again."""
        found = {"agent": AGENT, "event": self.name, "session": self.session, "tool": self.tool}
        return {key: value for key, value in found.items() if value}


def read_event(document: object) -> HookEvent:
    """Read an event; raises ValueError for what is none."""
    if not isinstance(document, dict):
        raise ValueError("a hook event is a JSON object")
    name = document.get("hook_event_name")
    if not isinstance(name, str) or not name:
        raise ValueError("a hook event has a hook_event_name")
    return HookEvent(name[:_LONGEST], *(_text(document, key) for key in ("session_id", "cwd", "tool_name")))


def _text(document: Mapping[str, object], key: str) -> str | None:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        return None
    return value if key == "cwd" else value[:_LONGEST]


def settings_with_hook(settings: Mapping[str, object], command: str = _COMMAND) -> dict[str, object]:
    """Give an agent's settings with our hook in them; what is there stays, and ours is not added twice.

    Raises ValueError where the settings have another form than the documented one.
    """
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict):
        raise ValueError('"hooks" is not an object')
    merged = dict(hooks)
    for event in EVENTS:
        groups = merged.get(event, [])
        if not isinstance(groups, list):
            raise ValueError(f'"hooks.{event}" is not a list')
        if not any(_calls(group, command) for group in groups):
            entry = {"hooks": [{"type": "command", "command": command, "timeout": 10}]}
            merged[event] = [*groups, {"matcher": "*", **entry} if event in _OF_TOOLS else entry]
    return {**settings, "hooks": merged}


def _calls(group: object, command: str) -> bool:
    entries = group.get("hooks", []) if isinstance(group, dict) else []
    return isinstance(entries, list) and any(
        isinstance(entry, dict) and entry.get("command") == command for entry in entries
    )
