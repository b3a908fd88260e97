"""Knowing that a worktree has changed: watchfiles in a process of its own, and what the daemon makes of its word."""
