"""How much the generated tests try: little by default, a lot with ``tests/run.py --long``, less with ``--core``."""

import os

__all__ = ["BRIEF", "LONG", "examples"]

LONG = os.environ.get("CKPT_TEST_LONG", "") not in ("", "0")
BRIEF = os.environ.get("CKPT_TEST_BRIEF", "") not in ("", "0")


def examples(usual: int, long: int | None = None) -> int:
    """Give a number of examples: ``usual``, or in a long run ``long`` (default: twenty times as many).

    On a further Python, which differs from the first in other things than what they search for, it is a quarter.
    """
    if LONG:
        return long or 20 * usual
    return max(1, usual // 4) if BRIEF else usual
