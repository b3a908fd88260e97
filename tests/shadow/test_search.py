"""Searching the history: the hits are git's (``log -S``), each content is read once, and pages make up the whole."""

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckpt_protocol import checkpoint as wire
from ckpt_protocol.structs import from_wire, to_wire
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.store import searching
from support.worktrees import Desk, desk_fixture, git_log, run_git

pytestmark = pytest.mark.core


def page(desk: Desk, text: bytes, *paths: bytes, caller: Caller | None = None, **fields) -> wire.SearchResult:
    fields = {"text": to_wire(text), "paths": [to_wire(path) for path in paths], **fields}
    run = desk.reader.search(wire.SearchParams(**desk.common(), **fields), caller or Caller("test"))
    while (result := run.step()) is None:
        pass
    return result


def search(desk: Desk, text: bytes, *paths: bytes, **fields) -> list[wire.SearchHit]:
    """All hits, page by page."""
    hits: list[wire.SearchHit] = []
    before = None
    while True:
        result = page(desk, text, *paths, before_seq=before, **fields)
        hits += result.hits
        before = result.next_seq
        if before is None:
            return hits


def found(hits: list[wire.SearchHit]) -> list[tuple[int, dict[bytes, tuple[int, int]]]]:
    return [(hit.checkpoint.seq, {from_wire(one.path): (one.before, one.after) for one in hit.paths}) for hit in hits]


def test_what_adds_and_what_removes_it(desk: Desk):
    desk.write(b"src/app.py", b"todo todo\n")
    desk.write(b"other", b"nothing\n")
    desk.save("one")
    desk.write(b"other", b"still nothing\n")
    desk.save("two")
    desk.write(b"src/app.py", b"todo\n")
    desk.write(b"other", b"todo\n")
    desk.save("three")
    desk.remove(b"src")
    desk.save("four")
    assert found(search(desk, b"todo")) == [
        (4, {b"src/app.py": (1, 0)}),
        (3, {b"src/app.py": (2, 1), b"other": (0, 1)}),
        (1, {b"src/app.py": (0, 2)}),
    ]
    assert found(search(desk, b"todo", b"other", b"src/app.py", b"src")) == found(search(desk, b"todo"))
    assert found(search(desk, b"todo", b"other")) == [(3, {b"other": (0, 1)})]
    assert found(search(desk, b"todo", b"src")) == [
        (4, {b"src/app.py": (1, 0)}),
        (3, {b"src/app.py": (2, 1)}),
        (1, {b"src/app.py": (0, 2)}),
    ]
    assert [one.path for hit in search(desk, b"todo") for one in hit.paths][1:3] == ["other", "src/app.py"]


def test_case_counts_unless_it_is_not_to(desk: Desk):
    desk.write(b"a", "Größe ÉTÉ".encode())
    desk.save("one")
    assert search(desk, "été".encode()) == []
    assert found(search(desk, "été".encode(), ignore_case=True)) == [(1, {b"a": (0, 1)})]
    assert found(search(desk, "GRÖßE".encode(), ignore_case=True)) == [(1, {b"a": (0, 1)})]


def test_bytes_names_links_and_files_that_change_into_directories(desk: Desk):
    desk.write(b"a\xff", b"x\xfe\0y")
    desk.link(b"link", b"to\xfe")
    desk.save("one")
    desk.remove(b"a\xff")
    desk.write(b"a\xff/in", b"x\xfe\0y")
    os.chmod(desk.path(b"a\xff/in"), 0o600)
    desk.save("moved into a directory of its name")
    os.chmod(desk.path(b"a\xff/in"), 0o755)
    desk.save("another mode")
    assert found(search(desk, b"\xfe")) == [(1, {b"a\xff": (0, 1), b"link": (0, 1)})]


def test_a_file_that_is_only_renamed_is_no_hit(desk: Desk):
    desk.write(b"old", b"needle")
    desk.write(b"old link", b"x")
    desk.save("one")
    os.rename(desk.path(b"old"), desk.path(b"new"))
    desk.save("renamed")
    desk.write(b"again", b"needle")
    desk.remove(b"new")
    desk.link(b"link", b"needle")
    desk.save("renamed, and a link of its bytes")
    desk.write(b"copy", b"needle")
    desk.save("copied")
    assert found(search(desk, b"needle")) == [
        (4, {b"copy": (0, 1)}),
        (3, {b"link": (0, 1)}),
        (1, {b"old": (0, 1)}),
    ]


