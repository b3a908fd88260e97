"""The store: each name of the documentation, what it asks the daemon, and what it makes of the answer."""

import base64
import logging
import os
from pathlib import Path

import msgspec
import pytest

from ckpt_protocol.methods import METHODS
from fabricatio_checkpoint.errors import InputError, InternalError, StateError
from fabricatio_checkpoint.service import CheckpointService
from fabricatio_checkpoint.store import blob_id
from support.fake_daemon import FakeDaemon, Refusal

ID = "a" * 40
OTHER = "b" * 40


def _record(seq, **fields):
    made = {
        "id": f"{seq:040d}",
        "seq": seq,
        "time": "2030-01-01T00:00:00Z",
        "kind": "manual",
        "message": None,
        "tags": [],
        "meta": {},
        "complete": True,
    }
    return {**made, **fields}


SAVED = {"id": ID, "seq": 1, "created": True, "complete": True, "skipped": [], "excluded": [], "files": 3}
RESTORED = {
    "target": ID,
    "written": ["a", {"b64": "/w=="}],
    "deleted": [],
    "kept": ["k"],
    "conflicts": [{"path": "c", "reason": "special"}],
    "edited": [],
    "safety": OTHER,
    "head": ID,
    "digest": "d",
    "weak": False,
    "dry_run": False,
}
STATUS = {
    "head": ID,
    "head_record": _record(1),
    "last_manual": None,
    "changes": [
        {"path": "z", "change": "added"},
        {"path": {"b64": "/w=="}, "change": "deleted"},
        {"path": "b/e", "change": "added", "dir": True},
    ],
    "skipped": [],
    "excluded": [{"path": "big", "reason": "large", "detail": "200 MiB"}],
    "files": 2,
    "state": "idle",
    "halted": None,
    "interrupted": None,
}


@pytest.fixture
def daemon(short_dir):
    opened = {"store": "/s/x", "created": True, "head": None}
    with FakeDaemon(str(short_dir / "d.sock"), worktree__open=opened) as serving:
        yield serving
    for _, method, params in serving.asked:
        msgspec.convert(params, METHODS[method].params)


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


@pytest.fixture
def store(daemon, tree, tmp_path):
    service = CheckpointService(tmp_path / "stores", socket=daemon.path)
    yield service.get_store(tree)
    service.close()


def _last(daemon, method):
    return daemon.params(method)[-1]


def test_save_sends_everything_and_returns_the_id(daemon, store, tree, tmp_path):
    daemon.answers["checkpoint.save"] = SAVED
    assert store.save("before refactor") == ID
    found = os.stat(tree)
    asked = _last(daemon, "checkpoint.save")
    assert asked["message"] == "before refactor"
    assert asked["checkpoint_dir"] == str(tmp_path / "stores")
    assert asked["worktree"] == {"path": str(tree), "dev": str(found.st_dev), "ino": str(found.st_ino)}
    assert (asked["kind"], asked["tag"], asked["meta"], asked["force"]) == ("manual", None, {}, False)
    assert store.save() == ID
    assert store.save(tag="v1", meta={"k": "v"}, full=True, rehash=True, force=True, kind="auto") == ID
    second = _last(daemon, "checkpoint.save")
    assert (second["tag"], second["meta"], second["kind"], second["message"]) == ("v1", {"k": "v"}, "auto", None)
    assert (second["full"], second["rehash"], second["force"]) == (True, True, True)
    assert len({params["token"] for params in daemon.params("checkpoint.save")}) == 3


def test_a_save_that_lacks_something_says_so_in_the_log(daemon, store, caplog):
    left = [{"path": "secret", "reason": "unreadable", "detail": "Permission denied"}]
    daemon.answers["checkpoint.save"] = {**SAVED, "complete": False, "skipped": left, "notes": ["rules dropped most"]}
    with caplog.at_level(logging.INFO, "fabricatio_checkpoint"):
        assert store.save() == ID
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "secret (unreadable)" in caplog.text
    result = store.save_detailed()
    assert (result.complete, result.skipped[0].reason, result.files) == (False, "unreadable", 3)


