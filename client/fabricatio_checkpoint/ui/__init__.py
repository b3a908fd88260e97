"""``ckpt ui``: the checkpoints of a worktree as a timeline. Only ``app`` and ``widgets`` know Textual."""
