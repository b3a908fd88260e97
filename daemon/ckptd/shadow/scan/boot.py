"""Which run of the system this is: what was in memory alone when another one ended may never have reached the disk."""

from typing import NamedTuple

__all__ = ["UNKNOWN", "Written", "boot_id"]


class Written(NamedTuple):
    """In which run of the system something was written, and when, in ns; empty and 0 where that is not known."""

    boot: bytes = b""
    at_ns: int = 0


UNKNOWN = Written()


def boot_id() -> bytes:
    """Give what is another one after each start of the system; empty where there is no such thing."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().strip()
    except OSError:
        return b""
