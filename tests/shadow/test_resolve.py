"""Names of checkpoints, and in which order they are taken."""

import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptd.errors import DomainError
from ckptd.shadow.record.checkpoint import Checkpoint
from ckptd.shadow.record.message import Facts
from ckptd.shadow.record.resolve import Names, check_tag, resolve
from support.worktrees import GIT_ENVIRON

pytestmark = pytest.mark.core

_NOON = 1_767_268_800  # 2026-01-01 12:00 UTC
_IDS = {1: "abcd" + "0" * 36, 2: "abce" + "1" * 36, 3: "1234" + "2" * 36, 4: "dead" + "3" * 36, 9: "beef" + "4" * 36}
_KINDS = {1: "manual", 2: "safety", 3: "auto", 4: "safety", 9: "manual"}


def _load(id: str) -> Checkpoint:
    seq = next(number for number, one in _IDS.items() if one == id)
    return Checkpoint(id, b"", _NOON + 3600 * seq, None, Facts(seq=seq, kind=_KINDS[seq]))


def _names(head: int | None = 9, **tags: str) -> Names:
    return Names(_IDS, frozenset(_IDS.values()), tags, None if head is None else _IDS[head], _load)


def _fails(kind: str):
    return pytest.raises(DomainError, match=f"^{kind}: ")


@pytest.mark.parametrize(
    ("text", "seq"),
    [
        (_IDS[3], 3),
        ("1234", 3),
        ("abcd", 1),
        (_IDS[2][:39], 2),
        ("#1", 1),
        ("#9", 9),
        ("#0009", 9),
        ("HEAD", 9),
        ("HEAD~0", 9),
        ("HEAD~", 3),
        ("HEAD~1", 3),
        ("HEAD~2", 1),
        ("v1", 4),
        ("@{2026-01-01T15:30:00Z}", 3),
        ("@{2026-01-01 15:00Z}", 3),
        ("@{2030-01-01}", 9),
    ],
)
def test_names(text: str, seq: int):
    assert resolve(text, _names(v1=_IDS[4])) == _IDS[seq]


def test_precedence():
    # a tag is taken before a prefix, a full id before a tag
    assert resolve("abcd", _names(abcd=_IDS[4])) == _IDS[4]
    assert resolve(_IDS[1], _names(**{_IDS[1]: _IDS[4]})) == _IDS[1]
    # of a checkpoint that is gone a tag says nothing
    assert resolve("abcd", _names(abcd="f" * 40)) == _IDS[1]


def test_local_time():
    shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(_NOON + 3600 * 3))
    assert resolve(f"@{{{shown}}}", _names()) == _IDS[3]


def test_what_stands_for_nothing():
    for text in (
        "",
        "abc",
        "abcf",
        "#5",
        "#x",
        "#٣",
        "HEAD~3",
        "HEAD~x",
        "HEAD^",
        "head",
        "@{}",
        "@{soon}",
        "@{1999-01-01}",
    ):
        with _fails("unknown_checkpoint"):
            resolve(text, _names())
    for text in (
        "#" + "9" * 5000,
        "HEAD~" + "9" * 5000,
        "@{" + "9" * 5000 + "}",
        "a" * 41,
        "\ud800",
        "ABCD" + "0" * 36,
    ):
        with _fails("unknown_checkpoint"):
            resolve(text, _names())
    with _fails("ambiguous_id"):
        resolve("abcd", _names()._replace(ids=frozenset({*_IDS.values(), "abcd" + "f" * 36})))
    for text in ("HEAD", "HEAD~1"):
        with _fails("no_checkpoint"):
            resolve(text, _names(None))


@given(st.text(max_size=20))
def test_any_text_is_an_id_or_a_domain_error(text: str):
    try:
        found = resolve(text, _names())
    except DomainError:
        return
    assert found in _IDS.values()


_TAGS = st.one_of(
    st.text(max_size=12),
    st.lists(st.sampled_from(["a", ".", "/", "..", "@", "{", ".lock", "-", "é", "~", " "])).map("".join),
)


@given(_TAGS)
def test_tags_are_what_git_takes(name: str):
    """And fewer: nothing that reads as an id, nor as an option."""
    try:
        assert check_tag(name) == name
    except DomainError as error:
        if error.kind == "bad_tag":
            return
        raise
    command = ["git", "check-ref-format", f"refs/tags/{name}"]
    assert subprocess.run(command, env=dict(GIT_ENVIRON), check=False).returncode == 0


@pytest.mark.parametrize("name", ["v1", "before/refactor", "ünï", "a-b_c.d", "abc", "facing", "x" * 200])
def test_good_tags(name: str):
    assert check_tag(name) == name


@pytest.mark.parametrize("name", ["", "HEAD", "abcd", "1234567", "@", "@x", "-x", "x" * 201, "a\nb", "a b", "\u202e"])
def test_bad_tags(name: str):
    with _fails("bad_tag"):
        check_tag(name)
