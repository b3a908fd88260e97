"""Decides and schedules: the state machine of a worktree, its actor, and the manager of actors."""
