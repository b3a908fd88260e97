"""The message of a checkpoint's commit: any text comes back as it was, and only our own commits are read."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import settings as effort_settings
from hypothesis import strategies as st

from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import EMPTY_TREE
from ckptd.shadow.record.checkpoint import format_checkpoint, format_commit, load_checkpoint, load_info, rfc3339
from ckptd.shadow.record.message import Facts, check_text, format_message, parse_message
from support.bare import Bare
from support.effort import examples

pytestmark = pytest.mark.core

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1)
BLOCK = "Ckpt-Seq: 99\nCkpt-Kind: auto\nCkpt-Message: none\n"


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return Bare(os.fsencode(tmp_path))


@given(TEXT, st.dictionaries(TEXT | st.just(""), TEXT | st.just(""), max_size=3), st.integers(1, 10**12), st.booleans())
@example("\n", {}, 1, True)
@example("\n\n", {"": ""}, 1, True)
@example("ends with lines\n\n\n", {"a\n\nb": "\n\n"}, 1, True)
@example("\r\n\r\n", {"\x1c\x85\u2028": "\x7f\x1d"}, 1, True)
@example("subject\n\n" + BLOCK, {}, 1, True)
@example("subject\n\n" + BLOCK + "\n\n" + BLOCK, {}, 1, False)
@example("checkpoint", {}, 1, True)
@example("none", {"Ckpt-Message": "none"}, 1, True)
@example("Ckpt-Message: none", {}, 1, True)
@effort_settings(max_examples=examples(300))
def test_any_text_and_metadata_come_back(text: str, meta: dict[str, str], seq: int, complete: bool):
    facts = Facts(seq, "manual", complete=complete, meta=meta)
    assert check_text(text) == text
    assert parse_message(format_message(text, facts)) == (text, facts)
    assert parse_message(format_message(None, facts)) == (None, facts)


@pytest.mark.parametrize(
    "facts",
    [
        Facts(1, "manual"),
        Facts(
            2, "auto", base="1" * 40, scan="watched", complete=False, info="2" * 40, client="ckpt 1.0", meta={"a": "b"}
        ),
        Facts(10**10, "safety", client="x"),
    ],
)
def test_all_facts_come_back(facts: Facts):
    assert parse_message(format_message("text", facts)) == ("text", facts)


def test_our_block_is_printable_ascii_lines():
    facts = Facts(1, "manual", client="naïve\nCkpt-Kind: auto" + "x" * 500, meta={"é\n": "\U0001f600\x1f\x85"})
    block = format_message("text", facts).decode("ascii").rpartition("\n\n")[2]
    assert block.endswith("\n")
    assert all(" " <= char <= "~" for line in block.split("\n") for char in line)
    found = parse_message(format_message("text", facts))[1]
    assert found.kind == "manual"
    assert found.meta == facts.meta
    assert found.client is not None
    assert found.client.startswith("na?ve?Ckpt-Kind: auto")
    assert len(found.client) == 200


def test_no_text_and_empty_text_are_the_same():
    assert check_text("") is None
    assert check_text(None) is None
    message = format_message(None, Facts(1, "manual"))
    assert message.startswith(b"checkpoint\n\nCkpt-Seq: 1\n")
    assert message.endswith(b"\nCkpt-Message: none\n")


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800", "a\udcff"])
def test_what_no_commit_can_hold_is_refused(text: str):
    with pytest.raises(DomainError, match="bad_message"):
        check_text(text)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\n",
        b"a subject\n",
        b"subject\n\nbody\n",
        BLOCK.encode(),
        b"subject\n\nCkpt-Seq: x\nCkpt-Kind: manual\n",
        b"subject\n\nCkpt-Seq: 1\n",
        b"subject\n\nCkpt-Kind: manual\n",
        b"subject\n\nCkpt-Seq: 1\nCkpt-Kind: manual\nCkpt-Meta: {\n",
        b"subject\n\nCkpt-Seq: 1\nCkpt-Kind: manual\nCkpt-Meta: [1]\n",
        b"subject\n\nCkpt-Seq: 1\nCkpt-Kind: manual\nCkpt-Meta: " + b"[" * 100_000 + b"\n",
        b"subject\n\nCkpt-Seq: " + b"9" * 5000 + b"\nCkpt-Kind: manual\n",
        b"subject\n\nCkpt-Seq: 1\nCkpt-Kind: manual\n\nSigned-off-by: somebody\n",
        b"\xff\xfe\n\n\xff",
    ],
)
def test_a_foreign_message_is_refused(message: bytes):
    with pytest.raises(DomainError, match="store_damaged"):
        parse_message(message)


def test_git_shows_the_text(bare: Bare):
    text = "the subject\n\nA body, über all.\n"
    oid = bare.commit(7, text, meta={"by": "me"})
    bare.git("update-ref", "refs/checkpoints/0000000007", oid)
    assert bare.git("log", "--glob=refs/checkpoints", "--format=%s").decode() == "the subject\n"
    body = bare.git("log", "-1", "--format=%B", oid).decode()
    assert body.startswith(text + "\n\n")
    bare.git("update-ref", "refs/checkpoints/0000000008", bare.commit(8))
    assert bare.git("log", "-1", "--format=%s", "refs/checkpoints/0000000008") == b"checkpoint\n"
    bare.verify()


@pytest.mark.parametrize("text", ["x" * 3_000_000, "line\n" * 200_000, " \t\n lead", "trailing \n\n", "\ufeffé\u2028"])
def test_a_commit_with_any_text_is_sound(bare: Bare, text: str):
    oid = bare.commit(1, text)
    bare.git("update-ref", "refs/checkpoints/0000000001", oid)
    bare.verify()
    found = load_checkpoint(bare.objects(), bytes.fromhex(oid.decode()))
    assert (found.text, found.tree, found.time_s, found.facts.seq) == (text, EMPTY_TREE, 1_800_000_000, 1)


def test_what_git_commits_is_no_checkpoint(bare: Bare):
    tree = bare.put(b"", kind=b"tree")[0].hex()
    theirs = bare.git("commit-tree", tree, "-m", f"subject\n\n{BLOCK}").decode().strip()
    ours = bare.commit(1).decode()
    with_parent = bare.git("commit-tree", tree, "-p", ours, "-m", f"subject\n\n{BLOCK}").decode().strip()
    header = format_commit(EMPTY_TREE, 1, b"").replace(b" 1 +0000", b" 9999999999999999 +0000")
    far = bare.put(header + b"s\n\n" + BLOCK.encode(), kind=b"commit")[0].hex()
    foreign = bare.put(b"tree " + b"1" * 40 + b"\nrubbish\n\n", kind=b"commit")[0].hex()
    # Git's own commits have the shape of ours where they have our block; a parent is what no checkpoint has.
    assert load_checkpoint(bare.objects(), bytes.fromhex(theirs)).facts.seq == 99
    for oid in (with_parent, far, foreign):
        with pytest.raises(DomainError, match="store_damaged"):
            load_checkpoint(bare.objects(), bytes.fromhex(oid))


def test_time_is_kept_in_seconds_of_utc(bare: Bare):
    oid = bare.put(format_checkpoint(EMPTY_TREE, 1_700_000_001, "t", Facts(1, "manual")), kind=b"commit")[0]
    found = load_checkpoint(bare.objects(), oid)
    assert found.record([]).time == rfc3339(1_700_000_001) == "2023-11-14T22:13:21Z"


def test_info_that_is_named_but_gone_is_not_taken_for_none(bare: Bare):
    objects = bare.objects()
    without = load_checkpoint(objects, bytes.fromhex(bare.commit(1).decode()))
    told = load_info(objects, without)
    assert told is not None
    assert told.modes is None
    for info in ("1" * 40, "nonsense", bare.put(b"a blob")[0].hex()):
        named = load_checkpoint(objects, bytes.fromhex(bare.commit(2, info=info).decode()))
        assert load_info(objects, named) is None
