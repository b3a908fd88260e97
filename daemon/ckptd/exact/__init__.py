"""The exact watcher: what may have changed in a worktree since a scan, without a gap that it would not notice."""
