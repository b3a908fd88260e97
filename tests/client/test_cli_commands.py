"""The commands against a daemon of cardboard, in this process."""

import base64
import json
import os
from pathlib import Path

import pytest

from ckpt_protocol.address import socket_path
from fabricatio_checkpoint.cli import clock
from support.cli_answers import B64, ID, OTHER, SAFETY, head, history, hits, record, restored, saved, shown, status
from support.cli_daemon import CardboardDaemon, Refusal
from support.cli_run import in_process


@pytest.fixture
def daemon(short_dir, monkeypatch):
    """Answers at the usual socket of a private runtime directory; every place is tracked."""
    for name, below in (("XDG_RUNTIME_DIR", "run"), ("XDG_STATE_HOME", "state")):
        (short_dir / below).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(short_dir / below))
    with CardboardDaemon(socket_path(os.environ), {"checkpoint.head": head()}) as cardboard:
        yield cardboard


@pytest.fixture
def tree(short_dir, monkeypatch):
    """The current directory of the run."""
    place = short_dir / "tree"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def ckpt(daemon, tree, capsysbinary):
    return lambda *argv: in_process(capsysbinary, *argv)


def refuse(kind, message="refused", **data):
    def answer(_params):
        raise Refusal(kind, message, **data)

    return answer


def chunk(data: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(data).decode()}


# save


def test_save_prints_the_id_alone(daemon, tree, ckpt):
    daemon.answers["checkpoint.save"] = saved()
    done = ckpt("save", "the message", "--tag", "v1", "--meta", "k=v", "--full", "--rehash", "--force")
    assert (done.code, done.out) == (0, ID + "\n")
    assert done.stderr == "ckpt: checkpoint #7, 3 files\n"
    (params,) = daemon.calls("checkpoint.save")
    found = os.stat(tree)
    token = params.pop("token")
    assert len(token) == 32
    assert int(token, 16) >= 0
    assert params == {
        "checkpoint_dir": str(Path.home() / ".fabricatio-checkpoint"),
        "worktree": {"path": str(tree), "dev": str(found.st_dev), "ino": str(found.st_ino)},
        "message": "the message",
        "tag": "v1",
        "meta": {"k": "v"},
        "full": True,
        "rehash": True,
        "force": True,
    }


def test_save_sends_only_what_was_given(daemon, ckpt):
    daemon.answers["checkpoint.save"] = saved()
    ckpt("save")
    (params,) = daemon.calls("checkpoint.save")
    assert set(params) == {"checkpoint_dir", "worktree", "token"}


def test_save_with_nothing_changed_says_so(daemon, ckpt):
    daemon.answers["checkpoint.save"] = saved(created=False, notes=["the message was not used"])
    done = ckpt("save", "unused")
    assert (done.code, done.out) == (0, ID + "\n")
    assert "nothing changed since checkpoint #7" in done.stderr
    assert "the message was not used" in done.stderr


def test_an_incomplete_save_lists_what_is_missing_and_exits_with_3(daemon, ckpt):
    skipped = [{"path": B64, "reason": "unreadable", "detail": "Permission denied"}]
    skipped += [{"path": f"p{number}", "reason": "unstable"} for number in range(30)]
    daemon.answers["checkpoint.save"] = saved(
        complete=False, skipped=skipped, excluded=[{"path": "big", "reason": "large"}]
    )
    done = ckpt("save")
    assert (done.code, done.out) == (3, ID + "\n")
    assert 'skipped: "caf\\351" (unreadable: Permission denied)' in done.stderr
    assert "and 11 more" in done.stderr
    assert "1 path excluded" in done.stderr
    assert "incomplete" in done.stderr


def test_save_as_json(daemon, ckpt):
    daemon.answers["checkpoint.save"] = saved(complete=False, skipped=[{"path": B64, "reason": "unreadable"}])
    done = ckpt("--json", "save")
    assert done.code == 3
    assert done.stderr == ""
    assert done.document["id"] == ID
    assert done.document["skipped"][0]["path"] == B64
    assert {"id", "created", "complete", "skipped", "excluded", "files"} <= set(done.document)


# which worktree


def test_an_outer_tracked_worktree_is_used_and_said(daemon, tree, ckpt, monkeypatch):
    inner = tree / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    daemon.answers["checkpoint.head"] = lambda params: (
        head() if params["worktree"]["path"] == str(tree) else refuse("not_tracked")(params)
    )
    daemon.answers["checkpoint.save"] = saved()
    done = ckpt("save")
    assert daemon.calls("checkpoint.save")[0]["worktree"]["path"] == str(tree)
    assert f"in the tracked worktree {tree}" in done.stderr
    asked = [params["worktree"]["path"] for params in daemon.calls("checkpoint.head")]
    assert asked == [str(inner), str(inner.parent), str(tree)]