def test_kinds_metadata_and_the_rest_of_a_record(desk: Desk):
    desk.write(b"a", b"needle")
    desk.save("one", meta={"run": "x"}, tag="first")
    desk.write(b"a", b"needle needle")
    desk.save("two", kind="auto", meta={"run": "y"})
    assert [seq for seq, _ in found(search(desk, b"needle", kind="auto"))] == [2]
    assert [seq for seq, _ in found(search(desk, b"needle", meta={"run": "x"}))] == [1]
    result = page(desk, b"needle")
    assert (result.head, result.next_seq, result.searched) == (desk.head(), None, 2)
    assert result.hits[1].checkpoint == desk.list().checkpoints[1]


@pytest.mark.parametrize("text", [b"", b"x" * 4097])
def test_a_text_has_a_length(desk: Desk, text):
    desk.write(b"a", b"x")
    desk.save("one")
    with pytest.raises(DomainError) as caught:
        page(desk, text)
    assert caught.value.kind == "bad_option"


def test_an_empty_store_has_nothing(desk: Desk):
    result = page(desk, b"x")
    assert (result.hits, result.next_seq, result.searched) == ([], None, 0)


def test_pages_make_up_the_whole_and_read_nothing_twice(desk: Desk, monkeypatch):
    for number in range(12):
        desk.write(b"a", b"needle " * number)
        desk.write(b"b%d" % number, b"needle %d" % number)
        desk.save(str(number))
    whole = found(search(desk, b"needle"))
    assert [seq for seq, _ in whole] == list(range(12, 0, -1))
    read: list[bytes] = []
    desk.reopen()
    objects = desk.reader._objects
    chunks = objects.chunks
    monkeypatch.setattr(objects, "chunks", lambda oid: read.append(oid) or chunks(oid))
    assert found(search(desk, b"needle", limit=5)) == whole
    assert len(read) == len(set(read)) == 24
    # Each result comes at its first hit where no time is left for more.
    monkeypatch.setattr(searching, "_WITH_HITS_S", -1)
    first = page(desk, b"needle")
    assert ([hit.checkpoint.seq for hit in first.hits], first.next_seq, first.searched) == ([12], 12, 1)
    assert found(search(desk, b"needle")) == whole
    monkeypatch.setattr(searching, "_WITHOUT_HITS_S", -1)
    nothing = page(desk, b"not there")
    assert (nothing.hits, nothing.next_seq) == ([], 12)
    assert search(desk, b"not there") == []
    assert page(desk, b"needle", before_seq=2).next_seq is None


def test_what_is_forgotten_is_read_again(desk: Desk, monkeypatch):
    monkeypatch.setattr(searching, "_REMEMBERED", 2)
    for number in range(4):
        for name in (b"a", b"b", b"c"):
            desk.write(name, b"needle " * number + name)
        desk.save(str(number))
    assert [seq for seq, _ in found(search(desk, b"needle"))] == [4, 3, 2]


def test_many_paths_are_counted_and_not_all_listed(desk: Desk, monkeypatch):
    monkeypatch.setattr(searching, "_LISTED_PATHS", 3)
    for number in range(5):
        desk.write(b"%d" % number, b"needle")
    desk.save("one")
    (hit,) = search(desk, b"needle")
    assert ([one.path for one in hit.paths], hit.left_out) == (["0", "1", "2"], 2)


def test_it_ends_when_it_is_called_off(desk: Desk):
    desk.write(b"a", b"needle")
    desk.save("one")
    caller = Caller("test")
    caller.call_off()
    with pytest.raises(DomainError) as caught:
        page(desk, b"needle", caller=caller)
    assert caught.value.kind == "cancelled"


def test_progress_counts_checkpoints(desk: Desk):
    for number in range(3):
        desk.write(b"a", b"%d" % number)
        desk.save(str(number))
    caller = Caller("test")
    page(desk, b"1", caller=caller)
    assert (caller.at.phase, caller.at.done, caller.at.total) == ("search", 2, 3)


