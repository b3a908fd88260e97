"""The git side of the daemon: synchronous, without an event loop; paths are bytes relative to the worktree."""
