"""The MCP server of ``ckpt mcp``: what an agent's model may do with the checkpoints of one worktree."""