@pytest.mark.parametrize("kind", ["not_tracked", "protected_place"])
def test_where_nothing_is_tracked_the_current_directory_is_meant(daemon, tree, ckpt, kind):
    daemon.answers["checkpoint.head"] = refuse(kind)
    daemon.answers["checkpoint.save"] = saved()
    assert "tracked worktree" not in ckpt("save").stderr
    assert daemon.calls("checkpoint.save")[0]["worktree"]["path"] == str(tree)
    assert daemon.calls("checkpoint.head")[-1]["worktree"]["path"] == "/"


@pytest.mark.parametrize("kind", ["no_checkpoint", "store_damaged", "worktree_busy", "worktree_replaced"])
def test_a_store_in_trouble_is_a_store(daemon, tree, ckpt, kind):
    daemon.answers["checkpoint.head"] = refuse(kind)
    daemon.answers["worktree.status"] = status()
    assert ckpt("status").code == 0
    assert len(daemon.calls("checkpoint.head")) == 1


def test_a_given_workspace_is_used_exactly(daemon, tree, ckpt):
    (tree / "sub").mkdir()
    daemon.answers["worktree.status"] = status()
    (tree / "link").symlink_to("sub")
    assert ckpt("-w", "link", "status").code == 0
    assert daemon.calls("checkpoint.head") == []
    assert daemon.calls("worktree.status")[0]["worktree"]["path"] == str(tree / "sub")


def test_a_missing_workspace_has_no_identity(daemon, tree, ckpt):
    daemon.answers["checkpoint.restore"] = restored()
    assert ckpt("-w", "gone", "reset", "--recreate").code == 0
    (params,) = daemon.calls("checkpoint.restore")
    assert params["worktree"] == {"path": str(tree / "gone"), "dev": None, "ino": None}
    assert params["recreate"] is True


def test_a_file_is_no_worktree(daemon, tree, ckpt):
    daemon.answers["worktree.status"] = refuse("not_tracked")
    daemon.answers["checkpoint.head"] = refuse("not_tracked")
    (tree / "file").write_text("")
    done = ckpt("--json", "-w", "file", "status")
    assert done.code == 10
    assert done.document["error"]["kind"] == "not_a_directory"


def test_a_deleted_current_directory_is_said(daemon, tree, ckpt):
    tree.rmdir()
    done = ckpt("status")
    assert done.code == 20
    assert "ckpt -w DIR" in done.stderr


# ls and show


def test_ls_is_one_line_a_checkpoint(daemon, ckpt):
    daemon.answers["checkpoint.list"] = history(
        record(tags=["v1", "best"]),
        record(id=OTHER, seq=6, message="two\nlines", complete=False, kind="auto"),
        record(id=SAFETY, seq=5, message=None, kind="safety"),
    )
    done = ckpt("ls")
    assert done.code == 0
    first, second, third = done.out.splitlines()
    assert first.split()[:2] == ["1a2b3c4d5e", "#7"]
    assert first.endswith("manual  before  [HEAD, v1, best]")
    assert second.endswith("auto    two  (incomplete)")
    assert third.endswith("safety  -")


def test_ls_passes_filters_on(daemon, tree, ckpt):
    daemon.answers["checkpoint.list"] = history()
    done = ckpt("ls", "src/", f"{tree}/x", "--kind", "auto", "--meta", "k=v", "--limit", "3")
    assert done.code == 0
    assert done.stderr == "ckpt: no checkpoint is like that\n"
    (params,) = daemon.calls("checkpoint.list")
    assert params["paths"] == ["src", "x"]
    assert (params["kind"], params["meta"], params["limit"]) == ("auto", {"k": "v"}, 3)


def test_ls_follows_renames_of_its_paths_from_page_to_page(daemon, ckpt):
    renames = [{"path": "b", "renamed_from": B64}]
    pages = [
        history(record(renames=renames), more=True, followed=[B64]),
        history(record(seq=6, renames=[*renames, {"path": "c", "renamed_from": "a"}]), followed=[B64, "a"]),
    ]
    daemon.answers["checkpoint.list"] = lambda params: pages["before_seq" in params]
    first, second = ckpt("ls", "b", "c").out.splitlines()
    assert first.endswith('before  [HEAD]  (renamed from "caf\\351")')
    assert second.endswith('  (b renamed from "caf\\351", c renamed from a)')
    one, two = daemon.calls("checkpoint.list")
    assert (one["follow"], two["follow"], two["before_seq"]) == ([], [B64], 7)
    document = ckpt("ls", "b", "c", "--json").document
    assert document["checkpoints"][0]["renames"] == renames
    ckpt("ls")
    assert "follow" not in daemon.calls("checkpoint.list")[-1]


