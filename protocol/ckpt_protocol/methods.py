"""The table of methods: name, params, result, and whether it changes anything."""

from typing import Final, NamedTuple

from ckpt_protocol import checkpoint, daemon, discover, events, store, worktree
from ckpt_protocol.structs import Request, Result

__all__ = ["METHODS", "Method"]


class Method(NamedTuple):
    """One row. ``writes`` methods carry a token, so that a retried request is done once."""

    name: str
    params: type[Request]
    result: type[Result]
    writes: bool


_ROWS: Final = (
    Method("daemon.hello", daemon.HelloParams, daemon.HelloResult, False),
    Method("daemon.status", daemon.StatusParams, daemon.StatusResult, False),
    Method("daemon.stop", daemon.StopParams, daemon.StopResult, False),
    Method("rpc.discover", discover.DiscoverParams, discover.DiscoverResult, False),
    Method("worktree.open", worktree.OpenParams, worktree.OpenResult, True),
    Method("worktree.list", worktree.ListParams, worktree.ListResult, False),
    Method("worktree.status", worktree.StatusParams, worktree.StatusResult, False),
    Method("worktree.forget", worktree.ForgetParams, worktree.ForgetResult, True),
    Method("worktree.adopt", worktree.AdoptParams, worktree.AdoptResult, True),
    Method("worktree.watch", worktree.WatchParams, worktree.WatchResult, True),
    Method("worktree.resume", worktree.ResumeParams, checkpoint.RestoreResult, True),
    Method("checkpoint.save", checkpoint.SaveParams, checkpoint.SaveResult, True),
    Method("checkpoint.head", checkpoint.HeadParams, checkpoint.HeadResult, False),
    Method("checkpoint.list", checkpoint.ListParams, checkpoint.ListResult, False),
    Method("checkpoint.search", checkpoint.SearchParams, checkpoint.SearchResult, False),
    Method("checkpoint.show", checkpoint.ShowParams, checkpoint.ShowResult, False),
    Method("checkpoint.diff", checkpoint.DiffParams, checkpoint.DiffResult, False),
    Method("checkpoint.cat", checkpoint.CatParams, checkpoint.CatResult, False),
    Method("checkpoint.export", checkpoint.ExportParams, checkpoint.ExportResult, False),
    Method("checkpoint.restore", checkpoint.RestoreParams, checkpoint.RestoreResult, True),
    Method("checkpoint.undo", checkpoint.StepParams, checkpoint.RestoreResult, True),
    Method("checkpoint.redo", checkpoint.StepParams, checkpoint.RestoreResult, True),
    Method("checkpoint.tag", checkpoint.TagParams, checkpoint.TagResult, True),
    Method("checkpoint.untag", checkpoint.UntagParams, checkpoint.TagResult, True),
    Method("checkpoint.drop", checkpoint.DropParams, checkpoint.DropResult, True),
    Method("events.subscribe", events.SubscribeParams, events.SubscribeResult, False),
    Method("events.unsubscribe", events.UnsubscribeParams, events.UnsubscribeResult, False),
    Method("store.prune", store.PruneParams, store.PruneResult, True),
    Method("store.usage", store.UsageParams, store.UsageResult, False),
    Method("store.thin", store.ThinParams, store.ThinResult, True),
    Method("store.gc", store.GcParams, store.GcResult, True),
    Method("store.verify", store.VerifyParams, store.VerifyResult, False),
)

METHODS: Final = {row.name: row for row in _ROWS}