def test_large_files_are_searched_piece_by_piece(desk: Desk):
    block = b"0123456789abcdef" * (1 << 16)
    with open(desk.path(b"large"), "wb") as file:
        for _ in range(17):
            file.write(block)
        # Across the end of a piece of what is read at once.
        file.seek((1 << 20) * 3 - 3)
        file.write(b"needle")
    desk.save("one")
    assert found(search(desk, b"needle")) == [(1, {b"large": (0, 1)})]


def test_lost_content_is_counted_and_the_rest_is_searched(desk: Desk):
    desk.damaged = True
    desk.write(b"a", b"needle a")
    desk.save("one")
    desk.write(b"b", b"needle b")
    lost = desk.save("two").id
    (pack,) = _packs_with(desk, desk.paths_of(lost)[b"b"][1])
    desk.close()
    for end in (b".pack", b".idx"):
        os.unlink(pack + end)
    result = page(desk, b"needle")
    assert (found(result.hits), result.damaged, result.unread) == ([(1, {b"a": (0, 1)})], 1, 0)


def test_a_lost_file_is_counted_and_its_neighbours_are_searched(desk: Desk):
    desk.damaged = True
    desk.write(b"a", b"needle a")
    desk.save("one")
    desk.write(b"b", b"needle b")
    desk.save("two")
    desk.reader._objects.read_own = _without(desk.reader._objects.read_own, b"needle b")
    result = page(desk, b"needle")
    assert (found(result.hits), result.damaged, result.unread) == ([(1, {b"a": (0, 1)})], 0, 1)


def _without(read, content: bytes):
    def reading(oid: bytes, kind: bytes) -> bytes:
        data = read(oid, kind)
        if data == content:
            raise DomainError("object_missing", "lost for the test")
        return data

    return reading


def _packs_with(desk: Desk, oid: bytes) -> list[bytes]:
    folder = desk.folder + b"/objects/pack/"
    names = [folder + name[:-4] for name in os.listdir(folder) if name.endswith(b".idx")]
    return [name for name in names if oid in run_git("verify-pack", "-v", name + b".idx")]


# git as the oracle

NAMES = [b"a", b"b", b"d/a", b"d/c"]
pieces = st.lists(st.sampled_from([b"x", b"X", b"y", b"\n", b"z" * 30]), max_size=6).map(b"".join)
states = st.lists(st.dictionaries(st.sampled_from(NAMES), pieces, max_size=4), min_size=2, max_size=6)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(states, st.sampled_from([b"x", b"xy", b"xx", b"xyx", b"\n", b"zx"]), st.booleans())
def test_the_hits_are_git_s(history, text, ignore_case):
    for desk in desk_fixture():
        desk.settle()
        trees = []
        for number, files in enumerate(history):
            for name in NAMES:
                desk.remove(name) if os.path.lexists(desk.path(name)) and name not in files else None
            for name, data in files.items():
                desk.write(name, data)
            saved = desk.save(str(number), rehash=True, force=True)
            if saved.created:
                trees.append((saved.seq, desk.tree_of(saved.id)))
        mine = {hit.checkpoint.seq: _outline(desk, hit) for hit in search(desk, text, ignore_case=ignore_case)}
        assert mine == _by_git(desk, trees, text, ignore_case)


def _outline(desk: Desk, hit: wire.SearchHit) -> Counter:
    """Paths of what changed; of what came or went the content alone, as pairs of renames may be others."""
    now = desk.paths_of(hit.checkpoint.id)
    old = desk.paths_of(hit.checkpoint.base) if hit.checkpoint.base is not None else {}
    outline: Counter = Counter()
    for one in hit.paths:
        path = from_wire(one.path)
        if path in now and path in old:
            outline[path] += 1
        else:
            outline["A" if path in now else "D", (now.get(path) or old[path])[1]] += 1
    return outline


def _by_git(desk: Desk, trees: list[tuple[int, str]], text: bytes, ignore_case: bool) -> dict[int, Counter]:
    words = ["--raw", "--no-abbrev", "-M100%", "--format=%s", "-S", text, *(["-i"] if ignore_case else [])]
    hits: dict[int, Counter] = {}
    seq = 0
    for line in git_log(desk, trees, *words).splitlines():
        if line.startswith(b":"):
            _, _, before, after, rest = line.split(b" ", 4)
            letter, path = rest.split(b"\t")
            key = path if letter == b"M" else (letter.decode(), after if letter == b"A" else before)
            hits[seq][key] += 1
        elif line:
            seq = int(line)
            hits[seq] = Counter()
    return hits