def test_ls_of_the_worktree_itself_is_no_filter(daemon, ckpt):
    daemon.answers["checkpoint.list"] = history(record())
    ckpt("ls", ".", "src")
    assert "paths" not in daemon.calls("checkpoint.list")[0]


def test_ls_refuses_an_unknown_kind(ckpt):
    assert ckpt("ls", "--kind", "x").code == 2


def many_pages(total):
    def answer(params):
        start = params.get("before_seq", total + 1)
        seqs = range(start - 1, max(0, start - 1 - params["limit"]), -1)
        return history(*(record(seq=seq) for seq in seqs), more=bool(seqs) and seqs[-1] > 1)

    return answer


def test_ls_reads_on_until_everything_is_listed(daemon, ckpt):
    daemon.answers["checkpoint.list"] = many_pages(2500)
    lines = ckpt("ls").out.splitlines()
    assert [int(line.split()[1][1:]) for line in lines] == list(range(2500, 0, -1))
    assert len(daemon.calls("checkpoint.list")) == 3


def test_ls_stops_at_its_limit(daemon, ckpt):
    daemon.answers["checkpoint.list"] = many_pages(2500)
    assert len(ckpt("ls", "--limit", "1001").out.splitlines()) == 1001
    assert [params["limit"] for params in daemon.calls("checkpoint.list")] == [1000, 1]
    document = ckpt("ls", "--limit", "1500", "--json").document
    assert len(document["checkpoints"]) == 1500
    assert document["more"] is True


def test_ls_counts_damaged_checkpoints(daemon, ckpt):
    daemon.answers["checkpoint.list"] = history(record(), damaged=2)
    assert "2 more cannot be read" in ckpt("ls").stderr
    # Each page counts its own.
    pages = [history(record(), more=True, damaged=2), history(record(seq=6), damaged=1)]
    daemon.answers["checkpoint.list"] = lambda params: pages["before_seq" in params]
    assert "3 more cannot be read" in ckpt("ls").stderr
    assert ckpt("ls", "--json").document["damaged"] == 3


def test_show(daemon, ckpt):
    daemon.answers["checkpoint.show"] = shown(
        checkpoint=record(message="subject\n\nbody \x1b[1m", meta={"k": "v"}, tags=["t"], client="ckpt"),
        changes=[{"path": "new", "change": "added"}, {"path": "d", "change": "added", "dir": True}],
        skipped=[{"path": "s", "reason": "unreadable"}],
    )
    done = ckpt("show", "HEAD~1")
    assert daemon.calls("checkpoint.show")[0]["id"] == "HEAD~1"
    for line in (f"checkpoint {ID}", "    body \\x1b[1m", "  A new", "  A d/", "skipped: s (unreadable)"):
        assert line in done.out.splitlines()
    assert "meta       k=v" in done.out
    assert " ago" not in done.out
    assert "changes since 2b3c4d5e6f:" in done.out


# status


def test_status(daemon, tree, ckpt):
    daemon.answers["worktree.status"] = status(
        changes=[
            {"path": "a", "change": "added"},
            {"path": "m\n", "change": "modified"},
            {"path": B64, "change": "deleted"},
            {"path": "t", "change": "type"},
            {"path": "x", "change": "mode"},
        ],
        excluded=[{"path": "big", "reason": "large", "detail": "200 MiB"}],
    )
    done = ckpt("status")
    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[0] == f"worktree {tree}"
    assert lines[1] == f"head 1a2b3c4d5e #7 before ({clock.local(record()['time'])})"
    assert lines[2:7] == ["A a", 'M "m\\n"', 'D "caf\\351"', "T t", "X x"]
    assert lines[7] == "excluded: big (large: 200 MiB)"


def test_status_says_that_nothing_changed_in_words(daemon, ckpt):
    daemon.answers["worktree.status"] = status()
    assert "nothing changed since head" in ckpt("status").out


def test_status_passes_on_what_only_a_person_can_put_right(daemon, ckpt):
    daemon.answers["worktree.status"] = status(notes=["more than max_store_bytes"])
    assert ckpt("status").stderr.endswith("ckpt: more than max_store_bytes\n")


def test_status_names_the_last_manual_checkpoint_behind_an_autosave(daemon, ckpt):
    daemon.answers["worktree.status"] = status(
        head_record=record(kind="auto"), last_manual=record(id=OTHER, seq=5, message="good")
    )
    assert "head is an autosave; the last manual checkpoint is 2b3c4d5e6f #5 good" in ckpt("status").out


