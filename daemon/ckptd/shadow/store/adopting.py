"""Making a checkpoint of 0.3.6 one of ours, so that nothing that is done with it depends on the old folder."""

import os
from collections.abc import Iterable

from ckptd.errors import DomainError
from ckptd.shadow.objects.pack import PackWriter
from ckptd.shadow.record.info import Info, OutsideRules, write_info_tree
from ckptd.shadow.record.legacy import LegacyDirectory, LegacyObjects
from ckptd.shadow.record.lookup import Loaded
from ckptd.shadow.record.oplog import Intent, Outcome
from ckptd.shadow.scan.exclusion import Exclusion
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.repository import Draft, Repository
from ckptd.shadow.trees.tree import DIRECTORY, TreeEntry, format_tree
from ckptd.shadow.trees.view import UNRECORDED

__all__ = ["copy_legacy", "look_closer"]


def look_closer(repo: Repository, source: LegacyObjects, target: Loaded) -> Loaded:
    """Give an old checkpoint with what a restore has to know of it; nothing is written.

    Raises DomainError where one of its trees cannot be read, or holds what must not be restored.
    """
    return target._replace(info=_info(repo, source.directories(target.checkpoint.tree)))


def copy_legacy(repo: Repository, source: LegacyObjects, target: Loaded, asker: Asker) -> Loaded:
    """Make a checkpoint of ours with content and message of an old one, durably; head stays, where there is one.

    Raises DomainError where anything of it cannot be read, or the disk refuses; then nothing has come of it.
    """
    old = target.checkpoint
    pack = repo.objects.writer()
    try:
        directories = list(source.directories(old.tree))
        info = _info(repo, directories)
        draft = repo.draft(
            pack,
            (_copy(source, directories, repo, pack, asker), UNRECORDED),
            write_info_tree(pack, info),
            old.text,
            kind="manual",
            complete=True,
            client=asker.client,
            meta={"legacy": old.id},
        )
        _publish(repo, draft, pack, old.id, asker)
    finally:
        pack.abort()
    return repo.lookup.open(draft.id)


def _info(repo: Repository, directories: Iterable[LegacyDirectory]) -> Info:
    """Say what 0.3.6 left out: submodules, and what the rules of its time ignored. It recorded no permissions."""
    submodules = [
        Exclusion(here.path + b"/" + name if here.path else name, "submodule", "0.3.6 did not store what is in it")
        for here in directories
        for name in here.submodules
    ]
    return Info([], sorted(submodules), OutsideRules(global_excludes=repo.global_excludes()), UNRECORDED)


def _copy(
    source: LegacyObjects, directories: list[LegacyDirectory], repo: Repository, pack: PackWriter, asker: Asker
) -> bytes:
    """Write whatever the store lacks of a tree; give the tree's id, which is another where it held a submodule."""
    made: dict[bytes, bytes] = {}
    done: set[bytes] = set()
    # From the innermost outwards: a tree names those in it.
    for path, entries, _ in reversed(directories):
        start = path + b"/" if path else b""
        for name, entry in entries.items():
            if entry.mode == DIRECTORY:
                entries[name] = TreeEntry(DIRECTORY, made[start + name])
            elif entry.oid not in done and entry.oid not in repo.objects:
                if asker.is_cancelled():
                    raise DomainError("cancelled", "the restore was cancelled; nothing was changed")
                pack.add_stream(source.size(entry.oid), source.chunks(entry.oid))
            done.add(entry.oid)
        made[path] = pack.add(b"tree", format_tree(entries))
    return made[b""]


def _publish(repo: Repository, draft: Draft, pack: PackWriter, old_id: str, asker: Asker) -> None:
    intent = Intent(
        n=repo.log.next_number,
        verb="save",
        time=repo.now(),
        # Not the request's own: that is answered by the restore that follows.
        token=os.urandom(16).hex(),
        client=asker.client,
        session=asker.session,
        next_seq=draft.seq + 1,
        before=repo.head,
        # A rollback moves no head; but a store with a checkpoint has one.
        after=repo.head or draft.id,
        id=draft.id,
    )
    record = repo.record(intent, draft, pack)
    try:
        repo.publish(record)
        repo.refs.write_copy(old_id, draft.id.encode())
        repo.log.write(Outcome(n=intent.n), durable=False)
    except DomainError:
        repo.withdraw(draft, intent.n)
        raise
    repo.set_head(intent.after)
