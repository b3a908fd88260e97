"""A client that writes and saves all the time, until its daemon is gone."""

import random
import threading
from collections.abc import Callable

from support.mortal import Died, Mortal, token

__all__ = ["BusyClient"]


class BusyClient(threading.Thread):
    """Writes a file of its own and saves, until the daemon is gone."""

    def __init__(self, mortal: Mortal, number: int, seed: float) -> None:
        super().__init__()
        self._mortal = mortal
        self._chance = random.Random(seed)
        self.name = f"of client {number}"
        self.saved: list[tuple[str, int, bytes]] = []
        self._open: tuple[str, bytes] | None = None

    def run(self) -> None:
        try:
            while True:
                content = self._chance.randbytes(self._chance.choice((5, 2000)))
                (self._mortal.ws / self.name).write_bytes(content)
                self._open = (token(), content)
                answer = self._mortal.call("checkpoint.save", token=self._open[0], message=self.name)
                self.saved.append((answer["id"], answer["seq"], content))
                self._open = None
        except Died:
            return

    def retry(self, content_of: Callable[[str, str], bytes]) -> None:
        """Send again what was not answered: it has the content of then, or is made now, of the same content."""
        if self._open is not None:
            answers = [self._mortal.call("checkpoint.save", token=self._open[0], message=self.name) for _ in range(2)]
            assert answers[0]["id"] == answers[1]["id"], "a request that was sent again was done twice"
            assert content_of(answers[0]["id"], self.name) == self._open[1]