def test_status_of_an_interrupted_restore_and_a_halt(daemon, ckpt):
    daemon.answers["worktree.status"] = status(interrupted=SAFETY, halted="worktree empty")
    done = ckpt("status")
    assert "a restore was interrupted" in done.out
    assert "safety checkpoint 3c4d5e6f70" in done.out
    assert "halted: worktree empty" in done.out


def test_status_says_what_was_interrupted_and_what_to_type(daemon, ckpt):
    found = {
        "verb": "reset",
        "time": "2026-11-30T19:45:00Z",
        "client": "ckpt",
        "session": None,
        "target": ID,
        "safety": SAFETY,
        "before": 2,
        "after": 1,
        "other": 1,
        "others": ["a b"],
    }
    daemon.answers["worktree.status"] = status(interrupted=SAFETY, interruption=found)
    done = ckpt("status")
    assert "a reset to 1a2b3c4d5e was interrupted (" in done.out
    assert "  2 paths as before it, 1 as it was to leave them, 1 changed since\n  changed since: " in done.out
    assert "ckpt resume --finish goes on with it, ckpt resume --undo takes it back" in done.out
    assert ckpt("status", "--json").document["interruption"] == found


def test_conditions_and_sessions(daemon, ckpt):
    for method in ("checkpoint.undo", "checkpoint.redo", "checkpoint.restore", "worktree.resume"):
        daemon.answers[method] = restored()
    daemon.answers["checkpoint.save"] = saved()
    both = ("--expect-head", "#4", "--expect-digest", "d")
    ckpt("reset", ID, *both)
    ckpt("rollback", ID, "a", *both)
    for asked in daemon.calls("checkpoint.restore"):
        assert (asked["expect_head"], asked["digest"]) == ("#4", "d")
    for verb in ("undo", "redo"):
        ckpt(verb, "--session", "s", *both)
        (asked,) = daemon.calls(f"checkpoint.{verb}")
        assert (asked["session"], asked["expect_head"], asked["digest"]) == ("s", "#4", "d")
        assert asked.get("whole_session") == (True if verb == "undo" else None)
    ckpt("resume", "--undo", "--expect-digest", "d")
    assert daemon.calls("worktree.resume")[0]["digest"] == "d"
    ckpt("save", "--expect-head", "#4")
    assert daemon.calls("checkpoint.save")[0]["expect_head"] == "#4"


def test_undo_of_a_session_says_what_was_left_alone(daemon, ckpt):
    left = [{"path": "b", "reason": "other_session", "detail": "session T changed it between #4 and #5"}]
    daemon.answers["checkpoint.undo"] = restored(kept=[], conflicts=left)
    done = ckpt("undo", "--session", "s", "--skip-conflicts")
    assert done.code == 3
    assert done.out.splitlines() == [
        "taken back: 1 written, 1 deleted, 0 kept",
        "  written a",
        "  deleted b",
        "  conflict b (other_session: session T changed it between #4 and #5)",
        f"what was there before is in the safety checkpoint {SAFETY[:10]}",
        "take it back with: ckpt redo",
    ]
    assert done.stderr == "ckpt: 1 path in conflict left alone\n"
    ckpt("undo")
    assert "whole_session" not in daemon.calls("checkpoint.undo")[-1]


def test_resume(daemon, ckpt):
    daemon.answers["worktree.resume"] = restored(edited=["a"])
    finished = ckpt("resume", "--finish")
    assert finished.out.startswith("finished: at 1a2b3c4d5e: 1 written")
    assert "edited since, and overwritten: a" in finished.stderr
    undone = ckpt("resume", "--undo", "--dry-run", "--skip-conflicts")
    assert undone.out.startswith("undone: back to 1a2b3c4d5e: 1 written")
    asked = daemon.calls("worktree.resume")
    assert [one["action"] for one in asked] == ["finish", "undo"]
    assert (asked[1]["dry_run"], asked[1]["skip_conflicts"]) == (True, True)


@pytest.mark.parametrize("flags", [(), ("--finish", "--undo")])
def test_resume_goes_one_way(daemon, ckpt, flags):
    done = ckpt("resume", *flags)
    assert (done.code, daemon.calls("worktree.resume")) == (2, [])
    assert "resume needs one of --finish and --undo" in done.stderr


def test_status_before_the_first_checkpoint(daemon, ckpt):
    daemon.answers["worktree.status"] = status(head=None, head_record=None)
    assert "begin with: ckpt save" in ckpt("status").out


