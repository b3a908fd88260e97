"""How much the generated tests try: little by default, a lot under ``tests/run.py --long``."""

import os

__all__ = ["LONG", "examples"]

LONG = os.environ.get("CKPT_TEST_LONG", "") not in ("", "0")


def examples(usual: int, long: int | None = None) -> int:
    """Give a number of examples: ``usual``, or in a long run ``long`` (default: twenty times as many)."""
    return (long or 20 * usual) if LONG else usual
