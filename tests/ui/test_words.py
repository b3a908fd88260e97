"""What the timeline says: rows, files, patches, the first line, errors. No screen is needed for that."""

import pytest

pytest.importorskip("textual", reason="the timeline needs textual, which is not installed")

from rich.cells import cell_len

from fabricatio_checkpoint.errors import error_of
from fabricatio_checkpoint.events import Event
from fabricatio_checkpoint.progress import Progress
from fabricatio_checkpoint.record import Change, CheckpointRecord, Patch, RestoreResult, ShowResult, StatusResult
from fabricatio_checkpoint.ui import comparison, heading, keys, patch, row
from fabricatio_checkpoint.ui.comparison import Mode, Size
from fabricatio_checkpoint.ui.fold import PANES, Fold, Pane, dialog_size, fold, neighbour
from fabricatio_checkpoint.ui.pace import Pace
from fabricatio_checkpoint.ui.span import Span, cut, cut_path, expanded, fitted, padded, plain, width

NOW = 1_900_000_000.0
ID = "3f786850e387550fdab836ed7e6dc881de23001b"


def stamp(ago_s: float) -> str:
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW - ago_s))


def record(seq=7, message="before the agent", kind="manual", **more) -> CheckpointRecord:
    values = {"id": ID, "time": stamp(90), "tags": (), "meta": {}, "complete": True, **more}
    return CheckpointRecord(seq=seq, message=message, kind=kind, **values)


def status(changes=(), head=None, **more) -> StatusResult:
    values = {"last_manual": None, "skipped": (), "excluded": (), "files": 3, "state": "idle", "halted": None}
    values |= {"interrupted": None, **more}
    return StatusResult(head=head and head.id, head_record=head, changes=tuple(changes), **values)


def line_of(made, columns=78, **more) -> str:
    options = {"number": 3, "head": None, "now": NOW, **more}
    return plain(row.record_line(made, options.pop("size", Size(1, 2, 0)), columns, **options))


# columns


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [("short", 9, "short"), ("exactly", 7, "exactly"), ("too long", 5, "too…"), ("日本語", 4, "日…"), ("x", 0, "")],
)
def test_text_is_cut_by_the_columns_that_it_takes(text, columns, expected):
    assert cut(text, columns) == expected
    assert cell_len(cut(text, columns)) <= columns


def test_of_a_path_the_end_stays():
    assert cut_path("src/very/deep/main.py", 10) == "…p/main.py"
    assert cut_path("a.py", 10) == "a.py"
    assert cell_len(cut_path("日本語/ファイル.txt", 9)) <= 9
    assert cut_path("x/y", 0) == ""


def test_padding_and_tabs_count_columns():
    assert padded("日", 4) == "日  "
    assert padded("12", 4, right=True) == "  12"
    assert expanded("a\tb\tc") == "a   b   c"
    assert expanded("日本\t.") == "日本    ."
    assert expanded("plain") == "plain"
    assert expanded("\t") == "    "


def test_a_line_is_cut_where_it_does_not_fit():
    line = (Span("12345", "a"), Span("67890", "b"), Span("never"))
    assert plain(fitted(line, 15)) == "1234567890never"
    assert plain(fitted(line, 8)) == "1234567…"
    assert plain(fitted(line, 5)) == "1234…"
    assert width(fitted(line, 1)) == 1


# a row


def test_a_row_says_number_age_kind_size_tags_and_message():
    made = record(tags=("good",))
    assert line_of(made, head=ID) == " #7   1m  manual  +1 ~2       HEAD [good] before the agent"
    assert line_of(record(message=None, kind="auto")) == " #7   1m  auto    +1 ~2       -"


def test_a_narrow_row_leaves_out_the_size():
    assert line_of(record(), 40) == " #7   1m  manual  before the agent"
    assert width(row.record_line(record(), None, 20, number=3, head=None, now=NOW)) == 20


def test_a_row_names_what_is_not_whole_and_what_is_old():
    assert "incomplete before" in line_of(record(complete=False))
    assert line_of(record(-3, legacy=True)).startswith("  -")
    assert "0.3.6" in line_of(record(-3, legacy=True))


