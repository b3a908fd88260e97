"""Checkpoints as a capability of an agent's role.

The mixin works on plain classes and on pydantic models, and imports neither pydantic nor fabricatio. How it agrees
with pydantic: its one annotation, ``worktree_dir``, is collected from the method resolution order and becomes a field
of the model; an override without an annotation, ``worktree_dir = Path(...)``, is let through by ``ignored_types`` and
becomes the field's default; the mixin itself has no attribute of that name, which an annotated override would be
warned to shadow, and gives each class that brings none a default of its own.

Methods whose names begin with ``a`` are the awaitable twins of those without: they leave the event loop free.
"""

import functools
import inspect
import os
import sys
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Self

from fabricatio_checkpoint.aio import AsyncCheckPointStore, in_thread, twin_of
from fabricatio_checkpoint.errors import StateError
from fabricatio_checkpoint.hooks import Guard
from fabricatio_checkpoint.inited_service import get_checkpoint_service
from fabricatio_checkpoint.record import RestoreResult, StatusResult
from fabricatio_checkpoint.store import AnyPath, CheckPointStore
from fabricatio_checkpoint.watching import WatchResult

__all__ = ["Checkpoint"]

_MOUNTED = "_mounted_checkpoint_store"
_FIELD = "worktree_dir"

_ANYWHERE = Path()
"""The default of a class: known by its identity, and replaced by the current directory in each instance."""


