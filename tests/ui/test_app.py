"""The timeline itself, with keys and mouse, on a real daemon behind a real socket."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

pytest.importorskip("textual", reason="the timeline needs textual, which is not installed")

from textual.pilot import Pilot
from textual.widgets import Button, Input
from textual.worker import WorkerFailed

from fabricatio_checkpoint.aio import AsyncCheckpointService, AsyncCheckPointStore
from fabricatio_checkpoint.progress import Progress
from fabricatio_checkpoint.ui import patch, timeline
from fabricatio_checkpoint.ui.app import Look, TimelineApp
from fabricatio_checkpoint.ui.pace import Pace
from fabricatio_checkpoint.ui.source import Source
from fabricatio_checkpoint.ui.widgets.dialog import Ask, Help, Question
from fabricatio_checkpoint.ui.widgets.lines import Lines, Rows

DEADLINE_S = 120.0
STEP_S = 0.03
SIZES = [(80, 24), (140, 40)]
# Nothing happens by itself: what a test sees is what its own steps have brought about.
STILL = Pace(look_s=100_000, first_retry_s=0.02, may_start=False)


class Remembering(TimelineApp):
    """Remembers what it said, with its severity; what is on the screen goes after a while."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.said: list[tuple[str, str]] = []

    def notify(self, message: str, **options: Any) -> None:
        self.said.append((message, options["severity"]))
        assert options["markup"] is False
        super().notify(message, **options)

    def errors(self) -> list[str]:
        return [text for text, severity in self.said if severity == "error"]


