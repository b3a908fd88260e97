"""Which meaning of a checkpoint's name comes first, and which names a tag may have."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pytest
from hypothesis import example, given
from hypothesis import settings as effort_settings
from hypothesis import strategies as st

from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import EMPTY_TREE
from ckptd.shadow.record.checkpoint import Checkpoint
from ckptd.shadow.record.message import Facts
from ckptd.shadow.record.resolve import Names, check_tag, resolve
from support.effort import examples
from support.worktrees import GIT_ENVIRON, Desk

pytestmark = pytest.mark.core

A, B, C, D, E = (digit * 4 + f"{number:036x}" for number, digit in enumerate("abbcd", 1))
KINDS = {1: "manual", 2: "auto", 3: "safety", 4: "manual", 5: "safety"}
BY_SEQ = MappingProxyType({1: A, 2: B, 3: C, 4: D, 5: E})
NOON = 1_800_000_000


def load(checkpoint_id: str) -> Checkpoint:
    seq = next(number for number, one in BY_SEQ.items() if one == checkpoint_id)
    return Checkpoint(checkpoint_id, EMPTY_TREE, NOON + 3600 * seq, None, Facts(seq, KINDS[seq]))


def names(tags: Mapping[str, str] = MappingProxyType({}), head: str | None = D) -> Names:
    return Names(BY_SEQ, frozenset(BY_SEQ.values()), tags, head, load)


def refused(text: str, where: Names) -> str:
    with pytest.raises(DomainError) as caught:
        resolve(text, where)
    return caught.value.kind


def test_the_first_meaning_wins():
    # A full id before a tag of that name, should there be one that another program has made.
    assert resolve(A, names({A: B})) == A
    for text in ("aaaa", "#1", "HEAD", "HEAD~1", "@{2027-01-15 20:00}"):
        assert resolve(text, names({text: C})) == C
    assert resolve("cccc", names()) == D
    # A tag of what has been dropped stands for nothing, and hides nothing.
    assert refused("old", names({"old": "f" * 40})) == "unknown_checkpoint"
    assert resolve("aaaa", names({"aaaa": "f" * 40})) == A


def test_steps_before_head_pass_over_safety_checkpoints():
    found = [resolve(text, names()) for text in ("HEAD", "HEAD~0", "HEAD~", "HEAD~1", "HEAD~2")]
    assert found == [D, D, B, B, A]
    assert refused("HEAD~3", names()) == "unknown_checkpoint"
    assert refused("HEAD~9", names(head=None)) == "no_checkpoint"


def test_a_prefix_of_two_is_ambiguous():
    with pytest.raises(DomainError, match=r"^ambiguous_id: bbbb stands for 2 checkpoints: bbbb.*, bbbb"):
        resolve("bbbb", names())
    assert refused(B[:-1], names()) == "ambiguous_id"
    assert resolve(A[:-1], names()) == A
    assert refused("bbb", names()) == "unknown_checkpoint"


@pytest.fixture
def _zone() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "XXX-02:00"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("_zone")
def test_the_newest_at_a_time():
    # Checkpoint N was made N hours after ten o'clock here, which is eight o'clock UTC.
    assert time.strftime("%Y-%m-%d %H:%M", time.localtime(NOON)) == "2027-01-15 10:00"
    for text, expected in {
        "2027-01-15 11:00:00": A,
        "2027-01-15 11:59": A,
        "2027-01-15T12:00:00": B,
        "2027-01-15T10:00:00Z": B,
        "2027-01-15 10:00Z": B,
        "2027-01-16": E,
    }.items():
        assert resolve("@{" + text + "}", names()) == expected
    for text in ("2027-01-15 10:59:59", "2027-01-15", "1960-01-01", "2027-01-15T08:59:59Z", "0001-01-01", "noon"):
        assert refused("@{" + text + "}", names()) == "unknown_checkpoint"


CHARS = st.sampled_from(list("aZ0 ~^:?*[\\./-_@{}#é\x7f\n\t,")) | st.characters(exclude_categories=("Cs",))


@given(st.text(CHARS, min_size=1, max_size=8))
@example("a.lock/b")
@example("a/.b")
@example("a..b")
@example("x@{y")
@example("a.")
@example("a/")
@effort_settings(max_examples=examples(150))
def test_every_tag_that_is_taken_is_one_of_gits(text: str):
    try:
        check_tag(text)
    except DomainError:
        return
    done = subprocess.run(["git", "check-ref-format", f"refs/tags/{text}"], env=dict(GIT_ENVIRON), check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("text", ["WORKTREE", "x" * 201, "é" * 101, "a\u00a0b", "\u202ea", "\ud800", "-a", "@a"])
def test_tags_that_people_could_not_use(text: str):
    with pytest.raises(DomainError, match=r"^bad_tag"):
        check_tag(text)


def test_names_in_a_store(desk: Desk):
    ids = []
    for number in range(4):
        desk.write(b"f", b"%d" % number)
        ids.append(desk.save(f"m{number}", tag=f"t/{number}").id)
    for number, one in enumerate(ids):
        for name in (one, one[:12], f"t/{number}", f"#{number + 1}", f"HEAD~{3 - number}"):
            assert desk.show(name).checkpoint.id == one
