"""A worktree that was moved: whose history it goes on with, and what is said where only a person can tell."""

from collections.abc import Iterable, Sequence

from ckpt_protocol.structs import to_wire
from ckpt_protocol.wirepath import to_text
from ckpt_protocol.worktree import AdoptResult
from ckptd.errors import DomainError
from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.store.claims import Claim, claims_on, is_gone, only_proved
from ckptd.shadow.store.metadata import Metadata

__all__ = ["answer_adopted", "choose", "is_adopted", "refuse_proved", "refuse_second", "told"]

Store = tuple[bytes, Metadata]


def refuse_proved(path: bytes, claims: list[Claim]) -> None:
    """Raise DomainError ``worktree_moved``, with both paths, where the directory is proved to be a moved worktree."""
    claim = only_proved(claims)
    if claim is not None:
        raise DomainError(
            "worktree_moved",
            f"{to_text(path)} is what was at {to_text(claim.metadata.path)}",
            hint=_hint(claim.metadata.path),
            paths=(path, claim.metadata.path),
        )


def told(path: bytes, claims: Sequence[Claim]) -> str:
    """Say in one line that a directory may be a worktree that was moved, and what to type then."""
    names = " or ".join(to_text(claim.metadata.path) for claim in claims)
    return f"{to_text(path)} may be {names}, moved: if so, its history comes with {_hint(claims[0].metadata.path)}"


def _hint(old: bytes) -> str:
    return f"ckpt adopt {to_text(old)}"


def choose(path: bytes, old: bytes, stores: Iterable[tuple[bytes, Metadata | DomainError]]) -> Claim:
    """Give the store that is meant by a worktree's old path, or by its own.

    Raises DomainError: ``not_tracked`` where there is none, ``two_claimants`` where several are, ``bad_path`` for the
    directory's own.
    """
    usable = [(folder, metadata) for folder, metadata in stores if isinstance(metadata, Metadata)]
    found = [one for one in usable if old in (one[0], one[1].path)]
    if not found:
        raise DomainError(
            "not_tracked",
            f"there is no history of {to_text(old)}",
            hint="ckpt workspaces lists what there is",
            paths=(old,),
        )
    if any(metadata.path == path for _, metadata in found):
        raise DomainError("bad_path", f"{to_text(path)} has this history already", paths=(path,))
    if len(found) > 1:
        raise _two(f"{to_text(found[0][0])} and {to_text(found[1][0])} are both of {to_text(old)}", found[0][0])
    folder, metadata = found[0]
    proved = only_proved([claim for claim in claims_on(path, usable) if claim.folder == folder])
    return Claim(folder, metadata, proved is not None)


def refuse_second(path: bytes, claim: Claim, own: Store | None) -> None:
    """Make sure that nobody else has a right to the history, nor the directory to another.

    Raises DomainError ``two_claimants``.
    """
    old = claim.metadata.path
    if is_gone(old, path) is not True:
        raise DomainError(
            "two_claimants",
            f"{to_text(old)} is still there, so its history is not that of {to_text(path)}",
            hint=f"if it was moved to {to_text(path)}, remove or rename what is at {to_text(old)} now",
            paths=(path, old),
        )
    if own is not None and Refs(own[0]).checkpoint_names():
        raise DomainError(
            "two_claimants",
            f"{to_text(path)} has a history of its own, beside that of {to_text(old)}",
            hint=f"that of {to_text(old)} stays readable with ckpt -w {to_text(old)}; "
            f"ckpt -w {to_text(path)} forget deletes the other one, after which it can be adopted",
            paths=(path, old),
        )


def _two(message: str, folder: bytes) -> DomainError:
    return DomainError("two_claimants", message, hint=f"name the store that is meant: {_hint(folder)}")


def is_adopted(own: Store, old: bytes) -> bool:
    """Tell whether a worktree has the history that is asked for already."""
    folder, metadata = own
    return bool(metadata.former) and (old == folder or to_wire(old) == metadata.former[-1])


def answer_adopted(store: Store, old: bytes, path: bytes, *, sure: bool, dry_run: bool) -> AdoptResult:
    """Tell what was adopted, or would be."""
    return AdoptResult(
        path=to_wire(path),
        old=to_wire(old),
        store=to_wire(store[0]),
        checkpoints=len(Refs(store[0]).checkpoint_names()),
        sure=sure,
        dry_run=dry_run,
    )