@pytest.mark.parametrize("argv", [("status",), ("ls",), ("reset",), ("show", "HEAD"), ("diff",), ("undo",)])
def test_an_untracked_directory_is_said_with_how_to_begin(daemon, ckpt, argv):
    daemon.answers.clear()
    done = ckpt(*argv)
    assert (done.code, done.out) == (20, "")
    assert done.stderr == "ckpt: not tracked; begin with: ckpt save\n"


# diff and cat


def test_diff_is_passed_on_piece_by_piece(daemon, ckpt):
    patch = b"--- a\n+++ b\n\xff\x00\n"

    def answer(params):
        offset = params.get("offset", 0)
        piece = patch[offset : offset + 5]
        last = offset + 5 >= len(patch)
        return {"data": chunk(piece), "offset": offset, "total_bytes": len(patch), "cursor": None if last else "c1"}

    daemon.answers["checkpoint.diff"] = answer
    done = ckpt("diff", "A", "B", "--", "src", "x")
    assert (done.code, done.stdout, done.stderr) == (0, patch, "")
    first, second, *_ = daemon.calls("checkpoint.diff")
    assert (first["from_id"], first["to_id"], first["paths"]) == ("A", "B", ["src", "x"])
    assert "cursor" not in first
    assert (second["cursor"], second["offset"]) == ("c1", 5)


def test_no_difference_is_said_in_words(daemon, ckpt):
    daemon.answers["checkpoint.diff"] = {"data": chunk(b""), "offset": 0, "total_bytes": 0, "cursor": None}
    done = ckpt("diff", "--stat")
    assert (done.code, done.out, done.stderr) == (0, "", "ckpt: no differences\n")
    (params,) = daemon.calls("checkpoint.diff")
    assert params["format"] == "stat"
    assert not {"from_id", "to_id", "paths"} & set(params)


def test_an_empty_patch_that_leaves_something_unsaid_is_not_called_no_difference(daemon, ckpt):
    told = "a differs in its permissions: 0644 became 0600"
    empty = {"data": chunk(b""), "offset": 0, "total_bytes": 0, "cursor": None, "notes": [told]}
    daemon.answers["checkpoint.diff"] = empty
    done = ckpt("diff")
    assert (done.code, done.out, done.stderr) == (0, "", f"ckpt: {told}\n")


@pytest.mark.parametrize(("data", "expected"), [(b"text\n", "text\n"), (b"\xff", {"b64": "/w=="})])
def test_diff_as_json(daemon, ckpt, data, expected):
    daemon.answers["checkpoint.diff"] = {"data": chunk(data), "offset": 0, "total_bytes": 1, "cursor": None}
    assert ckpt("diff", "--json", "--name-status").document == {"format": "name-status", "data": expected}


def test_stat_and_name_status_exclude_each_other(ckpt):
    assert ckpt("diff", "--stat", "--name-status").code == 2


def cat_answer(data, step):
    def answer(params):
        offset = params.get("offset", 0)
        piece = data[offset : offset + step]
        return {"data": chunk(piece), "offset": offset, "total_bytes": len(data), "mode": "100644", "id": ID}

    return answer


def test_cat_reads_to_the_end_by_the_id_it_began_with(daemon, ckpt):
    data = bytes(range(256)) * 3
    daemon.answers["checkpoint.cat"] = cat_answer(data, 500)
    done = ckpt("cat", "HEAD", "./a/b")
    assert (done.code, done.stdout) == (0, data)
    first, second = daemon.calls("checkpoint.cat")
    assert (first["id"], first["path"]) == ("HEAD", "a/b")
    assert (second["id"], second["offset"]) == (ID, 500)


def test_cat_of_an_empty_file(daemon, ckpt):
    daemon.answers["checkpoint.cat"] = cat_answer(b"", 10)
    assert ckpt("cat", "HEAD", "x").stdout == b""
    assert ckpt("cat", "HEAD", "x", "--json").document == {
        "id": ID,
        "path": "x",
        "mode": "100644",
        "total_bytes": 0,
        "data": "",
    }


def test_a_daemon_that_sends_nothing_does_not_hold_us(daemon, ckpt):
    daemon.answers["checkpoint.cat"] = lambda params: {**cat_answer(b"abc", 2)(params), "data": chunk(b"")}
    assert ckpt("cat", "HEAD", "x").code == 70


# restores


def test_rollback(daemon, tree, ckpt):
    daemon.answers["checkpoint.restore"] = restored()
    done = ckpt("rollback", "HEAD", "src", f"{tree}/b", os.fsdecode(b"caf\xe9"), "--delete", "--skip-conflicts")
    assert done.code == 0
    assert done.out.splitlines() == [
        "rolled back to 1a2b3c4d5e: 1 written, 1 deleted, 1 kept",
        "  written a",
        "  deleted b",
        "  kept c",
        f"what was there before is in the safety checkpoint {SAFETY[:10]}",
        "take it back with: ckpt undo",
    ]
    (params,) = daemon.calls("checkpoint.restore")
    assert params["paths"] == ["src", "b", B64]
    assert (params["id"], params["delete"], params["skip_conflicts"]) == ("HEAD", True, True)
    assert len(params["token"]) == 32