def test_nothing_in_a_row_is_interpreted_or_steers_the_terminal():
    made = record(message="[red]x[/] \x1b[31m\ttab\nsecond", tags=("[b]",))
    text = line_of(made)
    assert text.endswith("[[b]] [red]x[/] \\x1b[31m\\ttab")
    assert text.isprintable()


def test_all_rows_of_a_width_have_their_columns_in_line():
    rows = [line_of(record(seq, "M"), size=size, number=5) for seq, size in [(1, None), (1234, Size(12, 3456, 7))]]
    assert {text.index("M") for text in rows} == {32}


@pytest.mark.parametrize(
    ("ago", "expected"),
    [(-5, "now"), (0, "now"), (59, "59s"), (60, "1m"), (7200, "2h"), (86400 * 6, "6d"), (86400 * 20, "2w"),
     (86400 * 800, "2y")],
)  # fmt: skip
def test_ages_are_short(ago, expected):
    assert row.ago(stamp(ago), NOW) == expected


def test_sizes_of_changes():
    assert row.size_text(None) == "…"
    assert row.size_text(Size(0, 0, 0)) == "-"
    assert row.size_text(Size(3, 0, 12)) == "+3 -12"
    assert row.size_text(Size(1, 20, 3)) == "+1 ~20 -3"
    assert row.size_text(Size(1234, 5678, 9)) == "6.9k files"
    assert row.size_text(Size(123_456, 0, 0)) == "+123k"
    assert comparison.size_of((Change("a", "added"), Change("b", "type"), Change("c", "deleted"))) == Size(1, 1, 1)


def test_the_first_row_says_how_things_stand():
    head = record()
    told = {
        "looking …": (None, None),
        "no checkpoint yet: s saves one": (status(), None),
        "no changes since #7": (status(head=head), None),
        "1 change since #7": (status([Change("a", "modified")], head), None),
        "it is gone": (status(head=head), "it is gone"),
        "no changes since #7; a restore was cut off: ckpt resume": (status(head=head, interrupted=ID), None),
        "no changes since #7; head is an autosave, the last manual one is #4": (
            status(head=record(kind="auto"), last_manual=record(4)),
            None,
        ),
        "no changes since #7; head is an autosave, none is manual": (status(head=record(kind="auto")), None),
    }
    for words, (found, trouble) in told.items():
        assert plain(row.now_line(found, trouble, 90, number=3)) == f"now  {words}"


def test_what_a_row_has_no_room_for():
    text = row.about(record(client="ckpt\x1b", meta={"tool": "Edit", "agent": "a\n"}))
    assert text.endswith("3f78685038"[:0] + f"{ID[:10]}  by ckpt\\x1b  agent=a\\n  tool=Edit")
    assert row.about(record()).endswith(ID[:10])
    assert row.number_columns(None) == 3
    assert row.number_columns(record(12345)) == 6


# files


def test_a_file_is_a_letter_and_its_escaped_path():
    changes = (
        Change("src/main.py", "modified"),
        Change("new\n[red].txt", "added"),
        Change("bad\udcff", "deleted"),
        Change("empty", "added", dir=True),
        Change("x", "unheard of"),
    )
    compared = comparison.of_status(status(changes, record()))
    lines = [plain(compared.line(index, 40, marked=index == 0)) for index in range(5)]
    assert lines == ["*M src/main.py", ' A "new\\n[red].txt"', ' D "bad\\377"', " A empty/", " ? x"]
    assert compared.title == "now, since #7"
    assert (compared.target, compared.from_id, compared.to_id, compared.words()) == (ID, ID, None, "5 changes")
    assert plain(compared.line(0, 12, marked=False)) == " M …/main.py"


def test_what_is_compared():
    shown = ShowResult(record(), "b" * 40, (Change("a", "added"),), (), ())
    compared = comparison.of_show(shown)
    assert (compared.title, compared.from_id, compared.to_id, compared.target) == ("in #7", "b" * 40, ID, ID)
    plan = RestoreResult(ID, ("b", "a"), ("c",), ("k",), (), (), None, None, "d", False, True)
    since = comparison.of_plan(record(), plan)
    assert [(change.path, change.change) for change in since.changes] == [
        ("a", "differs"), ("b", "differs"), ("c", "added"),
    ]  # fmt: skip
    assert (since.from_id, since.to_id, since.title) == (ID, None, "since #7")
    assert comparison.of_status(status()).target is None
    assert Mode.BEFORE.other() is Mode.SINCE
    assert Mode.SINCE.other() is Mode.BEFORE


