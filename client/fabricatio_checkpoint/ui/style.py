"""The style sheet: colours are the theme's, and nothing is told by colour alone."""

from __future__ import annotations

__all__ = ["CSS"]

CSS = """
Screen { layout: vertical; overflow: hidden; }
#head { height: 1; padding: 0 1; background: $panel; color: $foreground; text-wrap: nowrap; text-overflow: ellipsis; }
#panes { height: 1fr; }
Lines, Rows {
    border: round $foreground 30%;
    border-title-color: $foreground;
    border-title-style: none;
    border-subtitle-color: $text-muted;
    background: $background;
    scrollbar-size-vertical: 1;
    scrollbar-size-horizontal: 1;
    height: 1fr;
    overflow-x: hidden;
}
Lines { overflow-x: auto; }
Rows { overflow-x: hidden; }
Lines:focus, Rows:focus { border: heavy $accent; border-title-style: bold; border-title-color: $foreground; }
#filter { display: none; height: 1; border: none; padding: 0 1; background: $surface; }
#filter.-shown { display: block; }

.-wide #panes { layout: vertical; }
.-wide #timeline { height: 3fr; }
.-wide #files { height: 2fr; }
.-wide #patch { dock: right; width: 47%; height: 100%; }

.-stacked #panes { layout: grid; grid-size: 10 2; grid-rows: 9fr 11fr; }
.-stacked #timeline { column-span: 10; }
.-stacked #files { column-span: 4; }
.-stacked #patch { column-span: 6; }

.-single #panes { layout: vertical; }
.-single .-away { display: none; }

.lines--added { color: $text-success; }
.lines--deleted { color: $text-error; }
.lines--modified { color: $text-warning; }
.lines--hunk { color: $text-accent; }
.lines--note { color: $text-warning; text-style: italic; }
.lines--warning { color: $text-warning; }
.lines--error { color: $text-error; text-style: bold; }
.lines--head { text-style: bold; }
.lines--strong { text-style: bold; }
.lines--tag { color: $text-primary; text-style: bold; }
.lines--number { color: $text-accent; }
.lines--size { color: $text-secondary; }
.lines--dim { color: $text-muted; }
Rows > .lines--cursor { background: $foreground 15%; color: $foreground; text-style: bold; }
Rows:focus > .lines--cursor { background: $block-cursor-background; color: $block-cursor-foreground; text-style: bold; }
Rows:nocolor:focus > .lines--cursor { text-style: bold reverse; }

ModalScreen { align: center middle; background: $background 60%; }
.dialog {
    width: 76; max-width: 100%; height: auto; max-height: 100%;
    border: heavy $accent; background: $surface; padding: 1 2;
    border-title-style: bold; border-title-color: $foreground;
}
.dialog .buttons { height: 1; margin-top: 1; align-horizontal: right; }
.dialog Button { margin-left: 2; }
.dialog Button:focus { text-style: bold reverse; }
.dialog .hint { color: $text-muted; margin-top: 1; }
Toast { max-width: 100%; width: auto; padding: 0 1; margin-top: 0; }
ToastRack { margin-bottom: 1; }
"""
