"""Stores of worktrees: the operations that the daemon offers."""