# patches


def shown(data: bytes, total: int | None = None, notes=()) -> list[tuple[str, str]]:
    lines = patch.of_patch(Patch(data, len(data) if total is None else total, notes))
    return [(plain(line), line[0].role) for line in lines]


PATCH = b"""\
diff --git a/x b/x
index 1..2 100644
--- a/x
+++ b/x
@@ -1,2 +1,2 @@ def f
 same\ttab
--- gone
+[red]new\x1b[2J\xff
"""


def test_a_patch_without_its_noise_and_nothing_interpreted():
    assert shown(PATCH) == [
        ("@@ -1,2 +1,2 @@ def f", "hunk"),
        (" same   tab", ""),
        ("--- gone", "deleted"),
        ("+[red]new\\x1b[2J\\xff", "added"),
    ]


def test_what_is_binary_is_said():
    data = b"diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 3\nKc$@<O00001\n\nliteral 0\nKc$@<O00001\n\n"
    second = b"diff --git a/x b/x\ndeleted file mode 100644\n"
    assert shown(data + second) == [
        ("binary file: its content is not shown", "note"),
        ("deleted file mode 100644", "note"),
    ]
    assert shown(b"diff --git a/x b/x\nBinary files a/x and b/x differ\n") == [
        ("Binary files a/x and b/x differ", "note")
    ]


def test_what_a_patch_has_no_words_for():
    assert shown(b"", notes=("x differs in its permissions\x1b",)) == [("x differs in its permissions\\x1b", "note")]
    assert shown(b"") == [("no difference in content", "dim")]


def test_a_long_patch_is_cut_and_says_so():
    many = b"@@ -0,0 +1,9000 @@\n" + b"+x\n" * 9000
    lines = shown(many)
    assert len(lines) == 5001
    assert lines[-1][0].startswith("… cut here: too long to show of 26.4 KiB")
    assert shown(PATCH, total=10_000_000)[-1][0].startswith("… cut here: too long to show of 9.5 MiB")
    (long,) = patch.of_file(b"x" * 5000, whole=True)
    assert width(long) == 2001


def test_a_file_that_is_new():
    assert [plain(line) for line in patch.of_file(b"a\tb\nc", whole=True)] == ["+a  b", "+c"]
    assert [plain(line) for line in patch.of_file(b"a\n\n", whole=True)] == ["+a", "+"]
    assert [plain(line) for line in patch.of_file(b"", whole=True)] == ["new, empty file"]
    assert [plain(line) for line in patch.of_file(b"a\0b", whole=True)] == ["new binary file, 3 B"]
    assert plain(patch.of_file(b"\0" * 2048, whole=False)[0]) == "new binary file, more than 2.0 KiB"
    assert plain(patch.of_file(b"a\n", whole=False)[-1]).startswith("… cut here")


# around the panes


class TestHeading:
    def test_it_fits_and_puts_what_goes_on_at_the_right(self):
        doing = heading.Doing(True)
        text = plain(heading.heading("~/shop", status(head=record()), doing, 40))
        assert text == "~/shop".ljust(36) + "live"
        busy = plain(heading.heading("~/shop", None, heading.Doing(True, "saving", "reading 3/9"), 50))
        assert busy.endswith("saving reading 3/9 …")
        gone = plain(heading.heading("~/shop", None, heading.Doing(False), 60))
        assert gone.endswith("no daemon: trying again …")
        assert "stopped: worktree_empty" in plain(heading.heading("w", status(halted="worktree_empty"), doing, 60))

    @pytest.mark.parametrize("columns", [10, 24, 40, 78])
    def test_it_never_takes_more_than_there_is(self, columns):
        line = heading.heading("/a/very/long/way/to/some/worktree", status(halted="x"), heading.Doing(False), columns)
        assert width(line) <= columns

    def test_below_home_a_path_begins_with_a_tilde(self):
        assert heading.place("/home/me/shop", "/home/me") == "~/shop"
        assert heading.place("/home/me", "/home/me/") == "~"
        assert heading.place("/home/meadow", "/home/me") == "/home/meadow"
        assert heading.place("/srv/x\n", None) == '"/srv/x\\n"'
        assert heading.place("/srv", "/") == "/srv"

    def test_how_many_there_are(self):
        assert heading.count_title(4, 4, more=False, query=" ") == "Checkpoints: 4"
        assert heading.count_title(200, 200, more=True, query="") == "Checkpoints: 200+"
        assert heading.count_title(3, 200, more=True, query="x\n") == "Checkpoints: 3 of 200+ match x"


