"""The watchers of autosave, as the daemon that runs tells of them: those that are not told of changes, and why."""

from collections.abc import Iterator
from typing import Any, Final, cast

from ckpt_protocol.wirepath import PathError, decode, to_text
from ckptd.doctor.finding import Case, Finding

__all__ = ["check"]

_CURES: Final = (
    ("os error 24", "as root: sysctl fs.inotify.max_user_instances=512"),
    ("watch limit reached", "as root: sysctl fs.inotify.max_user_watches=1048576"),
    (
        "more than may be watched",
        "as root: sysctl fs.inotify.max_user_watches=1048576, or ignore what need not be saved",
    ),
    ("UTF-8", "give those files names in UTF-8"),
)
_NOTHING: Final = "nothing: changes are looked for instead, it only takes longer"


def check(case: Case) -> Iterator[Finding]:
    """Go through the open stores; one that is watched and all right, and one that is not, are passed over."""
    stores = (case.answer or {}).get("stores")
    for store in cast("list[dict[str, Any]]", stores) if isinstance(stores, list) else []:
        state, reason = store.get("watcher"), str(store.get("watcher_reason") or "")
        try:
            path = decode(store.get("worktree"))
        except PathError:
            continue
        if state is None:
            continue
        if store.get("halted"):
            problem = f"autosave of {to_text(path)} has stopped: {store['halted']}"
            yield Finding("autosave", path, problem, "look at it; ckpt save or ckpt watch on goes on with it")
        elif state != "active":
            problem = f"the watcher of {to_text(path)} is {state}: {reason}"
            yield Finding("watcher", path, problem, _cure(reason))


def _cure(reason: str) -> str:
    return next((cure for sign, cure in _CURES if sign in reason), _NOTHING)
