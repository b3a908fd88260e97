"""Directories as values: what stands at a path, and what differs between two trees."""
