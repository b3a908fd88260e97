"""Looking at a worktree: what changed since the model was made."""
