"""One request and one reply of every method, once with every field filled and once with as little as allowed.

``python tests/support/wire_samples.py`` writes the golden files that are missing. It never changes one that is there:
what version 1 of the wire looks like is decided, and a test that disagrees with a golden file is right.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from ckpt_protocol import checkpoint, daemon, discover, events, store, worktree
from ckpt_protocol.envelope import Call, Failure, Notification, Success, failure
from ckpt_protocol.errors import BY_KIND
from ckpt_protocol.structs import (
    Change,
    CheckpointRecord,
    Chunk,
    LeftOut,
    PathB64,
    Renamed,
    Request,
    Result,
    Stats,
    Worktree,
)

__all__ = ["DATA", "MESSAGES", "NOTICES", "SAMPLES", "Sample", "golden_path"]

DATA = Path(__file__).parents[1] / "protocol" / "data" / "v1"


class Sample(NamedTuple):
    """The params and the results of one method.

    ``later_params`` and ``later_result`` have every field filled where some have come after the golden files.
    """

    params: Request
    least_params: Request
    result: Result
    least_result: Result
    later_params: Request | None = None
    later_result: Result | None = None

    def fullest(self) -> tuple[Request, Result]:
        """The samples with every field that there is today; a deadline every request can have."""
        params = msgspec.structs.replace(self.later_params or self.params, deadline_s=1.5)
        return params, self.later_result or self.result


ID = "0123456789abcdef0123456789abcdef01234567"
SAFETY = "89abcdef0123456789abcdef0123456789abcdef"
TOKEN = "000102030405060708090a0b0c0d0e0f"
ODD = PathB64(b64="Y2Fm6Q==")  # "café" in Latin-1
HOME = "/home/u/.fabricatio-checkpoint"
STORE = f"{HOME}/project_0123456789abcdef"
WHOLE = Worktree(path="/home/u/project", dev="64769", ino="18446744073709551615")
GONE = Worktree(path=PathB64(b64="L2hvbWUvdS9jYWbp"))
RECORD = CheckpointRecord(
    id=ID,
    seq=42,
    time="2026-11-30T19:45:00Z",
    kind="manual",
    message='before "refactor"\n\nsecond paragraph: é, \u2028, 😀',
    tags=["good", "v1"],
    meta={"model": "m", "cost": "0.02"},
    complete=False,
    scan="watched",
    base=SAFETY,
    client="ckpt/1.0.0",
    legacy=True,
)
LEAST_RECORD = CheckpointRecord(
    id=ID, seq=1, time="1970-01-01T00:00:00Z", kind="auto", message=None, tags=[], meta={}, complete=True
)
CHANGES = [
    Change(path="a b/new.txt", change="added"),
    Change(path=ODD, change="modified"),
    Change(path="dir/empty", change="deleted", dir=True),
    Change(path="link", change="type"),
    Change(path="run.sh", change="mode"),
]
SKIPPED = [LeftOut(path=ODD, reason="unreadable", detail="Permission denied")]
EXCLUDED = [LeftOut(path="big.bin", reason="large"), LeftOut(path="pipe", reason="special")]
WATCHER = worktree.Watcher(
    state="degraded",
    reason="3 directories are not watched: names that are not UTF-8 cannot be watched",
    quiet_s=2.0,
    max_wait_s=30.0,
    directories=12,
    seen=7,
    saved=3,
    failed=2,
    rescans=4,
    missed=1,
    rebuilt=5,
    failure=worktree.WatchFailure(
        kind="no_space", message="cannot write the pack", time="2026-11-30T19:45:00Z", retry_in_s=8.0
    ),
)
SCANS = worktree.Scans(
    watching=True,
    watched=40,
    full=3,
    missed=1,
    fall_backs=[worktree.FallBack(kind="overflow", count=2, reason="too many events at once")],
)
PLACE = {"checkpoint_dir": HOME, "worktree": WHOLE}
LEAST_PLACE = {"checkpoint_dir": PathB64(b64="L3Nycy//"), "worktree": GONE}
TOKENED = {**PLACE, "token": TOKEN}
LEAST_TOKENED = {**LEAST_PLACE, "token": TOKEN}

RESTORED = checkpoint.RestoreResult(
    target=ID,
    written=["a b/new.txt", ODD],
    deleted=["old"],
    kept=["ignored.log"],
    conflicts=[LeftOut(path="pipe", reason="special", detail="a FIFO is in the way")],
    edited=["src/main.py"],
    safety=SAFETY,
    head=ID,
    digest="f" * 64,
    weak=True,
    dry_run=True,
    notes=["head is an autosave"],
)
WORK = Stats(
    files_opened=1, bytes_hashed=4096, directories_listed=5000, objects_written=5, packs_written=1, files_written=3
)
RESTORED_LATER = msgspec.structs.replace(RESTORED, stats=WORK)
NOTHING_RESTORED = checkpoint.RestoreResult(
    target=None,
    written=[],
    deleted=[],
    kept=[],
    conflicts=[],
    edited=[],
    safety=None,
    head=None,
    digest="0" * 64,
    weak=False,
    dry_run=False,
)
EXPECTED = {
    "expect_head": "#41",
    "expect": [checkpoint.Expected(path="src/main.py", oid=ID), checkpoint.Expected(path=ODD, oid="absent")],
}
STEP_PARAMS = {**TOKENED, "dry_run": True, "digest": "f" * 64, "skip_conflicts": True}
STEP = Sample(
    checkpoint.StepParams(**STEP_PARAMS),
    checkpoint.StepParams(**LEAST_TOKENED),
    RESTORED,
    NOTHING_RESTORED,
    later_result=RESTORED_LATER,
    later_params=checkpoint.StepParams(**STEP_PARAMS, **EXPECTED, session="s1", whole_session=True),
)
SAVE_PARAMS = {
    **TOKENED,
    "message": "before refactor é",
    "kind": "auto",
    "tag": "good",
    "meta": {"model": "m"},
    "full": True,
    "rehash": True,
    "force": True,
}
RESTORE_PARAMS = {**STEP_PARAMS, "id": ID, "paths": ["src", ODD], "delete": True, "recreate": True}

SAMPLES: dict[str, Sample] = {
    "daemon.hello": Sample(
        daemon.HelloParams(protocol=1, build="1.0.0", client="ckpt", session="s1"),
        daemon.HelloParams(protocol=1, build="1.0.0", client=""),
        daemon.HelloResult(protocol=1, build="1.0.0", pid=4711, capabilities=["checkpoint.save", "daemon.hello"]),
        daemon.HelloResult(protocol=1, build="1.0.0", pid=1, capabilities=[]),
        later_params=daemon.HelloParams(
            protocol=1, build="1.0.0", client="ckpt", session="s1", capabilities=["progress"]
        ),
    ),
    "daemon.status": Sample(
        daemon.StatusParams(),
        daemon.StatusParams(),
        daemon.StatusResult(
            pid=4711,
            version="1.0.0",
            protocol=1,
            socket="/run/user/1000/fabricatio-checkpoint/ckptd.sock",
            uptime_s=12.5,
            connections=2,
            stores=[daemon.OpenStore(worktree=ODD, store=STORE, state="IDLE", queued=3)],
        ),
        daemon.StatusResult(pid=1, version="1.0.0", protocol=1, socket="/s", uptime_s=0.0, connections=0, stores=[]),
    ),
    "daemon.stop": Sample(
        daemon.StopParams(if_idle=True),
        daemon.StopParams(),
        daemon.StopResult(pid=4711, stopping=False),
        daemon.StopResult(pid=1),
    ),
    "rpc.discover": Sample(
        discover.DiscoverParams(),
        discover.DiscoverParams(),
        discover.DiscoverResult(
            openrpc="1.3.2",
            info={"title": "ckptd", "version": "1.0.0"},
            methods=[{"name": "daemon.stop", "params": [{"name": "if_idle", "schema": {"type": "boolean"}}]}],
            components={"schemas": {"Chunk": {"type": "object"}}, "errors": {"stopping": {"code": 4002}}},
        ),
        discover.DiscoverResult(openrpc="1.3.2", info={}, methods=[], components={}),
    ),
    "worktree.open": Sample(
        worktree.OpenParams(**TOKENED, force=True),
        worktree.OpenParams(**LEAST_TOKENED),
        worktree.OpenResult(store=STORE, created=False, head=ID),
        worktree.OpenResult(store=STORE, created=True, head=None),
    ),
    "worktree.list": Sample(
        worktree.ListParams(checkpoint_dir=HOME),
        worktree.ListParams(checkpoint_dir=PathB64(b64="L3Nycy//")),
        worktree.ListResult(
            workspaces=[
                worktree.Workspace(path="/home/u/project", store=STORE, state="ok", checkpoints=42, bytes=123456),
                worktree.Workspace(path="/gone", store=f"{HOME}/gone_1", state="missing", checkpoints=0, bytes=0),
                worktree.Workspace(
                    path="/media/x", store=f"{HOME}/x_2", state="unreachable", checkpoints=1, bytes=2**40
                ),
            ],
            damaged=[ODD],
        ),
        worktree.ListResult(workspaces=[], damaged=[]),
    ),
    "worktree.status": Sample(
        worktree.StatusParams(**PLACE),
        worktree.StatusParams(**LEAST_PLACE),
        worktree.StatusResult(
            head=ID,
            head_record=RECORD,
            last_manual=LEAST_RECORD,
            changes=CHANGES,
            skipped=SKIPPED,
            excluded=EXCLUDED,
            files=10000,
            state="HALTED",
            halted="worktree_empty",
            interrupted=SAFETY,
        ),
        worktree.StatusResult(
            head=None,
            head_record=None,
            last_manual=None,
            changes=[],
            skipped=[],
            excluded=[],
            files=0,
            state="IDLE",
            halted=None,
            interrupted=None,
        ),
        later_result=worktree.StatusResult(
            head=ID,
            head_record=RECORD,
            last_manual=LEAST_RECORD,
            changes=CHANGES,
            skipped=SKIPPED,
            excluded=EXCLUDED,
            files=10000,
            state="HALTED",
            halted="worktree_empty",
            interrupted=SAFETY,
            interruption=worktree.Interruption(
                verb="reset",
                time="2026-11-30T19:45:00Z",
                client="ckpt",
                session="s1",
                target=ID,
                safety=SAFETY,
                before=3,
                after=2,
                other=1,
                others=["src/main.py"],
            ),
            watcher=WATCHER,
            notes=["what is left takes 4294967296 bytes"],
            scans=SCANS,
        ),
    ),
    "worktree.forget": Sample(
        worktree.ForgetParams(**TOKENED),
        worktree.ForgetParams(**LEAST_TOKENED),
        worktree.ForgetResult(store=STORE, checkpoints=42),
        worktree.ForgetResult(store=ODD, checkpoints=0),
    ),
    "worktree.adopt": Sample(
        worktree.AdoptParams(**TOKENED, old="/home/u/before", force=True, dry_run=True),
        worktree.AdoptParams(**LEAST_TOKENED, old=ODD),
        worktree.AdoptResult(
            path="/home/u/project", old="/home/u/before", store=STORE, checkpoints=42, sure=True, dry_run=True
        ),
        worktree.AdoptResult(path=ODD, old=ODD, store=ODD, checkpoints=0, sure=False, dry_run=False),
    ),
    "worktree.watch": Sample(
        worktree.WatchParams(**TOKENED, action="on", force=True),
        worktree.WatchParams(**LEAST_TOKENED, action="status"),
        worktree.WatchResult(
            watcher=WATCHER,
            state="HALTED",
            halted="worktree_replaced",
            reboot=worktree.WatchReboot(unit=True, enabled=True, linger=True),
        ),
        worktree.WatchResult(
            watcher=worktree.Watcher(
                state="off",
                reason=None,
                quiet_s=2.0,
                max_wait_s=30.0,
                directories=0,
                seen=0,
                saved=0,
                failed=0,
                rescans=0,
                missed=0,
                rebuilt=0,
                failure=None,
            ),
            state="IDLE",
            halted=None,
            reboot=worktree.WatchReboot(unit=False, enabled=False, linger=False),
        ),
        later_result=worktree.WatchResult(
            watcher=WATCHER,
            state="HALTED",
            halted="worktree_replaced",
            reboot=worktree.WatchReboot(unit=True, enabled=True, linger=True),
            scans=SCANS,
        ),
    ),
    "worktree.resume": Sample(
        worktree.ResumeParams(**TOKENED, action="finish", dry_run=True, digest="f" * 64, skip_conflicts=True),
        worktree.ResumeParams(**LEAST_TOKENED, action="undo"),
        RESTORED,
        NOTHING_RESTORED,
        later_result=RESTORED_LATER,
    ),
    "checkpoint.save": Sample(
        checkpoint.SaveParams(**SAVE_PARAMS),
        checkpoint.SaveParams(**LEAST_TOKENED),
        checkpoint.SaveResult(
            id=ID,
            seq=42,
            created=True,
            complete=False,
            skipped=SKIPPED,
            excluded=EXCLUDED,
            files=10000,
            notes=["the message was not used"],
        ),
        checkpoint.SaveResult(id=ID, seq=1, created=False, complete=True, skipped=[], excluded=[], files=0),
        later_result=checkpoint.SaveResult(
            id=ID,
            seq=42,
            created=True,
            complete=False,
            skipped=SKIPPED,
            excluded=EXCLUDED,
            files=10000,
            notes=["the message was not used"],
            stats=WORK,
        ),
        later_params=checkpoint.SaveParams(**SAVE_PARAMS, **EXPECTED, late_after_s=2.5),
    ),
    "checkpoint.head": Sample(
        checkpoint.HeadParams(**PLACE),
        checkpoint.HeadParams(**LEAST_PLACE),
        checkpoint.HeadResult(id=ID),
        checkpoint.HeadResult(id=ID),
    ),
    "checkpoint.list": Sample(
        checkpoint.ListParams(
            **PLACE, limit=50, before_seq=42, kind="safety", meta={"model": "m"}, paths=["src/main.py", ODD]
        ),
        checkpoint.ListParams(**LEAST_PLACE),
        checkpoint.ListResult(checkpoints=[RECORD, LEAST_RECORD], head=ID, more=True, damaged=1),
        checkpoint.ListResult(checkpoints=[], head=None, more=False),
        later_params=checkpoint.ListParams(
            **PLACE,
            limit=50,
            before_seq=42,
            kind="safety",
            meta={"model": "m"},
            paths=["src/main.py", ODD],
            follow=["old/main.py", ODD],
        ),
        later_result=checkpoint.ListResult(
            checkpoints=[msgspec.structs.replace(RECORD, renames=[Renamed(path="src/main.py", renamed_from=ODD)])],
            head=ID,
            more=True,
            damaged=1,
            followed=["old/main.py", ODD],
        ),
    ),
    "checkpoint.search": Sample(
        checkpoint.SearchParams(
            **PLACE,
            text="TODO é",
            ignore_case=True,
            limit=50,
            before_seq=42,
            kind="auto",
            meta={"model": "m"},
            paths=["src", ODD],
        ),
        checkpoint.SearchParams(**LEAST_PLACE, text=ODD),
        checkpoint.SearchResult(
            hits=[
                checkpoint.SearchHit(
                    checkpoint=RECORD,
                    paths=[
                        checkpoint.Occurrences(path=ODD, before=0, after=2),
                        checkpoint.Occurrences(path="src/main.py", before=3, after=1),
                    ],
                    left_out=7,
                ),
                checkpoint.SearchHit(checkpoint=LEAST_RECORD, paths=[]),
            ],
            head=ID,
            next_seq=17,
            searched=25,
            damaged=1,
            unread=2,
        ),
        checkpoint.SearchResult(hits=[], head=None, next_seq=None, searched=0),
    ),
    "checkpoint.show": Sample(
        checkpoint.ShowParams(**PLACE, id="HEAD~1"),
        checkpoint.ShowParams(**LEAST_PLACE, id="0123"),
        checkpoint.ShowResult(checkpoint=RECORD, base=SAFETY, changes=CHANGES, skipped=SKIPPED, excluded=EXCLUDED),
        checkpoint.ShowResult(checkpoint=LEAST_RECORD, base=None, changes=[], skipped=[], excluded=[]),
    ),
    "checkpoint.diff": Sample(
        checkpoint.DiffParams(
            **PLACE,
            from_id="#41",
            to_id=ID,
            paths=["src", ODD],
            format="stat",
            context_lines=0,
            cursor="c1",
            offset=65536,
        ),
        checkpoint.DiffParams(**LEAST_PLACE),
        checkpoint.DiffResult(data=Chunk(b64="/wD+"), offset=65536, total_bytes=65539, cursor="c1"),
        checkpoint.DiffResult(data=Chunk(b64=""), offset=0, total_bytes=0, cursor=None),
        later_result=checkpoint.DiffResult(
            data=Chunk(b64="/wD+"), offset=0, total_bytes=65539, cursor="c1", notes=["big is larger than 16 MiB"]
        ),
    ),
    "checkpoint.cat": Sample(
        checkpoint.CatParams(**PLACE, id=ID, path=ODD, offset=1048576, length=1),
        checkpoint.CatParams(**LEAST_PLACE, id="HEAD", path="a"),
        checkpoint.CatResult(data=Chunk(b64="/wD+"), offset=1048576, total_bytes=1048579, mode="100755", id=ID),
        checkpoint.CatResult(data=Chunk(b64=""), offset=0, total_bytes=0, mode="120000", id=ID),
    ),
    "checkpoint.restore": Sample(
        checkpoint.RestoreParams(**RESTORE_PARAMS),
        checkpoint.RestoreParams(**LEAST_TOKENED),
        RESTORED,
        NOTHING_RESTORED,
        later_result=RESTORED_LATER,
        later_params=checkpoint.RestoreParams(**RESTORE_PARAMS, **EXPECTED),
    ),
    "checkpoint.undo": STEP,
    "checkpoint.redo": STEP,
    "checkpoint.tag": Sample(
        checkpoint.TagParams(**TOKENED, id="HEAD", name="good/é", move=True),
        checkpoint.TagParams(**LEAST_TOKENED, id="0123", name="v1"),
        checkpoint.TagResult(name="good/é", id=ID, before=SAFETY),
        checkpoint.TagResult(name="v1", id=ID, before=None),
    ),
    "checkpoint.untag": Sample(
        checkpoint.UntagParams(**TOKENED, name="good/é"),
        checkpoint.UntagParams(**LEAST_TOKENED, name="v1"),
        checkpoint.TagResult(name="good/é", id=None, before=ID),
        checkpoint.TagResult(name="v1", id=None, before=ID),
    ),
    "checkpoint.drop": Sample(
        checkpoint.DropParams(**TOKENED, ids=["#41", ID], dry_run=True, force=True),
        checkpoint.DropParams(**LEAST_TOKENED, ids=["0123"]),
        checkpoint.DropResult(
            dropped=[
                checkpoint.DroppedCheckpoint(id=ID, seq=42, kind="manual", tags=["good"]),
                checkpoint.DroppedCheckpoint(id=SAFETY, seq=43, kind=None, tags=[]),
            ],
            head=SAFETY,
            files=2,
            held=[checkpoint.HoldingCheckpoint(id=SAFETY, seq=44, files=1)],
            all_searched=False,
            dry_run=True,
            notes=["the reset can no longer be undone"],
        ),
        checkpoint.DropResult(dropped=[], head=None, files=0, held=[], all_searched=True, dry_run=False),
    ),
    "events.subscribe": Sample(
        events.SubscribeParams(
            checkpoint_dir=HOME,
            worktree=Worktree(path=ODD, dev="1", ino="2"),
            kinds=["checkpoint.created", "store.pruned"],
            limit=10,
        ),
        events.SubscribeParams(),
        events.SubscribeResult(subscription=3, seq=12),
        events.SubscribeResult(subscription=1, seq=0),
    ),
    "events.unsubscribe": Sample(
        events.UnsubscribeParams(subscription=3),
        events.UnsubscribeParams(subscription=1),
        events.UnsubscribeResult(known=True),
        events.UnsubscribeResult(known=False),
    ),
    "store.prune": Sample(
        store.PruneParams(checkpoint_dir=HOME, token=TOKEN, dry_run=True),
        store.PruneParams(checkpoint_dir=PathB64(b64="L3Nycy//"), token=TOKEN),
        store.PruneResult(
            pruned=[store.PrunedStore(path="/gone", store=f"{HOME}/gone_1", checkpoints=3, bytes=4096)],
            unreachable=["/media/x", ODD],
            dry_run=True,
        ),
        store.PruneResult(pruned=[], unreachable=[], dry_run=False),
    ),
    "store.usage": Sample(
        store.UsageParams(checkpoint_dir=HOME, worktree=WHOLE),
        store.UsageParams(checkpoint_dir=PathB64(b64="L3Nycy//")),
        store.UsageResult(
            stores=[
                store.StoreUsage(
                    path="/home/u/project",
                    store=STORE,
                    state="ok",
                    bytes=123456,
                    manual=3,
                    auto=40,
                    safety=2,
                    unreadable=1,
                    tags=1,
                    newest="2026-11-30T19:45:00Z",
                ),
                store.StoreUsage(
                    path=ODD,
                    store=STORE,
                    state="missing",
                    bytes=0,
                    manual=0,
                    auto=0,
                    safety=0,
                    unreadable=0,
                    tags=0,
                    newest=None,
                ),
            ],
            bytes=123456,
            max_store_bytes=2**31,
            damaged=[ODD],
        ),
        store.UsageResult(stores=[], bytes=0, max_store_bytes=0, damaged=[]),
        later_result=store.UsageResult(
            stores=[
                store.StoreUsage(
                    path="/home/u/project",
                    store=STORE,
                    state="ok",
                    bytes=123456,
                    manual=3,
                    auto=40,
                    safety=2,
                    unreadable=1,
                    tags=1,
                    newest="2026-11-30T19:45:00Z",
                    watcher="active",
                    files=1200,
                    thinning_frees=4096,
                )
            ],
            bytes=123456,
            max_store_bytes=2**31,
            damaged=[],
        ),
    ),
    "store.thin": Sample(
        store.ThinParams(**TOKENED, dry_run=True),
        store.ThinParams(**LEAST_TOKENED),
        store.ThinResult(
            dropped=[checkpoint.DroppedCheckpoint(id=ID, seq=42, kind="auto", tags=[])],
            frees_bytes=4096,
            left_bytes=2**32,
            over_cap=True,
            dry_run=True,
            notes=["what is left takes 4294967296 bytes"],
        ),
        store.ThinResult(dropped=[], frees_bytes=0, left_bytes=0, over_cap=False, dry_run=False, notes=[]),
    ),
    "store.gc": Sample(
        store.GcParams(**TOKENED, dry_run=True),
        store.GcParams(**LEAST_TOKENED),
        store.GcResult(
            bytes_before=123456,
            bytes_after=23456,
            packs_before=12,
            packs_after=1,
            objects_removed=7,
            removed_bytes=100000,
            refs_packed=40,
            all_kept=True,
            dry_run=True,
            notes=["pack-0 is left as it is"],
        ),
        store.GcResult(
            bytes_before=0,
            bytes_after=0,
            packs_before=0,
            packs_after=0,
            objects_removed=0,
            removed_bytes=0,
            refs_packed=0,
            all_kept=False,
            dry_run=False,
            notes=[],
        ),
    ),
    "checkpoint.export": Sample(
        checkpoint.ExportParams(**PLACE, id="HEAD~1", destination="/home/u/old.tar", paths=["a b/x", ODD]),
        checkpoint.ExportParams(**LEAST_PLACE, id="HEAD", destination="/tmp/x"),
        checkpoint.ExportResult(id=ID, destination="/home/u/old.tar", files=2, bytes=1234),
        checkpoint.ExportResult(id=ID, destination="/tmp/x", files=0, bytes=0),
    ),
    "store.verify": Sample(
        store.VerifyParams(**PLACE, read_data=True),
        store.VerifyParams(**LEAST_PLACE),
        store.VerifyResult(
            clean=False,
            read_data=True,
            checkpoints=42,
            objects=1234,
            packs=3,
            bytes=56789,
            affected=[
                store.AffectedCheckpoint(id=ID, seq=42, readable=False, paths=2),
                store.AffectedCheckpoint(id=None, seq=41),
            ],
            damaged=[
                store.DamagedObject(
                    id=SAFETY, kind="blob", missing=True, seqs=[42], seq_count=1, paths=["a b/x", ODD], path_count=2
                )
            ],
            damaged_count=1,
            listed_most=20,
            files=[store.DamagedFile(path="objects/pack/pack-0.pack", problem="it is cut")],
            notes=["HEAD: damaged"],
        ),
        store.VerifyResult(
            clean=True,
            read_data=False,
            checkpoints=0,
            objects=0,
            packs=0,
            bytes=0,
            affected=[],
            damaged=[],
            damaged_count=0,
            listed_most=20,
            files=[],
            notes=[],
        ),
    ),
}


def _request(method: str, params: Request, request_id: str | int) -> Call:
    return Call(jsonrpc="2.0", method=method, params=msgspec.Raw(msgspec.json.encode(params)), id=request_id)


def _reply(result: Result, request_id: str | int) -> Success:
    return Success(result=msgspec.Raw(msgspec.json.encode(result)), id=request_id)


def _error(kind: str) -> Failure:
    return failure(7, kind, "what is wrong, and where", hint="what to do", paths=["a", ODD], error_id="e-1")


def _notice(method: str, params: Result) -> Notification:
    return Notification(method=method, params=msgspec.Raw(msgspec.json.encode(params)))


NOTICES = {
    "notice.event": _notice(
        events.EVENT,
        events.Event(
            subscription=3,
            seq=12,
            time="2026-11-30T10:00:00.000001Z",
            kind="checkpoint.created",
            checkpoint_dir=HOME,
            worktree=ODD,
            data={"id": ID, "seq": 7, "complete": True, "automatic": False},
            lost=True,
            missed=5,
        ),
    ),
    "notice.progress": _notice(
        events.PROGRESS, events.Progress(id="a", phase="hash", done=256, total=0, bytes=1048576)
    ),
}
"""What the daemon says unasked."""


def _messages() -> dict[str, Call | Success | Failure | Notification]:
    made: dict[str, Call | Success | Failure | Notification] = {**NOTICES}
    for method, sample in SAMPLES.items():
        made[f"{method}.request"] = _request(method, sample.params, 7)
        made[f"{method}.request.least"] = _request(method, sample.least_params, "id")
        made[f"{method}.reply"] = _reply(sample.result, 7)
        made[f"{method}.reply.least"] = _reply(sample.least_result, "id")
    made.update({f"error.{kind}": _error(kind) for kind in BY_KIND})
    made["error.least"] = failure(None, "parse_error", "not JSON")
    return made


MESSAGES = _messages()
"""Whole messages by the name of their golden file."""


def golden_path(name: str) -> Path:
    """The golden file of one message: exactly the frame, line end included."""
    return DATA / f"{name}.json"


def _write_missing() -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    for name, message in MESSAGES.items():
        if not golden_path(name).exists():
            golden_path(name).write_bytes(msgspec.json.encode(message) + b"\n")
            print(f"written: {name}", file=sys.stderr)


if __name__ == "__main__":
    _write_missing()
