"""Checkpoints as a capability of an agent's role.

The mixin works on plain classes and on pydantic models, and imports neither pydantic nor fabricatio. How it agrees
with pydantic: its one annotation, ``worktree_dir``, is collected from the method resolution order and becomes a field
of the model; an override without an annotation, ``worktree_dir = Path(...)``, is let through by ``ignored_types`` and
becomes the field's default; the mixin itself has no attribute of that name, which an annotated override would be
warned to shadow, and gives each class that brings none a default of its own.
"""

import os
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Self

from fabricatio_checkpoint.errors import StateError
from fabricatio_checkpoint.inited_service import get_checkpoint_service
from fabricatio_checkpoint.record import RestoreResult
from fabricatio_checkpoint.store import AnyPath, CheckPointStore

__all__ = ["Checkpoint"]

_MOUNTED = "_mounted_checkpoint_store"
_FIELD = "worktree_dir"


class Checkpoint:
    """Gives a role checkpoints of its worktree: ``class MyAgent(Checkpoint, SomeRole)``.

    ``worktree_dir`` is set in the class or given to the constructor; the default is the directory that the process
    is in when the store is mounted. Methods raise StateError while no store is mounted.
    """

    worktree_dir: Path

    # Read by pydantic alone: without an annotation, so that it is no field either, and hidden from type checkers,
    # which would compare it with the model's own.
    if not TYPE_CHECKING:
        model_config = {"ignored_types": (PurePath,)}

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if not hasattr(cls, _FIELD) and not any(_FIELD in _fields(base) for base in cls.__mro__[1:]):
            cls.worktree_dir = Path()

    def __init__(self, *args: object, **values: object) -> None:
        given = values.pop(_FIELD) if _FIELD in values and _FIELD not in _fields(type(self)) else None
        super().__init__(*args, **values)
        if given is not None:
            object.__setattr__(self, _FIELD, _as_path(given))

    def mount_checkpoint_store(self, store: CheckPointStore | None = None) -> Self:
        """Attach a store, by default that of ``worktree_dir`` (made if there is none yet); return the role."""
        if store is None:
            store = get_checkpoint_service().get_store(getattr(self, _FIELD, None) or Path())
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

    def get_file_diff(self, commit_id: str, file_path: str | bytes | os.PathLike[str]) -> str:
        """Give the patch of one file from a checkpoint to its current state."""
        return self.access_checkpoint_store().get_file_diff(commit_id, file_path)


def _as_path(value: object) -> Path:
    if isinstance(value, str | os.PathLike):
        return Path(value)
    raise TypeError(f"{_FIELD} must be a path, not {type(value).__name__}")


def _fields(cls: type) -> dict[str, object]:
    """Give the names of a pydantic model's fields; of any other class none."""
    fields = cls.__dict__.get("__pydantic_fields__") or cls.__dict__.get("model_fields")
    return fields if isinstance(fields, dict) else {}