def test_a_note_on_a_save_that_made_nothing_is_no_warning(daemon, store, caplog):
    daemon.answers["checkpoint.save"] = {**SAVED, "created": False, "notes": ["the message was not used"]}
    with caplog.at_level(logging.INFO, "fabricatio_checkpoint"):
        store.save("x")
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_head(daemon, store):
    daemon.answers["checkpoint.head"] = {"id": ID}
    assert store.head() == ID
    daemon.answers["checkpoint.head"] = Refusal("no_checkpoint", "nothing was saved yet")
    with pytest.raises(StateError):
        store.head()


def _listing(total):
    def answer(params):
        newest = total if params["before_seq"] is None else params["before_seq"] - 1
        size = min(params["limit"], 700)
        page = [_record(seq) for seq in range(newest, max(newest - size, 0), -1)]
        return {"checkpoints": page, "head": None, "more": newest > size}

    return answer


@pytest.mark.parametrize("total", [0, 1, 700, 2500])
def test_commits_are_all_pages_oldest_first(daemon, store, total):
    daemon.answers["checkpoint.list"] = _listing(total)
    assert store.commits() == [f"{seq:040d}" for seq in range(1, total + 1)]


def test_checkpoints_are_records_newest_first_and_filtered(daemon, store):
    daemon.answers["checkpoint.list"] = _listing(2500)
    found = store.checkpoints(limit=1500)
    assert [record.seq for record in found] == list(range(2500, 1000, -1))
    assert [params["limit"] for params in daemon.params("checkpoint.list")] == [1500, 800, 100]
    store.checkpoints(limit=1, kind="auto", meta={"a": "b"}, paths=["x", b"\xff"])
    asked = _last(daemon, "checkpoint.list")
    assert (asked["kind"], asked["meta"], asked["paths"]) == ("auto", {"a": "b"}, ["x", {"b64": "/w=="}])
    assert store.checkpoints(limit=0) == []


def test_checkpoints_follow_renames_where_asked_to(daemon, store):
    pages = [
        {"checkpoints": [_record(2, renames=[{"path": "b", "renamed_from": {"b64": "/w=="}}])], "head": None,
         "more": True, "followed": [{"b64": "/w=="}]},
        {"checkpoints": [_record(1)], "head": None, "more": False},
    ]  # fmt: skip
    daemon.answers["checkpoint.list"] = lambda params: pages[params["before_seq"] is not None]
    first, second = store.checkpoints(paths=["b"], follow=True)
    assert [(one.path, one.renamed_from) for one in first.renames] == [("b", "\udcff")]
    assert second.renames == ()
    assert [params["follow"] for params in daemon.params("checkpoint.list")] == [[], [{"b64": "/w=="}]]
    store.checkpoints(paths=["b"])
    assert "follow" not in _last(daemon, "checkpoint.list")


def _searching(params):
    newest = params["before_seq"] or 5
    hit = {"checkpoint": _record(newest), "paths": [{"path": {"b64": "/w=="}, "before": 1, "after": 3}], "left_out": 2}
    seq = newest - 1 or None
    return {"hits": [hit], "head": None, "next_seq": seq, "searched": 1, "damaged": 0, "unread": int(seq is None)}


def test_a_search_is_as_long_as_one_looks(daemon, store, caplog):
    daemon.answers["checkpoint.search"] = _searching
    assert daemon.params("checkpoint.search") == []
    hits = store.search("é", ignore_case=True, paths=[b"\xff"], kind="auto", meta={"a": "b"})
    first = next(hits)
    assert (first.checkpoint.seq, first.left_out) == (5, 2)
    assert (first.paths[0].path, first.paths[0].before, first.paths[0].after) == ("\udcff", 1, 3)
    asked = _last(daemon, "checkpoint.search")
    assert (asked["text"], asked["ignore_case"], asked["paths"]) == ("é", True, [{"b64": "/w=="}])
    assert (asked["kind"], asked["meta"], asked["limit"], asked["before_seq"]) == ("auto", {"a": "b"}, 1000, None)
    assert [hit.checkpoint.seq for hit in hits] == [4, 3, 2, 1]
    assert "1 checkpoints or paths" in caplog.text
    assert [hit.checkpoint.seq for hit in store.search("x", limit=2)] == [5, 4]
    assert [params["limit"] for params in daemon.params("checkpoint.search")[-2:]] == [2, 1]
    assert list(store.search("x", limit=0)) == []


