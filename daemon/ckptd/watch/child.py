"""``python -m ckptd.watch.child``: the watching process. It ends when its standard input does.

Orders come as frames on standard input, one after the other; answers and news go to standard output.
"""

import os
import signal
import sys
import threading
from typing import BinaryIO

import msgspec

from ckpt_protocol.version import BUILD
from ckptd.watch.frame import HEADER_BYTES, Cover, Drop, FromChild, Hello, ToChild, to_frame
from ckptd.watch.lookout import Lookout

__all__ = ["main"]


class _Child:
    """The lookouts by their numbers, and the way back to the daemon."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lookouts: dict[int, Lookout] = {}
        self._speaking = threading.Lock()

    def say(self, message: FromChild) -> None:
        """Send a message; without a daemon to hear it the process ends."""
        with self._speaking:
            try:
                self._out.write(to_frame(message))
                self._out.flush()
            except OSError:
                os._exit(0)

    def obey(self, order: ToChild) -> None:
        """Carry out one order."""
        match order:
            case Cover(number):
                lookout = self._lookouts.get(number) or Lookout(number, self.say)
                self._lookouts[number] = lookout
                self.say(lookout.cover(order))
            case Drop(number):
                if number in self._lookouts:
                    self._lookouts.pop(number).drop()


def main() -> None:
    """Obey until standard input ends."""
    # The terminal's Ctrl-C is for the daemon, which ends this process by closing the pipe.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child = _Child(sys.stdout.buffer)
    child.say(Hello(BUILD))
    orders: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)
    incoming = sys.stdin.buffer
    while len(header := incoming.read(HEADER_BYTES)) == HEADER_BYTES:
        child.obey(orders.decode(incoming.read(int.from_bytes(header, "big"))))
    # Threads that wait in the library would hold up an orderly end.
    os._exit(0)


if __name__ == "__main__":
    main()
