"""Checkpoints and the operation log: what was done, and how to find it again."""
