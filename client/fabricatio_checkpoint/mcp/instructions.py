"""What a model is told of the server as a whole, before any tool."""

from typing import Final

__all__ = ["INSTRUCTIONS"]

INSTRUCTIONS: Final = """\
Undo for one directory, the worktree. A checkpoint is a snapshot of all of its files that are not ignored, kept \
outside of it. The user's own Git repository is neither needed nor touched, and these checkpoints are no commits of \
it.

When to save: call checkpoint_save before you change, move or delete files or run a command that may (a generator, a \
formatter, a migration, rm), before each new task, and when a step works. Say in the message what comes next.

To see what has happened: checkpoint_status, checkpoint_diff. To look into the past: checkpoint_list, \
checkpoint_show, checkpoint_search, checkpoint_read.

To go back: checkpoint_restore without confirm_digest returns a plan and changes nothing; read it, then call again \
with its digest as confirm_digest. With paths only these files come back, which is what you want when something else \
has been changed meanwhile. Nothing is lost by a restore: what it overwrites or deletes is saved first, \
checkpoint_undo takes it back and checkpoint_redo does it again.

People and other agents may work in the same directory. Do not restore over changes that are not yours without \
asking; expect_head and confirm_digest make sure that nothing came in between.

Results are cut to fit: counts says how much there is, hint how to get the rest. A file name that is not UTF-8 is \
given as {"b64": "..."} and is taken in that form, too."""
