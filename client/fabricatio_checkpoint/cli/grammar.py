"""The commands of ``ckpt`` as a table: what each takes, what it says about itself, and who runs it."""

from __future__ import annotations

__all__ = ["COMMANDS", "GLOBALS", "SYNONYMS", "Command", "Option", "Word"]


class Option:
    """An option; without ``metavar`` a flag. ``many``: may be repeated, ``last``: repeated, the last one counts."""

    __slots__ = ("help", "last", "letter", "many", "metavar", "name", "number")

    def __init__(
        self,
        name: str,
        text: str,
        *,
        metavar: str | None = None,
        letter: str | None = None,
        many: bool = False,
        last: bool = False,
        number: bool = False,
    ) -> None:
        self.name: str = name
        self.help: str = text
        self.metavar: str | None = metavar
        self.letter: str | None = letter
        self.many: bool = many
        self.last: bool = last
        self.number: bool = number


class Word:
    """A positional argument: at least ``least`` of them, at most ``most`` (None: any number).

    ``choices`` are the words that it can be, where they are few.
    """

    __slots__ = ("choices", "least", "most", "name")

    def __init__(self, name: str, least: int, most: int | None, choices: tuple[str, ...] = ()) -> None:
        self.name: str = name
        self.least: int = least
        self.most: int | None = most
        self.choices: tuple[str, ...] = choices


class Command:
    """A command. ``handler`` is ``module.function`` below ``commands``.

    ``dashed`` takes what follows ``--``; without it those words are positional arguments like the others.
    With ``rest`` everything after the command is passed on as it is, under that name. ``more`` are further examples,
    ``details`` lines that its help ends with, ``appendix`` a module, below the package, whose ``help_lines()`` follow.
    """

    __slots__ = (
        "appendix", "dashed", "details", "example", "handler", "more", "name", "options", "rest", "summary", "words",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        handler: str,
        summary: str,
        example: str,
        *,
        words: tuple[Word, ...] = (),
        options: tuple[Option, ...] = (),
        dashed: str | None = None,
        rest: str | None = None,
        details: tuple[str, ...] = (),
        more: tuple[str, ...] = (),
        appendix: str | None = None,
    ) -> None:
        self.name: str = name
        self.handler: str = handler
        self.summary: str = summary
        self.example: str = example
        self.words: tuple[Word, ...] = words
        self.options: tuple[Option, ...] = options
        self.dashed: str | None = dashed
        self.rest: str | None = rest
        self.details: tuple[str, ...] = details
        self.more: tuple[str, ...] = more
        self.appendix: str | None = appendix


GLOBALS = (
    Option("workspace", "the worktree; else the tracked one that holds the current directory, else that directory",
           metavar="DIR", letter="w", last=True),
    Option("json", "print one JSON document, for results and errors alike"),
    Option("help", "say how a command is used", letter="h"),
    Option("version", "print the version"),
)  # fmt: skip

_META = Option("meta", "a value to keep with the checkpoint", metavar="K=V", many=True)
_WITH_META = Option("meta", "only checkpoints with this value", metavar="K=V", many=True)
_DRY_RUN = Option("dry-run", "only say what would be done")
_SKIP = Option("skip-conflicts", "restore everything but the paths in conflict")
_EXPECT = (
    Option("expect-digest", "do nothing unless the plan is the one with this digest", metavar="D"),
    Option("expect-head", "do nothing if somebody has made a checkpoint since this one", metavar="ID"),
)
_SESSION = Option("session", "all that this session changed, and nothing that others have been at", metavar="S")
_REDO_SESSION = Option("session", "the newest of this session, and leave what others changed since", metavar="S")
_YES = Option("yes", "do not ask", letter="y")
_ID = Word("ID", 1, 1)
_PATHS = Word("PATH", 1, None)

_MCP_DETAILS = (
    "Most clients take a configuration of this form:",
    "",
    "  {",
    '    "mcpServers": {',
    '      "ckpt": {"command": "ckpt", "args": ["-w", "/path/to/project", "mcp"]}',
    "    }",
    "  }",
    "",
    "Without -w the directory counts that the client starts it in.",
    'It needs the extra: pip install "fabricatio-checkpoint[mcp]"',
)

