"""Processes that read, hash and deflate files for a first save: another core, and another interpreter lock."""
