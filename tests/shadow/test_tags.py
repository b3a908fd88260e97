"""Names of checkpoints: set, moved, removed; and never lost or given twice."""

import pytest

from ckpt_protocol.checkpoint import TagParams, TagResult, UntagParams
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from support.worktrees import Desk

pytestmark = pytest.mark.core


def tag(desk: Desk, checkpoint: str, name: str, **fields) -> TagResult:
    params = {**desk.common(), "token": desk.token(), "id": checkpoint, "name": name, **fields}
    return desk.writer.tag(TagParams(**params), Caller("test"))


def untag(desk: Desk, name: str, **fields) -> TagResult:
    params = {**desk.common(), "token": desk.token(), "name": name, **fields}
    return desk.writer.untag(UntagParams(**params), Caller("test"))


@pytest.fixture
def two(desk: Desk) -> Desk:
    for number in (1, 2):
        desk.write(b"f", b"%d" % number)
        desk.save()
    return desk


def tags(desk: Desk) -> dict[int, list[str]]:
    return {one.seq: one.tags for one in desk.list().checkpoints}


def test_a_tag_works_wherever_an_id_does(two):
    first = two.list().checkpoints[-1].id
    assert tag(two, "#1", "good/one") == TagResult(name="good/one", id=first, before=None)
    assert tags(two) == {1: ["good/one"], 2: []}
    assert two.cat("good/one", b"f") == b"1"
    two.reopen()
    assert tags(two) == {1: ["good/one"], 2: []}
    assert two.git("rev-parse", "refs/tags/good/one").decode().strip() == first


def test_a_name_is_taken_only_by_moving_it(two):
    tag(two, "#1", "good")
    assert tag(two, "#1", "good").before == tag(two, "#1", "good").id
    with pytest.raises(DomainError) as caught:
        tag(two, "#2", "good")
    assert caught.value.kind == "tag_exists"
    moved = tag(two, "#2", "good", move=True)
    assert (moved.before, moved.id) == (two.list().checkpoints[-1].id, two.head())
    assert tags(two) == {1: [], 2: ["good"]}


@pytest.mark.parametrize("name", ["", "HEAD", "@x", "abcd", "a..b", "-a", "a b", "x.lock", "a/", "\ud800"])
def test_what_is_no_name(two, name):
    with pytest.raises(DomainError) as caught:
        tag(two, "#1", name, move=True)
    assert caught.value.kind == "bad_tag"


def test_a_name_is_no_folder_of_other_names(two):
    tag(two, "#1", "good/one")
    for name in ("good", "good/one/more"):
        with pytest.raises(DomainError) as caught:
            tag(two, "#1", name, move=True)
        assert caught.value.kind == "tag_exists"


@pytest.mark.parametrize("packed", [False, True])
def test_untag(two, packed):
    tag(two, "#1", "good")
    if packed:
        two.close()
        two.git("pack-refs", "--all")
    token = two.token()
    first = untag(two, "good", token=token)
    assert first.before == two.list().checkpoints[-1].id
    assert untag(two, "good", token=token) == first
    assert tags(two) == {1: [], 2: []}
    with pytest.raises(DomainError) as caught:
        untag(two, "good")
    assert caught.value.kind == "unknown_tag"
    two.reopen()
    assert untag(two, "good", token=token) == first


def test_tags_change_neither_head_nor_what_can_be_undone(two):
    two.reset("#1")
    head = two.head()
    tag(two, "#2", "good")
    untag(two, "good")
    two.reopen()
    assert two.head() == head
    two.undo()
    assert two.head() == two.list(kind="manual").checkpoints[0].id
