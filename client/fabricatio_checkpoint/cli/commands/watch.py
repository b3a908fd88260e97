"""``watch``: autosave on, off, and how it is."""

from __future__ import annotations

from fabricatio_checkpoint.cli.failure import UsageError
from fabricatio_checkpoint.cli.text import counted, visible
from fabricatio_checkpoint.wire import new_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from fabricatio_checkpoint.cli.session import Session

__all__ = ["lost_track", "scanned", "told", "watch"]

_ACTIONS = ("on", "off", "status")

# The others are of the saves themselves: each of them comes now and then, and says nothing of the watcher.
_LOSSES = ("overflow", "too_many", "cookie", "limit", "replaced", "missed", "error")


def watch(session: Session) -> int:
    """Turn autosave on or off, or tell how it is."""
    action = session.arguments.word("ACTION")
    if action not in _ACTIONS:
        raise UsageError(f"watch takes on, off or status, not {action!r}")
    force = session.arguments.flag("force")
    result = session.ask("worktree.watch", token=new_token(), action=action, **({"force": True} if force else {}))
    if session.out.json:
        session.out.document(result)
        return 0
    for line in told(result["watcher"], result["halted"]):
        session.out.line(line)
    if action == "status":
        for line in scanned(result.get("scans")):
            session.out.line(line)
    if result["watcher"]["state"] != "off" or action == "status":
        for line in _after_a_reboot(result["reboot"]):
            session.out.line(line)
    return 0


def told(watcher: dict[str, Any], halted: str | None) -> Iterator[str]:
    """Say how autosave is: one line where all is well."""
    if watcher["state"] == "off":
        yield "autosave is off; ckpt watch on turns it on"
        return
    delays = f"{watcher['quiet_s']:g} s after the last edit, {watcher['max_wait_s']:g} s at the most"
    yield f"autosave is on: {counted(watcher['saved'], 'checkpoint')} made, {delays}"
    if halted:
        yield f"autosave has stopped ({visible(halted)}); ckpt save or ckpt watch on goes on with it"
        return
    reason = f" ({visible(watcher['reason'])})" if watcher["reason"] else ""
    yield f"watcher: {watcher['state']}{reason}, directories watched: {watcher['directories']}"
    if watcher["missed"]:
        yield f"  {counted(watcher['missed'], 'scan')} found what the watcher had missed"
    failure = watcher["failure"]
    if failure is not None:
        again = "" if failure["retry_in_s"] is None else f"; tried again in {failure['retry_in_s']:g} s"
        yield f"the last autosave failed: {visible(failure['message'])}{again}"


def scanned(scans: dict[str, Any] | None) -> Iterator[str]:
    """Say how saves have found what had changed, where they have ever had a choice."""
    if scans is None or not (scans["watching"] or scans["watched"] or scans["fall_backs"]):
        return
    rest = "" if scans["watching"] else " (not at work now)"
    by_word = counted(scans["watched"], "save")
    yield f"exact watcher{rest}: {by_word} by its word, {scans['full']} by a look at everything"
    for one in scans["fall_backs"]:
        yield f"  a look at everything {_times(one['count'])}: {visible(one['reason'])}"


def lost_track(scans: dict[str, Any] | None) -> Iterator[str]:
    """Say it where the exact watcher could not tell what had changed; nothing was missed by that."""
    losses = sum(one["count"] for one in scans["fall_backs"] if one["kind"] in _LOSSES) if scans is not None else 0
    if losses:
        yield f"the exact watcher lost track {_times(losses)}; everything was looked at then (ckpt watch status: why)"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _after_a_reboot(reboot: dict[str, Any]) -> Iterator[str]:
    """Say what is missing for autosave to go on by itself after a reboot, and what to type."""
    missing = []
    if not reboot["unit"]:
        missing.append("ckpt daemon install")
    if not reboot["enabled"]:
        missing.append("systemctl --user enable ckptd.service")
    if not reboot["linger"]:
        missing.append("loginctl enable-linger")
    if not missing:
        yield "after a reboot it goes on by itself"
        return
    yield "after a reboot it goes on with the first ckpt command; to go on by itself it needs:"
    for command in missing:
        yield f"  {command}"