def test_relative_paths_are_relative_to_the_worktree_wherever_one_stands(daemon, tree, ckpt, monkeypatch):
    (tree / "sub").mkdir()
    monkeypatch.chdir(tree / "sub")
    daemon.answers["checkpoint.restore"] = restored()
    ckpt("-w", str(tree), "rollback", "HEAD", "main.py")
    assert daemon.calls("checkpoint.restore")[0]["paths"] == ["main.py"]


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../b"])
def test_a_path_outside_says_prefix_not_found(daemon, ckpt, path):
    done = ckpt("rollback", "HEAD", path)
    assert done.code == 10
    assert "prefix not found" in done.stderr
    assert daemon.calls("checkpoint.restore") == []
    error = ckpt("--json", "cat", "HEAD", path).document["error"]
    assert (error["kind"], error["paths"]) == ("outside_worktree", [path])


def test_reset_off_a_terminal_does_it(daemon, ckpt):
    daemon.answers["checkpoint.restore"] = restored()
    done = ckpt("reset", "HEAD~1")
    assert done.code == 0
    assert done.out.startswith("reset to 1a2b3c4d5e: 1 written, 1 deleted, 1 kept\n")
    (params,) = daemon.calls("checkpoint.restore")
    assert params["id"] == "HEAD~1"
    assert not {"paths", "digest", "dry_run"} & set(params)


def test_reset_without_an_id_means_head(daemon, ckpt):
    daemon.answers["checkpoint.restore"] = restored()
    ckpt("reset", "--yes")
    assert "id" not in daemon.calls("checkpoint.restore")[0]


def test_a_dry_run_lists_everything_and_promises_nothing(daemon, ckpt):
    daemon.answers["checkpoint.restore"] = restored(
        dry_run=True, safety=None, written=[f"w{number}" for number in range(50)]
    )
    done = ckpt("reset", "--dry-run")
    assert done.code == 0
    assert done.out.startswith("would be reset to 1a2b3c4d5e: 50 written")
    assert "  written w49\n" in done.out
    assert "ckpt undo" not in done.out
    assert daemon.calls("checkpoint.restore")[0]["dry_run"] is True


def test_long_lists_are_cut_once_it_is_done(daemon, ckpt):
    daemon.answers["checkpoint.restore"] = restored(written=[f"w{number}" for number in range(50)])
    done = ckpt("reset")
    assert "  written: and 30 more (--json lists all)\n" in done.out


def test_nothing_to_change_is_said_in_words(daemon, ckpt):
    daemon.answers["checkpoint.restore"] = restored(written=[], deleted=[], kept=[], safety=None)
    assert ckpt("reset").out == "reset to 1a2b3c4d5e: nothing to change\n"


def test_conflicts_that_were_left_out_exit_with_3(daemon, ckpt):
    daemon.answers["checkpoint.restore"] = restored(
        conflicts=[{"path": "fifo", "reason": "special"}], weak=True, notes=["n"]
    )
    done = ckpt("reset", "--skip-conflicts")
    assert done.code == 3
    assert "  conflict fifo (special)" in done.out
    assert "1 path in conflict left alone" in done.stderr
    assert "cannot exchange" in done.stderr
    assert "ckpt: n\n" in done.stderr


def test_a_conflict_lists_the_paths_and_the_way_out(daemon, ckpt):
    paths = [B64, *(f"p{number}" for number in range(25))]
    daemon.answers["checkpoint.restore"] = refuse("conflicts", "26 paths in conflict", paths=paths)
    done = ckpt("reset")
    assert done.code == 20
    assert "--skip-conflicts" in done.stderr
    assert '  "caf\\351"\n' in done.stderr
    assert "and 6 more" in done.stderr
    assert ckpt("reset", "--json").document["error"]["paths"] == paths


def test_undo_and_redo(daemon, ckpt):
    daemon.answers["checkpoint.undo"] = restored(edited=["a"])
    daemon.answers["checkpoint.redo"] = restored(target=None)
    undone = ckpt("undo", "--skip-conflicts")
    assert undone.out.startswith("undone: back to 1a2b3c4d5e: 1 written")
    assert "take it back with: ckpt redo" in undone.out
    assert "edited since, and overwritten: a" in undone.stderr
    redone = ckpt("redo", "--dry-run")
    assert redone.out.startswith("redone: 1 written")
    assert "take it back with: ckpt undo" in redone.out
    assert daemon.calls("checkpoint.undo")[0]["skip_conflicts"] is True
    assert daemon.calls("checkpoint.redo")[0]["dry_run"] is True


