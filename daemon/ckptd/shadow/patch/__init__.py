"""Patches and summaries of what differs."""