def test_errors_are_a_line_and_what_to_do():
    error = error_of("tag_exists", "the tag \x1bx is there", hint="choose another")
    assert heading.noticed(error) == "the tag \\x1bx is there\nchoose another"
    assert not heading.is_only_gone(error)
    assert heading.is_only_gone(error_of("connection_lost", "it broke"))
    error.error_id, error.hint = "12ab", None
    assert heading.noticed(error) == "the tag \\x1bx is there (error 12ab in the daemon's log)"


def test_news_of_others():
    def event(kind, **data):
        return Event(1, stamp(0), kind, "/cd", "/ws", data)

    assert heading.news(event("autosave.failed", reason="no_space\x1b")) == "an autosave failed: no_space\\x1b"
    assert heading.news(event("autosave.halted", reason="worktree_empty")) == "autosave has stopped: worktree_empty"
    assert "ckpt resume" in heading.news(event("restore.interrupted"))
    assert heading.news(event("checkpoint.created")) is None


def test_progress_in_words():
    assert heading.progressed(Progress("write", 3, 9, 0)) == "writing 3/9"
    assert heading.progressed(Progress("hash", 3, 0, 2048)) == "reading 3 files, 2.0 KiB"
    assert heading.progressed(Progress("waiting", 0, 0, 0)) == "waiting for others"


# keys and panes


def test_the_footer_fits_eighty_columns():
    labels = [f"{key.shown} {key.label}" for key in keys.KEYS if key.label]
    assert sum(len(label) + 1 for label in labels) <= 80
    assert len({key.keys for key in keys.KEYS}) == len(keys.KEYS)


def test_the_keys_are_explained_within_a_dialog_of_eighty_columns():
    columns, _ = dialog_size(80, 24)
    lines = list(keys.key_lines())
    assert max(map(len, lines)) <= columns
    assert list(keys.help_lines())[1:] == lines
    assert any("undo the last restore" in line for line in lines)


@pytest.mark.parametrize(
    ("action", "state", "why"),
    [
        ("help", keys.State(connected=False, busy="saving"), None),
        ("restore_tree", keys.State(), None),
        ("restore_tree", keys.State(busy="saving"), "wait: saving"),
        ("save", keys.State(connected=False), "the daemon cannot be reached; it is tried again and again"),
        ("save", keys.State(has_target=False), None),
        ("tag", keys.State(has_target=False), "there is no checkpoint yet: s saves one"),
        ("restore_files", keys.State(files=0), "there is no file to restore here; r restores the whole tree"),
        ("restore_files", keys.State(files=1), None),
    ],
)
def test_what_keys_do_in_which_state(action, state, why):
    assert keys.refusal(action, state) == why


def test_the_panes_fold_with_the_screen():
    assert fold(120, 40) is Fold.WIDE
    assert fold(80, 24) is Fold.STACKED
    assert fold(59, 24) is Fold.SINGLE
    assert fold(120, 15) is Fold.SINGLE
    assert neighbour(Pane.TIMELINE, 1) is Pane.FILES
    assert neighbour(Pane.TIMELINE, -1) is PANES[-1]
    assert dialog_size(80, 24) == (70, 18)
    assert dialog_size(10, 5) == (20, 4)


def test_looks_and_retries_keep_their_pace():
    pace = Pace(look_s=4.0, share=25)
    assert pace.until_next_look(0.01) == 4.0
    assert pace.until_next_look(2.0) == 50.0
    assert [start for _, start in map(pace.retry, range(5))] == [False, False, False, True, True]
    assert [delay for delay, _ in map(pace.retry, range(9))][-1] == 10.0
    assert not any(start for _, start in map(Pace(may_start=False).retry, range(9)))
