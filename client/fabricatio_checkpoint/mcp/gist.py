"""A patch as a model reads it: without the content of binary files, and bounded. Pure."""

__all__ = ["Gist"]

_BEGIN = b"GIT binary patch\n"
_FILE = b"diff --git "


class Gist:
    """Takes a patch piece by piece; ``text`` is what is kept of it, at most ``most`` bytes and whole lines.

    ``full``: it has all it may keep, and the patch goes on.
    """

    def __init__(self, most: int) -> None:
        self.text = bytearray()
        self.full: bool = False
        self._most = most
        self._half = b""
        self._left_out: int | None = None

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        # Not splitlines(), for which a carriage return ends a line, too.
        *lines, self._half = (self._half + piece).split(b"\n")
        for line in lines:
            self._take(line + b"\n")

    def end(self) -> None:
        """Say that there are no more pieces."""
        half, self._half = self._half, b""
        if half:
            self._take(half)
        self._say_left_out()

    def _take(self, line: bytes) -> None:
        if self._left_out is not None:
            if not line.startswith(_FILE):
                self._left_out += len(line)
                return
            self._say_left_out()
        if line == _BEGIN:
            self._left_out = 0
            return
        self._keep(line)

    def _say_left_out(self) -> None:
        left_out, self._left_out = self._left_out, None
        if left_out is not None:
            self._keep(b"Binary content differs (%d bytes of patch left out)\n" % left_out)

    def _keep(self, line: bytes) -> None:
        if self.full or len(self.text) + len(line) > self._most:
            self.full = True
        else:
            self.text += line
