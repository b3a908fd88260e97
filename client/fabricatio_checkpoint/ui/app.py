"""``ckpt ui``: the program. It takes keys and events, asks its source, and shows what the pure modules make of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import ClassVar, NamedTuple, TypeVar

from textual import events, on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.widgets import Footer, Input, Static

from fabricatio_checkpoint.cli.text import counted, quoted, visible
from fabricatio_checkpoint.errors import CheckpointError
from fabricatio_checkpoint.events import Event
from fabricatio_checkpoint.progress import Progress
from fabricatio_checkpoint.record import Change, CheckpointRecord, RestoreResult, StatusResult
from fabricatio_checkpoint.ui import heading, preview, row
from fabricatio_checkpoint.ui.comparison import Comparison, Mode, Size, of_status
from fabricatio_checkpoint.ui.flow import restore
from fabricatio_checkpoint.ui.fold import PANES, Fold, Pane, dialog_size, fold, neighbour
from fabricatio_checkpoint.ui.keys import KEYS, State, refusal
from fabricatio_checkpoint.ui.pace import Pace
from fabricatio_checkpoint.ui.preview import Preview, Verb, Wish
from fabricatio_checkpoint.ui.source import Source
from fabricatio_checkpoint.ui.span import Line, Span
from fabricatio_checkpoint.ui.style import CSS
from fabricatio_checkpoint.ui.timeline import NOW, Timeline, cursor_after, page_size, wants_page
from fabricatio_checkpoint.ui.widgets.dialog import Ask, Help, Question, content
from fabricatio_checkpoint.ui.widgets.lines import Lines, Rows

__all__ = ["Look", "TimelineApp"]

_T = TypeVar("_T")

_SETTLE_S = 0.08
"""A cursor that is only passing asks for nothing."""

_AGES_S = 20.0
"""How often the ages of checkpoints are drawn again."""

_TOAST_S = 8.0
"""How long what was done, or went wrong, stays on the screen."""


_FILTER_HINT = "message, tag, kind, id or #number; Enter keeps it, Esc ends it"
_SAVE_HINT = "Its message, or nothing. Enter saves, Esc does not."
_TAG_HINT = "A name without spaces. A checkpoint with a tag is never thinned."


class Look(NamedTuple):
    """How the user wants it: ``colour`` False for none, ``theme`` by its name (default: Textual's own).

    Below ``home`` paths begin with a tilde.
    """

    colour: bool = True
    theme: str | None = None
    home: str | None = None


class _Main(Screen[None]):
    """What lies below all dialogs; its keys are not theirs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, f"app.{key.action}", key.label, show=bool(key.label), key_display=key.shown) for key in KEYS
    ]