def test_restores_as_json(daemon, ckpt):
    daemon.answers["checkpoint.restore"] = restored(written=[B64])
    done = ckpt("reset", "--json")
    assert done.document == restored(written=[B64])
    assert done.stderr == ""


# stores


WORKSPACE = {"path": "/w", "store": "/s/w", "state": "missing", "checkpoints": 2, "bytes": 2048}


def test_workspaces(daemon, ckpt):
    daemon.answers["worktree.list"] = {"workspaces": [WORKSPACE], "damaged": ["/s/bad"]}
    done = ckpt("workspaces")
    assert done.out.split() == ["missing", "2", "checkpoints", "2.0", "KiB", "/w"]
    assert "cannot read the store /s/bad" in done.stderr
    assert ckpt("workspaces", "--json").document == {"workspaces": [WORKSPACE], "damaged": ["/s/bad"]}
    assert set(daemon.calls("worktree.list")[0]) == {"checkpoint_dir"}


def test_no_workspaces(daemon, ckpt):
    daemon.answers["worktree.list"] = {"workspaces": [], "damaged": []}
    assert "begin with: ckpt save" in ckpt("workspaces").stderr


def test_prune(daemon, ckpt):
    pruned = {"path": "/w", "store": "/s/w", "checkpoints": 2, "bytes": 10}
    daemon.answers["store.prune"] = lambda params: {
        "pruned": [pruned],
        "unreachable": ["/u"],
        "dry_run": params["dry_run"],
    }
    planned = ckpt("prune", "--dry-run")
    assert planned.out == "would prune /w (2 checkpoints, 10 B)\n"
    assert "ckpt adopt OLD" in planned.stderr
    done = ckpt("prune")
    assert done.out == "pruned /w (2 checkpoints, 10 B)\n"
    assert "may come back: /u" in done.stderr
    assert [params["dry_run"] for params in daemon.calls("store.prune")] == [True, False]


def adopting(daemon, *, sure: bool) -> None:
    daemon.answers["worktree.adopt"] = lambda params: {
        "path": params["worktree"]["path"],
        "old": params["old"],
        "store": "/s/w",
        "checkpoints": 4,
        "sure": sure,
        "dry_run": params["dry_run"],
    }


def test_adopt_of_what_is_certain_does_not_ask(daemon, tree, ckpt, monkeypatch):
    adopting(daemon, sure=True)
    monkeypatch.chdir(tree)
    old = tree.parent / "before"
    assert ckpt("adopt", "../before", "--dry-run").out == f"would adopt the history of {old} (4 checkpoints)\n"
    assert [params["dry_run"] for params in daemon.calls("worktree.adopt")] == [True]
    assert ckpt("adopt", "../before").out == f"adopted the history of {old} (4 checkpoints)\n"
    last = daemon.calls("worktree.adopt")[-1]
    assert (last["worktree"]["path"], last["old"], last["force"], last["dry_run"]) == (
        str(tree),
        str(old),
        False,
        False,
    )


def test_a_link_that_was_left_at_the_old_place_is_not_followed(daemon, tree, ckpt):
    adopting(daemon, sure=True)
    old = tree.parent / "before"
    old.symlink_to(tree)
    assert ckpt("-w", str(tree), "adopt", str(old)).code == 0
    assert daemon.calls("worktree.adopt")[-1]["old"] == str(old)


def test_adopt_of_what_is_not_certain_needs_yes_off_a_terminal(daemon, tree, ckpt):
    adopting(daemon, sure=False)
    done = ckpt("adopt", "/before")
    assert (done.code, "--yes" in done.stderr) == (2, True)
    assert [params["dry_run"] for params in daemon.calls("worktree.adopt")] == [True]
    assert json.loads(ckpt("adopt", "/before", "--yes", "--json").out)["checkpoints"] == 4


def test_nothing_to_prune_is_said(daemon, ckpt):
    daemon.answers["store.prune"] = {"pruned": [], "unreachable": [], "dry_run": False}
    assert ckpt("prune").stderr == "ckpt: nothing to prune\n"


def test_forget_needs_yes_off_a_terminal(daemon, tree, ckpt):
    daemon.answers["worktree.forget"] = {"store": "/s/w", "checkpoints": 4}
    done = ckpt("forget")
    assert done.code == 2
    assert "--yes" in done.stderr
    assert daemon.calls("worktree.forget") == []
    assert ckpt("forget", "--yes").out == f"forgot {tree} (4 checkpoints); its files were not touched\n"
    assert len(daemon.calls("worktree.forget")) == 1


