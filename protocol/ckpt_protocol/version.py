"""The versions that a hello compares."""

__all__ = ["BUILD", "PROTOCOL_VERSION"]

PROTOCOL_VERSION = 1
"""Counts changes of the wire that an older peer cannot work with."""

BUILD = "1.0.0"
"""The distribution's version, as ``pyproject.toml`` has it."""