class TimelineApp(App[None]):
    """The timeline of one worktree. ``broken_by`` is the bug that ended it, if one did."""

    CSS = CSS
    TITLE = "ckpt ui"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "quit", show=False, priority=True)]

    def __init__(self, source: Source, pace: Pace | None = None, look: Look | None = None) -> None:
        look = look or Look()
        # Without colours of ours the terminal's own are left alone: nothing but bold and reverse is sent.
        super().__init__(ansi_color=None if look.colour else True)
        if look.theme is not None:
            self.theme = look.theme
        self.source = source
        self.broken_by: Exception | None = None
        self.timeline = Timeline()
        self.compared: Comparison | None = None
        self.status: StatusResult | None = None
        self.connected = True
        self.patch_shown: str | None = None
        self._pace = pace or Pace()
        self._place = heading.place(source.worktree, look.home)
        self._query = ""
        self._rows: tuple[CheckpointRecord | None, ...] = (NOW,)
        self._sizes: dict[str, Size | None] = {}
        self._trouble: str | None = None
        self._mode = Mode.BEFORE
        self._marked: set[str] = set()
        self._asked_for: object = None
        self._reading: object = None
        self._read_again = False
        self._at = Pane.TIMELINE
        # Held here and not looked up: what ends late may still write into them when the screen has gone.
        self._head = Static(id="head")
        self._timeline_pane = Rows(self._draw_row, id=Pane.TIMELINE.value)
        self._files_pane = Rows(self._draw_file, id=Pane.FILES.value)
        self._patch_pane = Lines(id=Pane.PATCH.value)
        self._panes: dict[Pane, Lines] = dict(
            zip(PANES, (self._timeline_pane, self._files_pane, self._patch_pane), strict=True)
        )
        self._filter = Input(id="filter", placeholder=_FILTER_HINT, compact=True)
        self._busy: str | None = None
        self._progress = ""
        self._paging = False
        self._asked_to_quit = False
        self._stale = asyncio.Event()
        self._unsized = asyncio.Event()

    # -- the screen

    def get_default_screen(self) -> Screen[None]:
        """Give the screen below all dialogs."""
        return _Main(id="_default")

    def compose(self) -> ComposeResult:
        """Lay it out."""
        yield self._head
        with Container(id="panes"):
            yield from self._panes.values()
        yield self._filter
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Begin to ask."""
        self._arrange(self.size.width, self.size.height)
        self._go_to(Pane.TIMELINE)
        self._stale.set()
        self._listen()
        self._follow()
        self._measure()
        self.set_interval(_AGES_S, self._timeline_pane.refresh)

    def on_resize(self, event: events.Resize) -> None:
        """Arrange the panes anew."""
        self._arrange(event.size.width, event.size.height)
        self._retitle()

    def _arrange(self, columns: int, rows: int) -> None:
        chosen = fold(columns, rows)
        for each in Fold:
            self._main.set_class(each is chosen, f"-{each.value}")

    @property
    def _main(self) -> Screen[object]:
        return self.screen_stack[0]

    @property
    def selected(self) -> CheckpointRecord | None:
        """The checkpoint under the cursor, None for the row of now."""
        return self._rows[min(self._timeline_pane.cursor, len(self._rows) - 1)]

    def _go_to(self, pane: Pane) -> None:
        self._at = pane
        for each, widget in self._panes.items():
            widget.set_class(each is not pane, "-away")
        self._panes[pane].focus()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Remember where the focus is, also where the mouse put it."""
        for pane, widget in self._panes.items():
            if widget is event.widget:
                self._at = pane

    def _retitle(self) -> None:
        """Write the words around the panes."""
        doing = heading.Doing(self.connected, self._busy, self._progress)
        line = heading.heading(self._place, self.status, doing, self.size.width - 2)
        self._head.update(content((line,)), layout=False)
        known, more = len(self.timeline.records), self.timeline.more
        title = heading.count_title(len(self._rows) - 1, known, more=more, query=self._query)
        record = self.selected
        self._timeline_pane.border_title = Content(title)
        self._timeline_pane.border_subtitle = Content("" if record is None else row.about(record))
        compared = self.compared
        self._files_pane.border_title = Content("" if compared is None else f"{compared.title}: {compared.words()}")
        marked = counted(len(self._marked), "file") + " marked: f restores" if self._marked else ""
        self._files_pane.border_subtitle = Content(marked)
        self._patch_pane.border_title = Content(self._path_title())

    def _path_title(self) -> str:
        change = self._change()
        return "Diff" if change is None else quoted(change.path)

    def _draw_row(self, index: int, columns: int) -> Line:
        record = self._rows[index]
        number = row.number_columns(self.timeline.records[0] if self.timeline.records else None)
        if record is NOW:
            return row.now_line(self.status, self._trouble, columns, number=number)
        head, size = None if self.status is None else self.status.head, self._sizes.get(record.id)
        return row.record_line(record, size, columns, number=number, head=head, now=time.time())

    def _draw_file(self, index: int, columns: int) -> Line:
        compared = self.compared
        if compared is None or index >= len(compared.changes):
            return ()
        return compared.line(index, columns, marked=compared.changes[index].path in self._marked)

    # -- what is asked without anybody pressing a key

    @work(group="listen")
    async def _listen(self) -> None:
        """Hear what happens; where the daemon goes, say so and look for it until it is there again."""
        attempt = 0
        while True:
            delay_s, start = self._pace.retry(attempt)
            try:
                stream = await self.source.listen(start=start)
            except CheckpointError as error:
                self._lost(error)
                attempt += 1
                await asyncio.sleep(delay_s)
                continue
            attempt = 0
            self._found()
            try:
                while (event := await self.source.next_event(stream)) is not None:
                    self._heard(event)
            except CheckpointError as error:
                self._lost(error)
            finally:
                stream.close()

    def _lost(self, error: CheckpointError) -> None:
        if self.connected:
            self.connected = False
            text = "the daemon is gone" if heading.is_only_gone(error) else heading.noticed(error)
            self._say(f"{text}\nit is looked for again and again", "warning")
        elif not heading.is_only_gone(error):
            self._trouble = heading.noticed(error).splitlines()[0]
        self._retitle()

    def _found(self) -> None:
        if not self.connected:
            self.connected = True
            self._say("the daemon is there again")
        self._stale.set()
        self._retitle()

    def _heard(self, event: Event) -> None:
        if (text := heading.news(event)) is not None:
            self._say(text, "warning")
        self._stale.set()

    @work(group="follow")
    async def _follow(self) -> None:
        """Look at what is new whenever something happened, and from time to time at the worktree."""
        wait_s = 0.0
        while True:
            try:
                await asyncio.wait_for(self._stale.wait(), wait_s or None)
            except TimeoutError:
                if not self.app_focus:
                    continue
            told = self._stale.is_set()
            self._stale.clear()
            if not self.connected or self._busy is not None:
                # Whoever ends that state says so.
                wait_s = 0.0
                continue
            begun = time.monotonic()
            await self._look_again(told=told)
            wait_s = self._pace.until_next_look(time.monotonic() - begun)

    async def _look_again(self, *, told: bool) -> None:
        try:
            if told:
                page, more = await self.source.page(page_size(""))
                first = not self.timeline.records
                self.timeline = self.timeline.renewed(page, more=more)
                self._refill(1 if first else None)
            before, self.status = self.status, await self.source.look()
            self._trouble = None
        except CheckpointError as error:
            if not heading.is_only_gone(error):
                self._trouble = heading.noticed(error).splitlines()[0]
            before = self.status
        self._timeline_pane.refresh()
        self._retitle()
        if self.selected is NOW or (self._mode is Mode.SINCE and before != self.status):
            self._compare(0.0)

    def watch_app_focus(self, focus: bool) -> None:
        """Look at once when the terminal's window is looked at again."""
        if focus:
            self._stale.set()

    @work(group="measure")
    async def _measure(self) -> None:
        """Find out the sizes of the checkpoints on the screen, one after the other."""
        while True:
            await self._unsized.wait()
            self._unsized.clear()
            while self.connected and (record := self._next_unsized()) is not None:
                try:
                    self._sizes[record.id] = await self.source.size(record)
                except CheckpointError as error:
                    if heading.is_only_gone(error):
                        break
                    # The row goes on saying that it is not known; whoever selects it hears why.
                    self._sizes[record.id] = None
                self._timeline_pane.refresh()

    def _next_unsized(self) -> CheckpointRecord | None:
        for index in self._timeline_pane.visible_rows():
            record = self._rows[index] if index < len(self._rows) else NOW
            if record is not NOW and record.id not in self._sizes:
                return record
        return None

    @work(group="page")
    async def _read_pages(self) -> None:
        """Read older checkpoints until there are enough to scroll to."""
        self._paging = True
        try:
            while self._wants_page():
                records = self.timeline.records
                before = records[-1].seq if records else None
                page, more = await self.source.page(page_size(self._query), before)
                if (self.timeline.records[-1:] or (None,))[0] is (records[-1:] or (None,))[0]:
                    self.timeline = self.timeline.extended(page, more=more)
                    self._refill()
        except CheckpointError as error:
            self._tell(error, quiet=heading.is_only_gone(error))
        finally:
            self._paging = False

    def _wants_page(self) -> bool:
        return self.connected and wants_page(self.timeline, len(self._rows), self._timeline_pane.visible_rows().stop)

    def _refill(self, cursor: int | None = None) -> None:
        """Show the rows that there are now; the cursor stays with its checkpoint."""
        before, self._rows = self._rows, self.timeline.rows(self._query)
        pane = self._timeline_pane
        if cursor is None or len(self._rows) <= cursor:
            cursor = cursor_after(before, pane.cursor, self._rows)
        pane.fill(len(self._rows), cursor)
        self._unsized.set()
        self._retitle()

    @on(Rows.Seen, "#timeline")
    def _see(self) -> None:
        self._unsized.set()
        if not self._paging and self.timeline.records and self._wants_page():
            self._read_pages()

    # -- what is selected

    @on(Rows.Moved, "#timeline")
    def _select(self) -> None:
        self._see()
        self._retitle()
        if (self.selected and self.selected.id, self._mode) != self._asked_for:
            # What is shown is of another checkpoint: no key may mean a file of it from now on.
            self._show_compared(None)
            self._compare(_SETTLE_S)

    @work(group="compare", exclusive=True)
    async def _compare(self, settle_s: float) -> None:
        """Find out what differs for the selected row."""
        record, mode = self.selected, self._mode
        self._asked_for = (record and record.id, mode)
        if settle_s:
            await asyncio.sleep(settle_s)
        if record is NOW:
            compared = None if self.status is None else of_status(self.status)
        else:
            try:
                compared = await self.source.compare(record, mode)
            except CheckpointError as error:
                self._asked_for = None
                compared = None
                self._tell(error, quiet=heading.is_only_gone(error))
        self._show_compared(compared)

    def _show_compared(self, compared: Comparison | None) -> None:
        before, self.compared = self.compared, compared
        pane = self._files_pane
        paths = [] if compared is None else [change.path for change in compared.changes]
        same = before is not None and compared is not None and before.title == compared.title
        cursor = 0
        if same and before is not None and pane.cursor < len(before.changes):
            path = before.changes[pane.cursor].path
            cursor = paths.index(path) if path in paths else pane.cursor
        self._marked = self._marked & set(paths) if same else set()
        pane.fill(len(paths), cursor)
        self._retitle()

    def _change(self) -> Change | None:
        """The file under the cursor."""
        changes = () if self.compared is None else self.compared.changes
        return changes[self._files_pane.cursor] if self._files_pane.cursor < len(changes) else None

    @on(Rows.Moved, "#files")
    def _select_file(self) -> None:
        self._retitle()
        wanted = self._difference()
        if wanted is not None and wanted == self._reading:
            # Begun anew at each look, a patch that takes longer than that would never be there.
            self._read_again = True
        else:
            self._read_patch()

    def _difference(self) -> tuple[object, ...] | None:
        """What tells the selected file's difference from any other."""
        change, compared = self._change(), self.compared
        return None if change is None or compared is None else (compared.title, change.path)

    @work(group="patch", exclusive=True)
    async def _read_patch(self) -> None:
        """Show how the selected file differs; once more where it was asked for meanwhile."""
        mine = self._reading = self._difference()
        self.patch_shown = None
        try:
            if mine is not None:
                await asyncio.sleep(_SETTLE_S)
            self._read_again = True
            while self._read_again:
                self._read_again = False
                await self._show_patch()
        finally:
            if self._reading is mine:
                self._reading = None

    async def _show_patch(self) -> None:
        change, compared = self._change(), self.compared
        lines: tuple[Line, ...] = ()
        if change is not None and compared is not None:
            try:
                lines = await self.source.patch(compared, change)
            except CheckpointError as error:
                lines = tuple((Span(text, "error"),) for text in heading.noticed(error).splitlines())
        if lines != self._patch_pane.lines:
            self._patch_pane.show(lines)
        self.patch_shown = None if change is None else change.path

    # -- the keys

    def action_pane(self, step: int) -> None:
        """Go to another pane."""
        self._go_to(neighbour(self._at, step))

    def action_enter(self) -> None:
        """Go on from what is selected."""
        if self._at is not Pane.PATCH:
            self._go_to(neighbour(self._at, 1))

    def action_leave(self) -> None:
        """Go back: out of the filter, else to the pane before."""
        if self._filter.display:
            self._filter.clear()
            self._filter.remove_class("-shown")
            self._go_to(Pane.TIMELINE)
        elif self._at is not Pane.TIMELINE:
            self._go_to(neighbour(self._at, -1))

    @on(Rows.Chosen)
    def _choose(self) -> None:
        self.action_enter()

    def action_mark(self) -> None:
        """Mark the file under the cursor, or take its mark away, and go to the next one."""
        change = self._change()
        if self._at is Pane.FILES and change is not None:
            self._marked ^= {change.path}
            self._files_pane.action_move(1)
            self._files_pane.refresh()
            self._retitle()

    def action_compare(self) -> None:
        """Compare checkpoints with what was before them, or with now."""
        self._mode = self._mode.other()
        self._compare(0.0)

    def action_refresh(self) -> None:
        """Look at everything again."""
        self._stale.set()
        self._compare(0.0)

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Help())

    def action_filter(self) -> None:
        """Type a filter."""
        self._filter.add_class("-shown")
        self._filter.focus()

    @on(Input.Changed, "#filter")
    def _narrow(self, event: Input.Changed) -> None:
        self._query = event.value
        self._refill()

    @on(Input.Submitted, "#filter")
    def _narrowed(self) -> None:
        if not self._query.strip():
            self._filter.remove_class("-shown")
        self._go_to(Pane.TIMELINE)

    async def action_quit(self) -> None:
        """End, unless files are being written: then say so, and end when asked once more."""
        if self._busy is not None and not self._asked_to_quit:
            self._asked_to_quit = True
            self._say(f"{self._busy}: wait for its end, or quit once more to call it off", "warning")
            return
        self.exit()

    # -- what changes something

    def action_restore_tree(self) -> None:
        """Restore everything."""
        if self._may("restore_tree") and self._target is not None:
            self._restore(Wish(Verb.RESET, *self._target))

    def action_restore_files(self) -> None:
        """Restore what is marked, or the file under the cursor."""
        change = self._change()
        if self._may("restore_files") and self._target is not None and change is not None:
            self._restore(Wish(Verb.ROLLBACK, *self._target, tuple(sorted(self._marked)) or (change.path,)))

    def action_undo(self) -> None:
        """Undo the last restore."""
        if self._may("undo"):
            self._restore(Wish(Verb.UNDO))

    def action_redo(self) -> None:
        """Redo what was undone."""
        if self._may("redo"):
            self._restore(Wish(Verb.REDO))

    def action_save(self) -> None:
        """Save a checkpoint."""
        if self._may("save"):
            self._save()

    def action_tag(self) -> None:
        """Tag the selected checkpoint."""
        if self._may("tag") and self._target is not None:
            self._tag(*self._target)

    @property
    def _target(self) -> tuple[str, str] | None:
        """The id and the name of the checkpoint that is meant: the selected one, on the row of now head."""
        record = self.selected
        if record is not NOW:
            return record.id, preview.named(record)
        if self.status is None or self.status.head is None:
            return None
        head = self.status.head_record
        return self.status.head, "head" if head is None else preview.named(head)

    def _may(self, action: str) -> bool:
        files = 0 if self.compared is None else len(self.compared.changes)
        why = refusal(action, State(self.connected, self._busy, self._target is not None, files))
        if why is not None:
            self._say(why, "warning")
        return why is None

    @work(group="change")
    async def _restore(self, wish: Wish) -> None:
        try:
            said = await restore(self, wish, self._agreed, lambda: dialog_size(self.size.width, self.size.height))
        except CheckpointError as error:
            self._tell(error)
            return
        if said is not None:
            text, well = said
            self._say(text, "information" if well else "warning")
            self._marked = set()
            self._retitle()

    async def _agreed(self, question: Preview) -> str:
        # What was said before would lie over the answers.
        self.clear_notifications()
        return await self.push_screen_wait(Question(question))

    async def plan(self, wish: Wish, *, skip_conflicts: bool) -> RestoreResult:
        """Plan a restore, for the flow of one."""
        return await self._doing("planning", self.source.plan(wish, skip_conflicts=skip_conflicts))

    async def carry_out(self, wish: Wish, digest: str, *, skip_conflicts: bool) -> RestoreResult:
        """Carry out a plan, for the flow of one."""
        call = self.source.carry_out(wish, digest, skip_conflicts=skip_conflicts, progress=self._tell_progress)
        return await self._doing(wish.verb.value, call)

    @work(group="change")
    async def _save(self) -> None:
        message = await self.push_screen_wait(Ask("Save a checkpoint", _SAVE_HINT))
        if message is None or not self._may("save"):
            return
        try:
            saved = await self._doing("saving", self.source.save(message.strip() or None, self._tell_progress))
        except CheckpointError as error:
            self._tell(error)
            return
        unchanged = "" if saved.notes else "nothing has changed since "
        text = f"saved #{saved.seq}" if saved.created else f"{unchanged}#{saved.seq}"
        if saved.skipped:
            number, first = counted(len(saved.skipped), "path"), quoted(saved.skipped[0].path)
            text += f"; {number} could not be read, such as {first}"
        text += "".join(f"; {visible(note)}" for note in saved.notes)
        self._say(text, "information" if saved.complete else "warning")

    @work(group="change")
    async def _tag(self, commit_id: str, name: str) -> None:
        tag = await self.push_screen_wait(Ask(f"Tag {name}", _TAG_HINT))
        if tag is None or not tag.strip() or not self._may("tag"):
            return
        try:
            await self._doing("tagging", self.source.tag(commit_id, tag.strip()))
        except CheckpointError as error:
            self._tell(error)
            return
        self._say(f"tagged {name}: {visible(tag.strip())}")

    async def _doing(self, what: str, call: Awaitable[_T]) -> _T:
        """Wait for a call that changes something, or plans to, while the screen says so."""
        self._busy = what
        self._retitle()
        try:
            return await call
        finally:
            self._busy, self._progress, self._asked_to_quit = None, "", False
            self._stale.set()
            self._retitle()

    def _tell_progress(self, told: Progress) -> None:
        self._progress = heading.progressed(told)
        self._retitle()

    # -- what is said

    def _say(self, text: str, severity: SeverityLevel = "information") -> None:
        self.notify(text, severity=severity, timeout=_TOAST_S, markup=False)

    def _tell(self, error: CheckpointError, *, quiet: bool = False) -> None:
        if not quiet:
            self._say(heading.noticed(error), "error")

    def _handle_exception(self, error: Exception) -> None:
        # The command line tells of a bug in its own way; no traceback is written over the screen.
        self.broken_by = self.broken_by or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        self._close_messages_no_wait()