@pytest.mark.parametrize(("text", "sent"), [(b"\xff", {"b64": "/w=="}), ("\udcff", {"b64": "/w=="}), (b"a", "a")])
def test_a_search_takes_bytes(daemon, store, text, sent):
    daemon.answers["checkpoint.search"] = _searching
    next(store.search(text))
    assert _last(daemon, "checkpoint.search")["text"] == sent
    with pytest.raises(InputError):
        store.search("\ud800")


def test_show(daemon, store):
    daemon.answers["checkpoint.show"] = {
        "checkpoint": _record(2, tags=["t"], meta={"k": "v"}, message="m", base=OTHER),
        "base": OTHER,
        "changes": [{"path": "a", "change": "mode"}],
        "skipped": [],
        "excluded": [],
    }
    shown = store.show("t")
    assert _last(daemon, "checkpoint.show")["id"] == "t"
    assert (shown.checkpoint.tags, shown.checkpoint.meta, shown.checkpoint.base) == (("t",), {"k": "v"}, OTHER)
    assert (shown.changes[0].path, shown.changes[0].change) == ("a", "mode")


def test_status_is_typed_and_get_status_is_sorted_paths(daemon, store):
    daemon.answers["worktree.status"] = STATUS
    status = store.status()
    assert status.head_record.seq == 1
    assert [(change.path, change.change, change.dir) for change in status.changes] == [
        ("z", "added", False),
        ("\udcff", "deleted", False),
        ("b/e", "added", True),
    ]
    assert (status.excluded[0].reason, status.excluded[0].detail) == ("large", "200 MiB")
    assert store.get_status() == ["b/e", "z", "\udcff"]


def test_reset_returns_what_it_did(daemon, store):
    daemon.answers["checkpoint.restore"] = RESTORED
    result = store.reset(ID)
    assert result
    assert (result.written, result.kept, result.safety) == (("a", "\udcff"), ("k",), OTHER)
    assert result.conflicts[0].reason == "special"
    asked = _last(daemon, "checkpoint.restore")
    assert (asked["id"], asked.get("paths"), asked["dry_run"]) == (ID, None, False)
    store.reset(digest="d", skip_conflicts=True, recreate=True)
    asked = _last(daemon, "checkpoint.restore")
    assert (asked["id"], asked["digest"], asked["skip_conflicts"], asked["recreate"]) == (None, "d", True, True)
    store.plan_reset(ID)
    assert _last(daemon, "checkpoint.restore")["dry_run"] is True


def test_rollback_takes_one_path_or_several(daemon, store):
    daemon.answers["checkpoint.restore"] = RESTORED
    assert store.rollback(ID, "src/main.py")
    assert _last(daemon, "checkpoint.restore")["paths"] == ["src/main.py"]
    store.rollback(ID, ["a", Path("b"), b"\xff"], delete=True, digest="d", skip_conflicts=True)
    asked = _last(daemon, "checkpoint.restore")
    assert asked["paths"] == ["a", "b", {"b64": "/w=="}]
    assert (asked["delete"], asked["digest"], asked["skip_conflicts"], asked["dry_run"]) == (True, "d", True, False)
    store.plan_rollback(ID, Path("x"))
    assert (_last(daemon, "checkpoint.restore")["paths"], _last(daemon, "checkpoint.restore")["dry_run"]) == (
        ["x"],
        True,
    )
    with pytest.raises(InputError, match="no path"):
        store.rollback(ID, [])


def test_undo_and_redo(daemon, store):
    daemon.answers["checkpoint.undo"] = daemon.answers["checkpoint.redo"] = RESTORED
    assert store.undo().safety == OTHER
    assert store.redo(dry_run=True, digest="d", skip_conflicts=True)
    assert _last(daemon, "checkpoint.undo")["dry_run"] is False
    assert _last(daemon, "checkpoint.redo")["digest"] == "d"