class Sight:
    """An app that runs, and what can be seen of it."""

    def __init__(self, app: Remembering, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for something to be so, however slow the machine is."""
        end = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end, f"still not so; on the screen:\n{self.text()}"
            await self.pilot.pause(STEP_S)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        await self.pilot.press(*("space" if char == " " else char for char in text))

    async def sees(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.text() for text in texts))

    async def settled(self) -> None:
        """Wait until what is selected is shown."""
        app = self.app
        await self.until(lambda: app.compared is not None and (not app.compared.changes or app.patch_shown))

    def text(self) -> str:
        """The whole screen as text."""
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    def pane(self, name: str) -> Rows:
        return self.app.screen_stack[0].query_one(f"#{name}", Rows)

    def patch(self) -> str:
        lines = self.app.screen_stack[0].query_one("#patch", Lines).lines
        return "\n".join("".join(span.text for span in line) for line in lines)

    async def asked(self) -> Question:
        """Wait for the question before a restore."""
        await self.until(lambda: isinstance(self.app.screen, Question) and self.app.screen.query("#cancel:focus"))
        return self.app.screen

    async def hears(self, text: str) -> None:
        await self.until(lambda: any(text in said for said, _ in self.app.said))


@contextlib.asynccontextmanager
async def seeing(resident, size=(80, 24), pace=STILL, look=None, ready=True) -> AsyncIterator[Sight]:
    service = resident.service()
    store = await asyncio.to_thread(service.get_store, resident.ws)
    app = Remembering(Source(AsyncCheckpointService.of(service), AsyncCheckPointStore(store)), pace, look)
    async with app.run_test(size=size, notifications=True) as pilot:
        sight = Sight(app, pilot)
        if ready:
            await sight.until(lambda: app.status is not None)
            await sight.settled()
        yield sight


def write(resident, **files: str | None) -> None:
    for name, text in files.items():
        path = resident.ws / name.replace("__", ".")
        if text is None:
            path.unlink()
        else:
            path.write_text(text)


@pytest.fixture
def store(resident):
    """Three checkpoints, and then somebody wrecks it."""
    made = resident.service().get_store(resident.ws)
    write(resident, a__py="one\n", b__py="b\n", keep__txt="k\n")
    made.save("first", tag="v1")
    write(resident, a__py="two\n")
    made.save("second")
    write(resident, c__py="c\n")
    made.save("third", kind="auto")
    write(resident, a__py="WRECK\n", b__py=None, junk__txt="junk\n")
    return made


@pytest.mark.parametrize("size", SIZES)
async def test_it_opens_with_the_newest_checkpoint_and_says_how_things_stand_now(store, resident, size):
    async with seeing(resident, size) as sight:
        await sight.sees("now  3 changes since #3; head is an autosave", "HEAD third", "[v1] first", "Checkpoints: 3")
        assert (sight.app.selected.seq, sight.pane("timeline").cursor) == (3, 1)
        await sight.sees("in #3: 1 change", "A c.py")
        await sight.until(lambda: sight.patch() == "new file mode 100644\n@@ -0,0 +1 @@\n+c")
        await sight.sees("+3", "~1", "live")
        await sight.press("up")
        await sight.sees("now, since #3: 3 changes", "M a.py", "D b.py", "A junk.txt")
        await sight.until(lambda: "+WRECK" in sight.patch())
        # The first checkpoint has nothing before it.
        await sight.press("end")
        await sight.sees("in #1: 3 changes")
        await sight.until(lambda: sight.patch() == "+one")


@pytest.mark.parametrize("size", SIZES)
async def test_the_tree_is_restored_undone_and_redone(store, resident, size):
    before = store.checkpoints()
    async with seeing(resident, size) as sight:
        await sight.press("down", "r")
        question = await sight.asked()
        assert question.preview.title == "Restore the whole tree to #2 (second)?"
        await sight.sees(
            "2 to write   2 to delete   0 to keep", "delete    c.py", "delete    junk.txt", "write     a.py"
        )
        # Enter alone means no.
        await sight.press("enter")
        await sight.until(lambda: not isinstance(sight.app.screen, Question))
        assert (resident.ws / "a.py").read_text() == "WRECK\n"
        assert store.checkpoints() == before
        await sight.press("r")
        await sight.asked()
        await sight.press("y")
        await sight.hears("restored to #2 (second): 2 written, 2 deleted, 0 kept. u takes it back")
        assert sorted(os.listdir(resident.ws)) == ["a.py", "b.py", "keep.txt"]
        assert (resident.ws / "a.py").read_text() == "two\n"
        # The safety checkpoint comes into the timeline, and the cursor stays where it was.
        await sight.sees("#4", "safety", "now  no changes since #2")
        assert sight.app.selected.seq == 2
        await sight.press("u")
        await sight.asked()
        await sight.press("y")
        await sight.hears("undone: 3 written, 1 deleted")
        assert (resident.ws / "junk.txt").read_text() == "junk\n"
        await sight.press("U")
        await sight.asked()
        await sight.press("tab", "enter")
        await sight.hears("redone: 2 written, 2 deleted")
        assert not (resident.ws / "junk.txt").exists()


async def test_marked_files_are_restored_and_nothing_else(store, resident):
    async with seeing(resident) as sight:
        await sight.press("up")
        await sight.sees("now, since #3: 3 changes")
        await sight.press("tab", "down", "space", "space")
        await sight.sees("2 files marked: f restores", "*D b.py", "*A junk.txt")
        await sight.press("f")
        question = await sight.asked()
        assert question.preview.title == "Restore 2 files from #3 (third)?"
        await sight.press("y")
        await sight.hears("restored 2 files from #3 (third): 1 written, 1 deleted")
        assert (resident.ws / "b.py").read_text() == "b\n"
        assert not (resident.ws / "junk.txt").exists()
        assert (resident.ws / "a.py").read_text() == "WRECK\n"
        await sight.sees("now, since #3: 1 change")


async def test_the_file_under_the_cursor_is_restored_without_a_mark(store, resident):
    async with seeing(resident) as sight:
        await sight.press("end", "enter")
        await sight.sees("in #1: 3 changes")
        await sight.settled()
        await sight.press("f")
        assert (await sight.asked()).preview.title == "Restore a.py from #1 (first)?"
        await sight.press("y")
        await sight.hears("restored a.py from #1 (first)")
        assert (resident.ws / "a.py").read_text() == "one\n"


async def test_what_changed_since_a_checkpoint_was_made(store, resident):
    async with seeing(resident) as sight:
        await sight.press("down", "c")
        await sight.sees("since #2: 4 changes", "M a.py", "M b.py", "A c.py", "A junk.txt")
        await sight.until(lambda: "+WRECK" in sight.patch())
        await sight.press("c")
        await sight.sees("in #2: 1 change")


async def test_a_change_between_question_and_answer_is_asked_about_again(store, resident):
    async with seeing(resident) as sight:
        await sight.press("r")
        first = await sight.asked()
        write(resident, late__txt="late\n")
        await sight.press("y")
        await sight.sees("Something has changed in between. This is the plan now:", "delete    late.txt")
        second = await sight.asked()
        assert second is not first
        assert (resident.ws / "a.py").read_text() == "WRECK\n"
        await sight.press("y")
        await sight.hears("restored to #3 (third)")
        assert not (resident.ws / "late.txt").exists()


async def test_conflicts_have_to_be_left_out_by_choice(store, resident):
    (resident.ws / "a.py").unlink()
    os.mkfifo(resident.ws / "a.py")
    async with seeing(resident) as sight:
        await sight.press("r")
        question = await sight.asked()
        assert (question.preview.go, question.preview.skip) == (None, True)
        await sight.sees("1 conflict", "a.py (special")
        await sight.press("y")
        assert sight.app.screen is question
        await sight.press("x")
        await sight.until(lambda: sight.app.screen is not question)
        assert (await sight.asked()).preview.go == "Restore"
        await sight.press("y")
        await sight.hears("1 conflict left alone: a.py")
        assert (resident.ws / "b.py").exists()


async def test_a_worktree_that_is_gone_altogether_comes_back(store, resident):
    async with seeing(resident) as sight:
        for path in resident.ws.iterdir():
            path.unlink()
        resident.ws.rmdir()
        await sight.press("r")
        await sight.asked()
        await sight.sees("The worktree is gone; its directory is made again.", "4 to write")
        await sight.press("y")
        await sight.hears("restored to #3 (third): 4 written")
        assert (resident.ws / "c.py").read_text() == "c\n"


@pytest.mark.parametrize("size", SIZES)
async def test_what_a_second_client_saves_appears_by_itself(store, resident, size):
    async with seeing(resident, size) as sight:
        other = resident.service().get_store(resident.ws)
        await asyncio.to_thread(other.save, "by somebody else")
        await sight.sees("#4", "HEAD by somebody else", "now  no changes since #4", "Checkpoints: 4")
        assert (sight.app.selected.seq, sight.pane("timeline").cursor) == (3, 2)
        await asyncio.to_thread(other.reset, "#1")
        await sight.sees("safety", "HEAD [v1] first", "now  no changes since #1")


async def test_what_others_dropped_goes_when_it_is_looked_at_again(store, resident):
    async with seeing(resident) as sight:
        await asyncio.to_thread(store.drop, "#2")
        write(resident, more__txt="m\n")
        await sight.press("f5")
        await sight.sees("Checkpoints: 2", "now  4 changes since #3")


async def test_the_worktree_is_looked_at_from_time_to_time(store, resident):
    async with seeing(resident, pace=Pace(look_s=0.05, share=1, may_start=False)) as sight:
        await sight.press("home")
        await sight.sees("now, since #3: 3 changes")
        write(resident, more__txt="m\n")
        await sight.sees("now  4 changes since #3", "A more.txt")
        write(resident, a__py="WRECKED AGAIN\n")
        await sight.until(lambda: "+WRECKED AGAIN" in sight.patch())


async def test_a_daemon_that_goes_is_said_and_found_again(store, resident):
    async with seeing(resident) as sight:
        await asyncio.to_thread(resident.stop)
        await sight.sees("no daemon: trying again …")
        await sight.hears("the daemon is gone\nit is looked for again and again")
        await sight.press("r")
        await sight.hears("the daemon cannot be reached; it is tried again and again")
        await asyncio.to_thread(resident.start)
        await sight.hears("the daemon is there again")
        await sight.sees("live")
        other = resident.service().get_store(resident.ws)
        await asyncio.to_thread(other.save, "after the restart")
        await sight.sees("HEAD after the restart")
        await sight.press("r")
        await sight.asked()


async def test_saving_and_tagging(store, resident):
    async with seeing(resident) as sight:
        await sight.press("s")
        await sight.until(lambda: isinstance(sight.app.screen, Ask))
        await sight.type("my own [b]words[/b]")
        await sight.press("enter")
        await sight.hears("saved #4")
        await sight.sees("HEAD my own [b]words[/b]", "now  no changes since #4")
        await sight.press("s", "enter")
        await sight.hears("nothing has changed since #4")
        await sight.press("home", "t")
        await sight.until(lambda: isinstance(sight.app.screen, Ask))
        await sight.type("good")
        await sight.press("enter")
        await sight.hears("tagged #4 (my own [b]words[/b]): good")
        await sight.sees("[good] my own")
        await sight.press("s", "escape")
        await sight.until(lambda: not isinstance(sight.app.screen, Ask))
        assert len(store.checkpoints()) == 4
        assert store.head() == store.show("good").checkpoint.id


async def test_an_error_is_said_with_what_to_do_and_ends_nothing(store, resident):
    async with seeing(resident) as sight:
        await sight.press("u")
        await sight.until(lambda: len(sight.app.errors()) == 1)
        message, hint = sight.app.errors()[0].split("\n")
        assert "undo" in message
        assert "ckpt reset" in hint
        await sight.press("t")
        await sight.until(lambda: isinstance(sight.app.screen, Ask))
        await sight.type("v1")
        await sight.press("enter")
        await sight.until(lambda: len(sight.app.errors()) == 2)
        assert "v1" in sight.app.errors()[1]
        await sight.press("up")
        await sight.sees("now, since #3: 3 changes")


async def test_a_store_without_a_checkpoint(resident):
    async with seeing(resident) as sight:
        await sight.sees("now  no checkpoint yet: s saves one", "Checkpoints: 0")
        await sight.press("r")
        await sight.hears("there is no checkpoint yet: s saves one")
        write(resident, a__txt="a\n")
        await sight.press("s", "enter")
        await sight.hears("saved #1")
        await sight.sees("now  no changes since #1")


async def test_filter_by_keys(store, resident):
    async with seeing(resident) as sight:
        await sight.press("slash")
        await sight.type("v1")
        await sight.sees("1 of 3 match v1")
        assert [row and row.seq for row in sight.app._rows] == [None, 1]
        await sight.press("enter", "down")
        await sight.until(lambda: sight.app.selected is not None)
        assert sight.app.selected.seq == 1
        await sight.press("escape")
        await sight.sees("Checkpoints: 3")
        assert sight.app.selected.seq == 1
        await sight.press("slash")
        await sight.type("auto")
        await sight.sees("1 of 3 match auto")
        await sight.press("escape")
        await sight.sees("Checkpoints: 3")
        assert not sight.app.screen.query_one("#filter", Input).display


async def test_a_long_history_comes_in_pages(resident, monkeypatch):
    monkeypatch.setattr(timeline, "_PAGE", 15)
    monkeypatch.setattr(timeline, "_PAGE_OF_A_SEARCH", 25)
    monkeypatch.setattr(timeline, "_AHEAD", 5)
    made = resident.service().get_store(resident.ws)
    for number in range(1, 71):
        write(resident, a__txt=f"{number}\n")
        made.save(f"number {number}")
    async with seeing(resident) as sight:
        await sight.sees("Checkpoints: 15+")
        await sight.press("end")
        await sight.sees("Checkpoints: 30+", "number 56")
        while sight.app.timeline.more:
            await sight.press("end")
            await sight.pilot.pause(STEP_S)
        await sight.press("end")
        await sight.sees("Checkpoints: 70", "number 1 ")
        assert [record.seq for record in sight.app.timeline.records] == list(range(70, 0, -1))
        # What comes on top moves nothing else.
        write(resident, a__txt="one more\n")
        await asyncio.to_thread(made.save, "one more")
        await sight.sees("Checkpoints: 71")
        assert [record.seq for record in sight.app.timeline.records] == list(range(71, 0, -1))
    async with seeing(resident) as sight:
        await sight.press("slash")
        await sight.type("number 7")
        # All are looked through for the few that match.
        await sight.sees("Checkpoints: 8 of 71 match number 7")
        assert [row.seq for row in sight.app._rows[1:] if row] == [70, 67, 57, 47, 37, 27, 17, 7]


async def test_odd_names_and_messages_are_shown_and_never_obeyed(resident):
    names = [b"[red]x[bold].txt", b"new\nline\x1b[31m", b"bad\xff", "日本語.txt".encode(), b"$var [@click=app.quit]"]
    for name in names:
        (resident.ws / os.fsdecode(name)).write_bytes(b"[bold]content[/bold]\x1b[2J\n")
    made = resident.service().get_store(resident.ws)
    made.save("[@click=quit]q[/] \x1b]\x07[red]")
    for name in names:
        (resident.ws / os.fsdecode(name)).unlink()
    async with seeing(resident, (140, 40)) as sight:
        await sight.sees(
            "[@click=quit]q[/] \\x1b]\\x07[red]", "[red]x[bold].txt", '"new\\nline\\033[31m"',
            '"bad\\377"', "日本語.txt", "$var [@click=app.quit]",
        )  # fmt: skip
        await sight.until(lambda: "[bold]content[/bold]\\x1b[2J" in sight.patch())
        await sight.press("r")
        await sight.asked()
        await sight.sees("[@click=quit]q[/]", "[red]x[bold].txt", '"bad\\377"')
        await sight.press("y")
        await sight.hears("[@click=quit]q[/] \\x1b]\\x07[red]")
        assert sorted(os.listdir(os.fsencode(resident.ws))) == sorted(names)
        text = sight.text()
        assert all(line.isprintable() for line in text.splitlines())


async def test_large_and_binary_files(resident, monkeypatch):
    monkeypatch.setattr(patch, "MAX_BYTES", 10_000)
    made = resident.service().get_store(resident.ws)
    made.save("empty")
    (resident.ws / "large.txt").write_text("".join(f"{n}\n" for n in range(20_000)))
    (resident.ws / "zero.bin").write_bytes(bytes(range(256)) * 9)
    (resident.ws / "folder").mkdir()
    made.save("large and binary")
    async with seeing(resident) as sight:
        await sight.sees("large.txt", "folder/")
        await sight.press("tab")
        for name, words in {"folder": "", "large.txt": "… cut here: too long", "zero.bin": "binary file"}.items():
            await sight.until(lambda name=name: sight.app.patch_shown == name)
            assert words in sight.patch()
            await sight.press("down")
    async with seeing(resident) as sight:
        await sight.press("c")
        await sight.sees("since #2: no changes")


async def test_by_mouse_alone(store, resident):
    async with seeing(resident) as sight:
        pilot = sight.pilot
        await pilot.click("#timeline", offset=(20, 3))
        await sight.sees("in #2: 1 change")
        assert sight.app.selected.seq == 2
        # Another click goes on to its files.
        await pilot.click("#timeline", offset=(20, 3))
        await sight.until(lambda: sight.app.focused is sight.pane("files"))
        # Below the last row there is nothing to select.
        await pilot.click("#timeline", offset=(20, 7))
        assert sight.app.selected.seq == 2
        await pilot.click("FooterKey")
        question = await sight.asked()
        assert question.preview.title.startswith("Restore the whole tree to #2")
        await pilot.click(Button, offset=(2, 0))
        await sight.until(lambda: not isinstance(sight.app.screen, Question))
        await pilot.click("FooterKey")
        await sight.asked()
        await pilot.click("#go")
        await sight.hears("restored to #2 (second)")


async def test_focus_goes_round_and_enter_goes_on(store, resident):
    async with seeing(resident) as sight:
        app = sight.app
        seen = []
        for key in ("tab", "tab", "tab", "shift+tab", "escape", "enter", "escape", "escape"):
            await sight.press(key)
            await sight.pilot.pause()
            seen.append(app.focused.id)
        assert seen == ["files", "patch", "timeline", "patch", "files", "patch", "files", "timeline"]


async def test_on_a_tiny_screen_there_is_one_pane_at_a_time(store, resident):
    async with seeing(resident, (44, 12)) as sight:
        await sight.sees("Checkpoints: 3")
        assert "c.py" not in sight.text()
        await sight.press("enter")
        await sight.sees("A c.py")
        assert "Checkpoints" not in sight.text()
        await sight.press("tab")
        await sight.sees("+c")
        await sight.press("r")
        await sight.asked()
        await sight.sees("Cancel (n)", "Restore (y)")
        await sight.press("n")
        await sight.pilot.resize_terminal(120, 40)
        await sight.sees("Checkpoints: 3", "A c.py", "+c")


async def test_help_and_the_way_out(store, resident):
    async with seeing(resident) as sight:
        await sight.press("question_mark")
        await sight.until(lambda: isinstance(sight.app.screen, Help))
        await sight.sees("restore the whole tree to the selected checkpoint", "quit; so does Ctrl+C")
        await sight.press("escape")
        await sight.until(lambda: not isinstance(sight.app.screen, Help))
        await sight.press("q")
        await sight.until(lambda: sight.app._exit)
    assert sight.app.return_code == 0


async def test_ctrl_c_ends_it_even_at_a_question(store, resident):
    async with seeing(resident) as sight:
        await sight.press("r")
        await sight.asked()
        await sight.press("ctrl+c")
        await sight.until(lambda: sight.app._exit)
    assert (resident.ws / "a.py").read_text() == "WRECK\n"


class SlowSource(Source):
    """Saves when it is let, and tells how far it is."""

    async def save(self, message, progress):
        progress(Progress("hash", 3, 9, 0))
        await self.gate.wait()
        return await super().save(message, progress)


async def test_a_long_save_shows_how_far_it_is_and_is_not_quit_by_accident(store, resident):
    service = resident.service()
    source = SlowSource(AsyncCheckpointService.of(service), AsyncCheckPointStore(service.get_store(resident.ws)))
    source.gate = asyncio.Event()
    app = Remembering(source, STILL)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        sight = Sight(app, pilot)
        await sight.sees("Checkpoints: 3")
        await sight.press("s", "enter")
        await sight.sees("saving reading 3/9 …")
        await sight.press("r")
        await sight.hears("wait: saving")
        await sight.press("q")
        await sight.hears("saving: wait for its end, or quit once more to call it off")
        assert not app._exit
        source.gate.set()
        await sight.hears("saved #4")
        await sight.press("q")
        await sight.until(lambda: app._exit)


class BrokenSource(Source):
    """Has a bug."""

    async def look(self):
        raise ZeroDivisionError("a bug")


async def test_a_bug_ends_it_without_a_traceback_on_the_screen(store, resident, capfd):
    service = resident.service()
    source = BrokenSource(AsyncCheckpointService.of(service), AsyncCheckPointStore(service.get_store(resident.ws)))
    app = Remembering(source, STILL)
    with pytest.raises(WorkerFailed):
        async with app.run_test() as pilot:
            await Sight(app, pilot).until(lambda: app.broken_by is not None)
    assert isinstance(app.broken_by, WorkerFailed)
    assert isinstance(app.broken_by.error, ZeroDivisionError)
    assert app.return_code == 1
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light", "ansi-dark", "ansi-light"])
async def test_it_can_be_read_in_every_theme(store, resident, theme, monkeypatch):
    colour = not theme.startswith("ansi")
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    async with seeing(resident, look=Look(colour=colour, theme=theme)) as sight:
        await sight.sees("HEAD third", "live")
        cursor = next(
            strip for strip in sight.app.screen._compositor.render_strips() if strip.text.lstrip("┃│").startswith("> ")
        )
        style = next(segment.style for segment in cursor if "third" in segment.text)
        if colour:
            assert style.color.triplet != style.bgcolor.triplet
        else:
            assert style.reverse