# search


def hit(*paths, left_out=0, **changes):
    listed = [{"path": path, "before": before, "after": after} for path, before, after in paths]
    return {"checkpoint": record(**changes), "paths": listed, "left_out": left_out}


def test_search_shows_checkpoints_and_paths_page_by_page(daemon, ckpt):
    pages = [
        hits(hit(("src/a", 0, 2), (B64, 12, 0), tags=["v1"]), next_seq=7),
        hits(hit(("b", 1, 3), id=OTHER, seq=2, message=None, left_out=1)),
    ]
    daemon.answers["checkpoint.search"] = lambda params: pages["before_seq" in params]
    done = ckpt("search", "-i", "né", "src/", "x", "--kind", "manual", "--meta", "k=v")
    assert (done.code, done.stderr) == (0, "")
    first, *paths, second, third, more = done.out.splitlines()
    assert first.startswith("1a2b3c4d5e  #7 ")
    assert first.endswith("manual  before  [HEAD, v1]")
    assert paths == ["      +2 src/a", '     -12 "caf\\351"']
    assert second.startswith("2b3c4d5e6f  #2 ")
    assert (third, more) == ("      +2 b", "         and 1 path more")
    one, two = daemon.calls("checkpoint.search")
    assert (one["text"], one["ignore_case"], one["paths"], one["limit"]) == ("né", True, ["src", "x"], 1000)
    assert (one["kind"], one["meta"]) == ("manual", {"k": "v"})
    assert two == {**one, "before_seq": 7}


def test_search_as_a_document(daemon, ckpt):
    pages = [hits(hit(("a", 0, 2)), next_seq=7), hits(hit(("b", 1, 0), id=OTHER))]
    daemon.answers["checkpoint.search"] = lambda params: pages["before_seq" in params]
    document = ckpt("search", "x", "--json").document
    assert [one["checkpoint"]["id"] for one in document["hits"]] == [ID, OTHER]
    assert document["hits"][0]["paths"] == [{"path": "a", "before": 0, "after": 2}]
    assert (document["searched"], document["next_seq"], document["head"]) == (6, None, ID)


def test_search_stops_at_its_limit(daemon, ckpt):
    daemon.answers["checkpoint.search"] = lambda params: hits(
        *[hit(("a", 0, 1))] * min(params["limit"], 2), next_seq=params.get("before_seq", 9) - 1
    )
    assert len(ckpt("search", "x", "-n", "3").out.splitlines()) == 6
    assert [(params["limit"], params.get("before_seq")) for params in daemon.calls("checkpoint.search")] == [
        (3, None),
        (1, 8),
    ]


def test_search_finds_what_begins_with_a_dash_and_bytes(daemon, ckpt):
    daemon.answers["checkpoint.search"] = hits()
    done = ckpt("search", "--", "-x", "src")
    assert (done.code, done.out, done.stderr) == (0, "", "ckpt: no checkpoint adds or removes that\n")
    ckpt("search", os.fsdecode(b"\xff"))
    assert [(one["text"], one.get("paths")) for one in daemon.calls("checkpoint.search")] == [
        ("-x", ["src"]),
        ({"b64": "/w=="}, None),
    ]


def test_search_says_what_it_could_not_read(daemon, ckpt):
    daemon.answers["checkpoint.search"] = hits(hit(("a", 0, 1)), damaged=1, unread=2)
    done = ckpt("search", "x")
    assert done.code == 3
    assert "1 checkpoint could not be read" in done.stderr
    assert "2 paths could not be read" in done.stderr


@pytest.mark.parametrize(
    "argv", [("search",), ("search", ""), ("search", "x", "--kind", "y"), ("search", "x", "-n", "0")]
)
def test_search_refuses(daemon, ckpt, argv):
    assert ckpt(*argv).code == 2
    assert daemon.calls("checkpoint.search") == []


# export


def test_export_names_its_destination_from_here(daemon, tree, ckpt, monkeypatch):
    daemon.answers["checkpoint.export"] = {"id": ID, "destination": "/x/out.tar", "files": 2, "bytes": 2048}
    monkeypatch.chdir(tree.parent)
    done = ckpt("-w", str(tree), "export", "HEAD", "out.tar", "src")
    assert (done.code, done.out) == (0, "2 files, 2.0 KiB, written to /x/out.tar\n")
    (call,) = daemon.calls("checkpoint.export")
    assert call["destination"] == str(tree.parent / "out.tar")
    assert call["paths"] == ["src"]