def test_conditions(daemon, store):
    daemon.answers["checkpoint.undo"] = daemon.answers["checkpoint.redo"] = RESTORED
    daemon.answers["checkpoint.restore"] = RESTORED
    daemon.answers["checkpoint.save"] = SAVED
    assert blob_id(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    expect = {"src/main.py": blob_id(b"x"), b"\xff": None}
    sent = [{"path": "src/main.py", "oid": blob_id(b"x")}, {"path": {"b64": "/w=="}, "oid": "absent"}]
    store.save(expect_head="HEAD", expect=expect)
    store.reset(ID, expect_head="HEAD", expect=expect)
    store.rollback(ID, "a", expect_head="HEAD", expect=expect)
    store.undo(session="s", expect_head="HEAD", expect=expect)
    store.redo(session="s", expect_head="HEAD", expect=expect)
    for method in ("save", "restore", "undo", "redo"):
        asked = _last(daemon, f"checkpoint.{method}")
        assert (asked["expect_head"], asked["expect"]) == ("HEAD", sent)
    assert _last(daemon, "checkpoint.redo")["session"] == "s"
    assert "whole_session" not in _last(daemon, "checkpoint.undo")
    assert store.undo_session("s", skip_conflicts=True).conflicts[0].reason == "special"
    asked = _last(daemon, "checkpoint.undo")
    assert (asked["session"], asked["whole_session"], asked["skip_conflicts"]) == ("s", True, True)
    store.reset(ID)
    assert {"expect", "expect_head"} & _last(daemon, "checkpoint.restore").keys() == set()


def test_resume(daemon, store):
    daemon.answers["worktree.resume"] = RESTORED
    assert store.resume("finish").safety == OTHER
    asked = _last(daemon, "worktree.resume")
    assert (asked["action"], asked["dry_run"], asked["digest"]) == ("finish", False, None)
    store.resume("undo", dry_run=True, digest="d", skip_conflicts=True)
    asked = _last(daemon, "worktree.resume")
    assert (asked["action"], asked["dry_run"], asked["digest"], asked["skip_conflicts"]) == ("undo", True, "d", True)


def test_a_status_tells_what_was_interrupted(daemon, store):
    found = {
        "verb": "reset",
        "time": "2026-11-30T19:45:00Z",
        "client": "ckpt",
        "session": None,
        "target": ID,
        "safety": OTHER,
        "before": 2,
        "after": 3,
        "other": 1,
        "others": [{"b64": "/w=="}],
    }
    daemon.answers["worktree.status"] = {**STATUS, "interrupted": OTHER, "interruption": found}
    told = store.status().interruption
    assert (told.verb, told.before, told.after, told.other, told.others) == ("reset", 2, 3, 1, ("\udcff",))
    daemon.answers["worktree.status"] = STATUS
    assert store.status().interruption is None


@pytest.fixture
def spelled(tmp_path, tree, daemon):
    """A store whose worktree is known by a link as well, with a link and a same-named file around it."""
    os.symlink(tree, tmp_path / "alias")
    (tree / "src").mkdir()
    (tree / "src/main.py").write_text("")
    os.symlink("/etc", tree / "out")
    os.symlink("src/main.py", tree / "link")
    service = CheckpointService(tmp_path / "stores", socket=daemon.path)
    daemon.answers["checkpoint.restore"] = RESTORED
    yield service.get_store(tmp_path / "alias")
    service.close()


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("src/main.py", "src/main.py"),
        ("./src//main.py", "src/main.py"),
        ("src/", "src"),
        ("src/../other", "other"),
        ("~/x", "~/x"),
        ("link", "link"),
        ("out/passwd", "out/passwd"),
        ("{tree}/src/main.py", "src/main.py"),
        ("{tree}/gone/deep", "gone/deep"),
        ("{tree}/link", "link"),
        ("{tree}/out", "out"),
        ("{alias}/src/../src/main.py", "src/main.py"),
        ("{alias}/out/passwd", "out/passwd"),
        ("{base}/second/src/main.py", "src/main.py"),
        ("{base}/second/link", "link"),
    ],
)
def test_paths_are_relative_to_the_worktree_or_inside_it(daemon, spelled, tree, tmp_path, given, sent):
    os.symlink(tree, tmp_path / "second")
    spelled.rollback(ID, given.format(tree=tree, alias=tmp_path / "alias", base=tmp_path))
    assert _last(daemon, "checkpoint.restore")["paths"] == [sent]


