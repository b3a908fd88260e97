"""Writing a checkpoint back into a worktree, without loss."""