_ROWS = (
    Command(
        "save", "save.save", "make a checkpoint of the worktree; prints its id",
        'ckpt save "before the refactoring" --tag start',
        words=(Word("MESSAGE", 0, 1),),
        options=(
            Option("tag", "a name for the checkpoint", metavar="NAME"),
            _META,
            Option("full", "look at every file's state, even where the worktree is watched"),
            Option("rehash", "read every file again"),
            Option("force", "save a worktree that is suddenly empty, or a protected place"),
            _EXPECT[1],
        ),
        more=("ckpt save --meta ticket=42", "ckpt save --expect-head HEAD"),
    ),
    Command(
        "ls", "history.ls", "list checkpoints, newest first; with paths their history, also under former names",
        "ckpt ls --limit 20 src/main.py",
        words=(Word("PATH", 0, None),),
        options=(
            Option("limit", "at most N of them", metavar="N", letter="n", number=True),
            Option("kind", "manual, auto or safety", metavar="K"),
            _WITH_META,
        ),
        more=("ckpt ls --kind auto --meta session=7c1f",),
    ),
    Command(
        "search", "search.search", "list the checkpoints that add or remove a text, newest first, as they are found",
        "ckpt search -i todo -- src",
        words=(Word("TEXT", 1, 1), Word("PATH", 0, None)),
        options=(
            Option("ignore-case", "take both cases of a letter for the same", letter="i"),
            Option("limit", "at most N of them", metavar="N", letter="n", number=True),
            Option("kind", "manual, auto or safety", metavar="K"),
            _WITH_META,
        ),
    ),
    Command("show", "history.show", "show a checkpoint and what it changed", "ckpt show HEAD~1", words=(_ID,)),
    Command("status", "status.status", "say what differs from the last checkpoint", "ckpt status"),
    Command(
        "diff", "content.diff", "print what differs, as a patch; default: from head to the worktree",
        "ckpt diff HEAD~1 HEAD -- src",
        words=(Word("FROM", 0, 1), Word("TO", 0, 1)),
        dashed="PATH",
        options=(
            Option("stat", "only the number of changed lines a file"),
            Option("name-status", "only letters and names"),
        ),
        more=("ckpt diff --stat", 'ckpt diff "@{1 hour ago}"', "ckpt diff > changes.patch"),
    ),
    Command(
        "rollback", "restore.rollback", "bring back files or directories of a checkpoint",
        "ckpt rollback HEAD src/main.py",
        words=(_ID, _PATHS),
        options=(_DRY_RUN, Option("delete", "delete the paths that the checkpoint does not have"), _SKIP, *_EXPECT),
        more=("ckpt rollback before src tests --delete", 'ckpt rollback "#12" src/main.py --dry-run'),
    ),
    Command(
        "reset", "restore.reset", "bring the whole worktree back to a checkpoint; default: head",
        "ckpt reset HEAD~1 --dry-run",
        words=(Word("ID", 0, 1),),
        options=(_DRY_RUN, _YES, _SKIP, Option("recreate", "make a worktree that is missing"), *_EXPECT),
        more=("ckpt reset", 'ckpt reset "@{yesterday 18:00}" --yes'),
    ),
    Command(
        "undo", "restore.undo", "take back the last reset or rollback, or all that a session changed", "ckpt undo",
        options=(_DRY_RUN, _SKIP, _SESSION, *_EXPECT),
        more=("ckpt undo --dry-run", "ckpt undo --session 7c1f"),
    ),
    Command(
        "redo", "restore.redo", "do again what undo took back", "ckpt redo",
        options=(_DRY_RUN, _SKIP, _REDO_SESSION, *_EXPECT),
    ),
    Command(
        "resume", "restore.resume", "finish or undo a restore that was interrupted", "ckpt resume --finish",
        options=(
            Option("finish", "go on with it to its end"),
            Option("undo", "bring back what was there before it"),
            _DRY_RUN,
            _SKIP,
            _EXPECT[0],
        ),
        more=("ckpt resume --undo --dry-run",),
    ),
    Command(
        "watch", "watch.watch", "autosave: checkpoint the worktree while it is edited", "ckpt watch on",
        words=(Word("ACTION", 1, 1, ("on", "off", "status")),),
        options=(Option("force", "also a protected place"),),
        more=("ckpt watch status", "ckpt watch off"),
    ),
    Command(
        "cat", "content.cat", "print a file of a checkpoint", "ckpt cat HEAD src/main.py > old.py",
        words=(_ID, Word("PATH", 1, 1)),
        more=('ckpt cat "#12" config.toml',),
    ),
    Command(
        "export", "content.export", "write a checkpoint, or some paths of it, to a new directory or a .tar file",
        "ckpt export HEAD~3 /tmp/before.tar src",
        words=(_ID, Word("DEST", 1, 1), Word("PATH", 0, None)),
        more=("ckpt export before ../copy",),
    ),
    Command(
        "ui", "ui.ui", "look at the checkpoints as a timeline, and restore from it (extra [ui])", "ckpt ui",
        appendix="ui.keys",
    ),
    Command("workspaces", "stores.workspaces", "list the tracked worktrees", "ckpt workspaces"),
    Command(
        "prune", "stores.prune", "delete the stores of worktrees that are gone", "ckpt prune --dry-run",
        options=(_DRY_RUN, _YES),
    ),
    Command(
        "adopt", "stores.adopt", "go on with the history of a worktree that was moved to this directory",
        "ckpt adopt ../old-name",
        words=(Word("OLD", 1, 1),),
        options=(_DRY_RUN, Option("force", "also in a protected place"), _YES),
    ),
    Command(
        "forget", "stores.forget", "delete the worktree's whole history; its files stay",
        "ckpt -w old-project forget --yes",
        options=(_YES,),
    ),
    Command(
        "tag", "tags.tag", "name a checkpoint, which is then never thinned", "ckpt tag HEAD good",
        words=(_ID, Word("NAME", 1, 1)),
        options=(Option("move", "take the name from another checkpoint"),),
    ),
    Command(
        "untag", "tags.untag", "remove a tag; the checkpoint stays", "ckpt untag good",
        words=(Word("NAME", 1, 1),),
    ),
    Command(
        "drop", "upkeep.drop", "remove checkpoints for good; gc then removes what nothing else holds",
        "ckpt drop 3f78685078 '#12' --dry-run",
        words=(Word("ID", 1, None),),
        options=(
            _DRY_RUN,
            Option("force", "also what is tagged, or what an undo needs, which is then lost"),
            _YES,
        ),
    ),
    Command("usage", "stores.usage", "say what the stores hold and take on the disk, the largest first", "ckpt usage"),
    Command(
        "thin", "upkeep.thin", "remove the checkpoints that go by the options keep_* and max_store_bytes",
        "ckpt thin --dry-run",
        options=(_DRY_RUN,),
    ),
    Command(
        "gc", "upkeep.gc", "remove from the store what no checkpoint needs, and make it smaller", "ckpt gc",
        options=(_DRY_RUN,),
    ),
    Command(
        "verify", "upkeep.verify", "look for damage in the store; names the checkpoints that have lost something",
        "ckpt verify --read-data",
        options=(Option("read-data", "read and hash all content, too"),),
    ),
    Command(
        "daemon run", "daemon.run", "be the daemon, in the foreground", "ckpt daemon run",
        rest="ARG",
    ),
    Command("daemon start", "daemon.start", "start the daemon (commands do that by themselves)", "ckpt daemon start"),
    Command("daemon stop", "daemon.stop", "stop the daemon, and wait until it has ended", "ckpt daemon stop"),
    Command("daemon status", "daemon.status", "say whether the daemon runs", "ckpt daemon status"),
    Command(
        "daemon logs", "daemon.logs", "print the end of the daemon's log", "ckpt daemon logs -n 100 -f",
        options=(
            Option("lines", "how many lines (50)", metavar="N", letter="n", number=True),
            Option("follow", "go on with what is added, over rotations and restarts, until Ctrl-C", letter="f"),
        ),
    ),
    Command(
        "daemon install", "child.install", "let systemd start the daemon when it is needed (user units)",
        "ckpt daemon install",
    ),
    Command("daemon uninstall", "child.uninstall", "take the systemd units away again", "ckpt daemon uninstall"),
    Command(
        "doctor", "child.doctor", "look for what is wrong with sockets, locks, permissions, limits, disk and stores",
        "ckpt doctor --fix",
        options=(Option("fix", "put right what can be, where no owner lives"),),
    ),
    Command(
        "hook", "hook.hook", "save when a coding agent says so on stdin; never fails it, never holds it up",
        "ckpt hook < event.json",
        options=(Option("budget", "seconds that the agent may be held up (2)", metavar="S"),),
    ),
    Command(
        "hook install", "hook.install", "put the hook into .claude/settings.json, after showing it",
        "ckpt hook install --yes",
        options=(_DRY_RUN, _YES),
    ),
    Command(
        "mcp", "mcp.mcp", "be an MCP server on stdin and stdout: checkpoints as tools for an agent's model",
        "ckpt -w ~/project mcp",
        options=(Option("session", "what the history calls this server (a random name)", metavar="S"),),
        details=_MCP_DETAILS,
    ),
    Command(
        "completion", "completion.completion", "print the script that lets bash, zsh or fish complete commands and ids",
        "ckpt completion bash >> ~/.bashrc",
        words=(Word("SHELL", 1, 1, ("bash", "zsh", "fish")),),
        dashed="WORD",
    ),
    Command("help", "help.help_", "say how a command is used", "ckpt help reset", words=(Word("COMMAND", 0, 2),)),
)  # fmt: skip

COMMANDS = {row.name: row for row in _ROWS}

SYNONYMS = {
    "checkpoint": "save",
    "commit": "save",
    "history": "ls",
    "find": "search",
    "grep": "search",
    "list": "ls",
    "log": "ls",
    "restore": "rollback",
    "checkout": "rollback",
    "revert": "undo",
    "st": "status",
    "worktrees": "workspaces",
}
"""Words of other tools, for a better guess than their letters give."""