@pytest.mark.parametrize(
    "given",
    ["../x", "a/../../x", "..", "/etc/passwd", "{tree}x/file", "{tree}/../x", "/", "{base}/tree2/src/main.py"],
)
def test_a_path_that_leads_out_is_not_even_asked_for(daemon, spelled, tree, tmp_path, given):
    (tmp_path / "tree2").mkdir()
    with pytest.raises(InputError, match="prefix not found") as caught:
        spelled.get_file_diff(ID, given.format(tree=tree, base=tmp_path))
    assert caught.value.kind == "outside_worktree"
    assert daemon.params("checkpoint.diff") == []


@pytest.mark.parametrize("given", ["", ".", "{tree}", "{tree}/", "a/..", "a\0b", "{tree}/a\0b"])
def test_the_worktree_itself_and_nul_are_no_paths_in_it(spelled, tree, given):
    with pytest.raises(InputError) as caught:
        spelled.rollback(ID, given.format(tree=tree))
    assert caught.value.kind == "bad_path"


def _chunks(content, size):
    def answer(params):
        piece = content[params["offset"] : params["offset"] + size]
        more = params["offset"] + len(piece) < len(content)
        return {
            "data": {"b64": base64.b64encode(piece).decode()},
            "offset": params["offset"],
            "total_bytes": len(content),
            "cursor": "c1" if more else None,
            "mode": "100644",
            "id": ID,
        }

    return answer


@pytest.mark.parametrize("content", [b"", b"abc", bytes(range(256)) * 5])
def test_diff_and_cat_put_the_pieces_together(daemon, store, content):
    daemon.answers["checkpoint.diff"] = daemon.answers["checkpoint.cat"] = _chunks(content, 100)
    assert store.diff_bytes(ID, OTHER, ["a"]) == content
    assert store.cat("HEAD", "a") == content
    assert store.diff().encode("utf-8", "surrogateescape") == content
    first = daemon.params("checkpoint.diff")[0]
    assert (first["from_id"], first["to_id"], first["paths"], first["cursor"]) == (ID, OTHER, ["a"], None)
    assert {params["cursor"] for params in daemon.params("checkpoint.diff")} <= {None, "c1"}
    assert [params["id"] for params in daemon.params("checkpoint.cat")][:2] == ["HEAD", ID][: len(content) // 100 + 1]


def test_get_file_diff_compares_a_checkpoint_with_now(daemon, store):
    daemon.answers["checkpoint.diff"] = _chunks("-a\n+\u00e4\n".encode(), 1000)
    assert store.get_file_diff(ID, "src/main.py") == "-a\n+\u00e4\n"
    asked = _last(daemon, "checkpoint.diff")
    assert (asked["from_id"], asked["to_id"], asked["paths"]) == (ID, "WORKTREE", ["src/main.py"])


def test_a_diff_that_the_daemon_forgot_is_begun_again(daemon, store):
    content = b"x" * 250
    forgets = [True]

    def answer(params):
        if params["cursor"] and forgets:
            forgets.pop()
            raise Refusal("expired_cursor")
        return _chunks(content, 100)(params)

    daemon.answers["checkpoint.diff"] = answer
    assert store.diff_bytes() == content
    daemon.answers["checkpoint.diff"] = Refusal("expired_cursor")
    with pytest.raises(StateError):
        store.diff_bytes()


@pytest.mark.parametrize("method", ["diff", "cat"])
def test_an_empty_piece_before_the_end_does_not_loop_for_ever(daemon, store, method):
    daemon.answers[f"checkpoint.{method}"] = {**_chunks(b"abc", 0)({"offset": 0}), "cursor": "c1"}
    with pytest.raises(InternalError):
        store.cat(ID, "a") if method == "cat" else store.diff()


def test_the_identity_of_the_worktree_is_looked_up_at_each_call(daemon, store, tree):
    daemon.answers["checkpoint.head"] = {"id": ID}
    tree.rename(tree.with_name("moved"))
    store.head()
    assert _last(daemon, "checkpoint.head")["worktree"] == {"path": str(tree), "dev": None, "ino": None}
