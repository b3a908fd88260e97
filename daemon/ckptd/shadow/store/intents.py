"""What a restore writes into the operation log before it acts."""

from collections.abc import Iterable
from functools import partial

import msgspec

from ckpt_protocol.structs import to_wire
from ckptd.shadow.record.oplog import Intent, Part, Pass, Verb
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.preparing import RestoreRequest
from ckptd.shadow.store.repository import Draft, Repository
from ckptd.shadow.trees.compare import same_state
from ckptd.shadow.trees.step import State, Step
from ckptd.shadow.trees.view import find_state

__all__ = ["intent_of", "new_intent"]


def new_intent(
    repo: Repository, verb: Verb, token: str, asker: Asker, *, after: str | None, undoes: int | None = None
) -> Intent:
    """Give the intent of an operation that changes no file; ``after`` is head afterwards."""
    return Intent(
        n=repo.log.next_number,
        verb=verb,
        time=repo.now(),
        token=token,
        client=asker.client,
        session=asker.session,
        next_seq=repo.log.next_seq,
        before=repo.head,
        after=after,
        undoes=undoes,
    )


def intent_of(
    repo: Repository, request: RestoreRequest, asker: Asker, draft: Draft | None = None, steps: Iterable[Step] = ()
) -> Intent:
    """Give the intent of a restore: a new one, or that of what was cut off with one more pass.

    ``draft`` is the safety checkpoint for the ``steps``, None where there are none.
    """
    steps = list(steps)
    begun, safety = request.begun, draft.id if draft is not None else None
    paths = tuple([to_wire(step.path) for step in steps])
    replace = partial(
        msgspec.structs.replace,
        target=request.target.checkpoint.id,
        next_seq=repo.log.next_seq if draft is None else draft.seq + 1,
    )
    if begun is None:
        fresh = new_intent(repo, request.verb, request.token, asker, undoes=request.undoes, after=request.head_after)
        return replace(fresh, safety=safety, paths=paths, parts=_parts(request, steps))
    ids = repo.lookup.ids()
    resumed = tuple(one for one in begun.resumed if one.safety in ids)
    if safety is not None:
        resumed += (Pass(safety=safety, paths=paths),)
    # A save in between has moved head; a restore that does not move it leaves it there.
    before = begun.before if begun.before != begun.after else repo.head
    return replace(begun, token=request.token, before=before, after=request.head_after, resumed=resumed)


def _parts(request: RestoreRequest, steps: Iterable[Step]) -> tuple[Part, ...]:
    """Give the paths that do not come from the target, by checkpoint: with the directories that come with them."""
    if not request.parts:
        return ()
    found: dict[str, list[bytes]] = {one: [] for one, _ in request.parts}
    for path, _, after in steps:
        own = next((one for one, paths in request.parts if path in paths), None)
        if own is None and path not in (request.paths or ()):
            own = _source_of(request, path, after)
        if own is not None:
            found[own].append(path)
    return tuple(Part(checkpoint=one, paths=tuple(map(to_wire, paths))) for one, paths in found.items() if paths)


def _source_of(request: RestoreRequest, path: bytes, after: State | None) -> str | None:
    """Find where a directory that has to be made comes from; None: from the target."""
    if same_state(find_state(request.target.root, path), after):
        return None
    roots = zip(request.parts, request.others, strict=True)
    return next((one for (one, _), (root, _) in roots if same_state(find_state(root, path), after)), None)