class Checkpoint:
    """Gives a role checkpoints of its worktree: ``class MyAgent(Checkpoint, SomeRole)``.

    ``worktree_dir`` is set in the class or given to the constructor; the default is the directory that the process
    is in when the role is made. Methods raise StateError while no store is mounted.
    """

    worktree_dir: Path

    # Read by pydantic alone: without an annotation, so that it is no field either, and hidden from type checkers,
    # which would compare it with the model's own.
    if not TYPE_CHECKING:
        model_config = {"ignored_types": (PurePath,)}

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        brings_one = getattr(cls, _FIELD, _ANYWHERE) is not _ANYWHERE or _annotates(cls)
        if not brings_one and not any(_FIELD in _fields(base) for base in cls.__mro__[1:]):
            cls.worktree_dir = _default_of(cls)

    def __init__(self, *args: object, **values: object) -> None:
        given = None
        if _FIELD not in _fields(type(self)):
            given = values.pop(_FIELD, _here() if getattr(self, _FIELD, _ANYWHERE) is _ANYWHERE else None)
        super().__init__(*args, **values)
        if given is not None:
            object.__setattr__(self, _FIELD, _as_path(given))

    def mount_checkpoint_store(self, store: CheckPointStore | None = None) -> Self:
        """Attach a store, by default that of ``worktree_dir`` (made if there is none yet); return the role."""
        if store is None:
            store = get_checkpoint_service().get_store(getattr(self, _FIELD, None) or _ANYWHERE)
        # Past pydantic, which knows no such field, straight into the instance.
        object.__setattr__(self, _MOUNTED, store)
        return self

    def unmount_checkpoint_store(self) -> Self:
        """Detach the store; return the role."""
        self.__dict__.pop(_MOUNTED, None)
        return self

    def access_checkpoint_store(self, fallback_default: CheckPointStore | None = None) -> CheckPointStore:
        """Give the mounted store; where there is none, mount ``fallback_default``, or raise StateError."""
        store = self.__dict__.get(_MOUNTED)
        if isinstance(store, CheckPointStore):
            return store
        if fallback_default is None:
            raise StateError(
                f"{type(self).__name__} has no checkpoint store mounted",
                kind="not_mounted",
                hint="call mount_checkpoint_store() first",
            )
        self.mount_checkpoint_store(fallback_default)
        return fallback_default

    def save_checkpoint(self, msg: str | None = None) -> str:
        """Save the worktree's state with a message; return the checkpoint's id."""
        return self.access_checkpoint_store().save(msg)

    def rollback(self, commit_id: str, file_path: AnyPath | Iterable[AnyPath]) -> RestoreResult:
        """Restore one file (or several) from a checkpoint."""
        return self.access_checkpoint_store().rollback(commit_id, file_path)

    def reset_to_checkpoint(self, commit_id: str) -> RestoreResult:
        """Restore the entire worktree to a checkpoint."""
        return self.access_checkpoint_store().reset(commit_id)

    def get_file_diff(self, commit_id: str, file_path: AnyPath) -> str:
        """Give the patch of one file from a checkpoint to its current state."""
        return self.access_checkpoint_store().get_file_diff(commit_id, file_path)

    def status(self) -> StatusResult:
        """Compare the worktree with the last checkpoint."""
        return self.access_checkpoint_store().status()

    def diff(self, from_id: str | None = None, to_id: str | None = None, paths: Iterable[AnyPath] = ()) -> str:
        """Give the patch from one checkpoint (default: the last) to another (default: the worktree as it is now)."""
        return self.access_checkpoint_store().diff(from_id, to_id, paths)

    def undo(self) -> RestoreResult:
        """Take back the newest reset or rollback that is not undone."""
        return self.access_checkpoint_store().undo()

    def autosave(self, on: bool = True) -> WatchResult:
        """Have the daemon checkpoint the worktree while it is edited, or stop that; it is remembered."""
        return self.access_checkpoint_store().watch(on)

    def guard(self, msg: str | None = None, *, restore: bool = False, kind: str = "auto") -> Guard:
        """Checkpoint before a block (``with``, ``async with``); ``restore`` resets where it ends with an exception."""
        return Guard(self.access_checkpoint_store, msg, restore=restore, kind=kind)

    async def amount_checkpoint_store(self, store: CheckPointStore | AsyncCheckPointStore | None = None) -> Self:
        """Mount as mount_checkpoint_store() does, without holding up the event loop."""
        found = store.blocking if isinstance(store, AsyncCheckPointStore) else store
        return await in_thread(functools.partial(self.mount_checkpoint_store, found))

    @twin_of(save_checkpoint)
    def asave_checkpoint(self) -> None:
        """Save the worktree's state with a message; return the checkpoint's id."""

    @twin_of(rollback)
    def arollback(self) -> None:
        """Restore one file (or several) from a checkpoint."""

    @twin_of(reset_to_checkpoint)
    def areset_to_checkpoint(self) -> None:
        """Restore the entire worktree to a checkpoint."""

    @twin_of(get_file_diff)
    def aget_file_diff(self) -> None:
        """Give the patch of one file from a checkpoint to its current state."""

    @twin_of(status)
    def astatus(self) -> None:
        """Compare the worktree with the last checkpoint."""

    @twin_of(diff)
    def adiff(self) -> None:
        """Give the patch from one checkpoint to another, or to the worktree."""

    @twin_of(autosave)
    def aautosave(self) -> None:
        """Have the daemon checkpoint the worktree while it is edited, or stop that."""

    @twin_of(undo)
    def aundo(self) -> None:
        """Take back the newest reset or rollback that is not undone."""


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError:
        # A role can be made where there is no directory any more, and be given a store of another one.
        return _ANYWHERE


def _annotates(cls: type) -> bool:
    """Tell whether a class declares the directory itself; without a value, it wants one to be given."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format, get_annotations

        return _FIELD in get_annotations(cls, format=Format.FORWARDREF)
    return _FIELD in inspect.get_annotations(cls)


def _default_of(cls: type) -> Path:
    """Give what a class gets that brings no directory; for a pydantic model, the field that finds it out."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(cls, pydantic.BaseModel):
        field: Path = pydantic.Field(default_factory=_here)
        return field
    return _ANYWHERE


def _as_path(value: object) -> Path:
    if isinstance(value, str | os.PathLike):
        return Path(value)
    raise TypeError(f"{_FIELD} must be a path, not {type(value).__name__}")


def _fields(cls: type) -> dict[str, object]:
    """Give the names of a pydantic model's fields; of any other class none."""
    fields = cls.__dict__.get("__pydantic_fields__") or cls.__dict__.get("model_fields")
    return fields if isinstance(fields, dict) else {}
