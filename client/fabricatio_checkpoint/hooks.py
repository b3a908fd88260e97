"""A checkpoint before something risky: as a context manager, and as a decorator of functions or of a role's methods."""

import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, cast

from fabricatio_checkpoint.errors import error_of
from fabricatio_checkpoint.record import RestoreResult

if TYPE_CHECKING:
    from fabricatio_checkpoint.store import CheckPointStore

__all__ = ["Guard", "HasCheckpointStore", "guarded"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class HasCheckpointStore(Protocol):
    """A role with the ``Checkpoint`` capability."""

    def access_checkpoint_store(self) -> "CheckPointStore":
        """Give the mounted store."""
        ...


class Guard:
    """Saves the worktree before a block and, with ``restore``, resets it when the block ends with an exception.

    ``with`` and plain functions wait for the daemon; ``async with`` and coroutine functions leave the event loop free.
    Inside, ``checkpoint`` is the id of what was saved; afterwards ``restored`` is the result of a reset, and the
    exception carries a note of it. A reset that fails raises its own error, with the block's as its context. Any
    exception counts, a cancellation too. The reset covers the whole worktree, whoever wrote there meanwhile.
    """

    def __init__(
        self,
        find: "Callable[[], CheckPointStore]",
        msg: str | None = None,
        *,
        restore: bool = False,
        kind: str = "auto",
    ) -> None:
        self.checkpoint: str | None = None
        self.restored: RestoreResult | None = None
        self._find = find
        self._store: CheckPointStore | None = None
        self._msg = msg
        self._restore = restore
        self._kind = kind

    def __enter__(self) -> Self:
        # The same one to the end, even if a role's is unmounted inside.
        self._store = self._find()
        self.restored = None
        self.checkpoint = self._store.save(self._msg, kind=self._kind)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None and self._restore and self._store is not None:
            self.restored = self._store.reset(self.checkpoint)
            error.add_note(f"the worktree was reset to checkpoint {self.checkpoint}; undo() takes that back")

    async def __aenter__(self) -> Self:
        from fabricatio_checkpoint import workerthread

        return await workerthread.run(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        from fabricatio_checkpoint import workerthread

        if error is not None and self._restore:
            await workerthread.run_shielded(lambda: self.__exit__(kind, error, tb))

    def __call__(self, function: Callable[_P, _T]) -> Callable[_P, _T]:
        """Decorate a function or a coroutine function: each call is guarded anew."""
        return _wrap(function, lambda _arguments: self._anew())

    def _anew(self) -> "Guard":
        return Guard(self._find, self._msg, restore=self._restore, kind=self._kind)


def guarded(
    msg: str | None = None, *, restore: bool = False, kind: str = "auto"
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Decorate a method of a role with the ``Checkpoint`` capability, plain or coroutine: see Guard.

    The store is the one that is mounted when the method is called; without one the call raises StateError.
    """

    def of_role(arguments: tuple[Any, ...]) -> Guard:
        role: HasCheckpointStore = arguments[0]
        return Guard(role.access_checkpoint_store, msg, restore=restore, kind=kind)

    def decorate(method: Callable[_P, _T]) -> Callable[_P, _T]:
        return _wrap(method, of_role)

    return decorate


def _wrap(function: Callable[_P, _T], guard_of: Callable[[tuple[Any, ...]], Guard]) -> Callable[_P, _T]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise error_of("bad_option", f"{function.__qualname__} is a generator: guard the loop over it instead")
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def guarded_coroutine(*args: _P.args, **values: _P.kwargs) -> object:
            async with guard_of(args):
                return await function(*args, **values)

        return cast(Callable[_P, _T], guarded_coroutine)

    @functools.wraps(function)
    def guarded_function(*args: _P.args, **values: _P.kwargs) -> _T:
        with guard_of(args):
            return function(*args, **values)

    return guarded_function
