"""Methods about the stores of a checkpoint directory."""

from ckpt_protocol.structs import Request, Result, Token, WirePath

__all__ = ["PruneParams", "PruneResult", "PrunedStore"]


class PruneParams(Request, frozen=True, kw_only=True):
    """``store.prune``: delete the stores of worktrees that are proved gone."""

    checkpoint_dir: WirePath
    token: Token
    dry_run: bool = False


class PrunedStore(Result, frozen=True, kw_only=True):
    """A store that was (or with ``dry_run`` would be) deleted."""

    path: WirePath
    store: WirePath
    checkpoints: int
    bytes: int


class PruneResult(Result, frozen=True, kw_only=True):
    """``unreachable`` are worktrees that cannot be seen now and whose stores stay."""

    pruned: list[PrunedStore]
    unreachable: list[WirePath]
    dry_run: bool
