"""Watching processes that do not work, each named for its fault. Run as a program: ``faulty_watchers.py FAULT``."""

import sys
import time
from typing import Any

import msgspec

from ckpt_protocol.version import BUILD
from ckptd.watch.child import main
from ckptd.watch.frame import HEADER_BYTES, Cover, Covered, Hello, ToChild, to_frame

__all__ = ["FAULTS"]


def silent() -> None:
    """Never says a word."""
    time.sleep(600)


def other_build() -> None:
    """Is of another version, as after an upgrade below a living daemon."""
    say(Hello("0.0.1"))
    time.sleep(600)


def hanging() -> None:
    """Takes orders and answers none, as on a dead network mount."""
    say(Hello(BUILD))
    time.sleep(600)


def babbling() -> None:
    """Writes something else."""
    sys.stdout.buffer.write(b"\0\0\0\3what")
    sys.stdout.buffer.flush()
    time.sleep(600)


def ending() -> None:
    """Ends with its first order."""
    say(Hello(BUILD))
    sys.stdin.buffer.read(HEADER_BYTES)


def deaf() -> None:
    """Watches where the system tells nothing, as some mounts do."""
    from ckptd.watch import lookout

    class Deaf:
        def __init__(self, *_arguments: object) -> None: ...

        def watch(self, _debounce: int, _step: int, timeout: int, _stop: Any) -> Any:
            time.sleep(timeout / 1000)
            return "timeout"

        def close(self) -> None: ...

    lookout.RustNotify = Deaf
    lookout._CANARY_PATIENCE_S = 0.2
    main()


def no_instances() -> None:
    """May have no inotify instance: EMFILE."""
    refuse(RuntimeError("Too many open files (os error 24)"))


def no_watches() -> None:
    """May have no more watches: ENOSPC."""
    refuse(OSError('OS file watch limit reached. about ["/w"]'))


def refuse(error: Exception) -> None:
    from ckptd.watch import lookout

    def notify(*_arguments: object) -> Any:
        raise error

    lookout.RustNotify = notify
    main()


def forgetful() -> None:
    """Says that it watches, and tells nothing."""
    say(Hello(BUILD))
    orders = msgspec.msgpack.Decoder(ToChild)
    while header := sys.stdin.buffer.read(HEADER_BYTES):
        order = orders.decode(sys.stdin.buffer.read(int.from_bytes(header, "big")))
        if isinstance(order, Cover):
            say(Covered(order.number, True, order.afresh or order.try_out, len(order.directories)))


def say(message: Hello | Covered) -> None:
    sys.stdout.buffer.write(to_frame(message))
    sys.stdout.buffer.flush()


FAULTS = {
    found.__name__: found
    for found in (silent, other_build, hanging, babbling, ending, deaf, no_instances, no_watches, forgetful)
}

if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
