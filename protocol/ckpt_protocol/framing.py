"""One message a line: UTF-8 JSON without raw line feeds, ended by ``\\n``."""

__all__ = ["MAX_REPLY_BYTES", "MAX_REQUEST_BYTES", "FrameDecoder", "FrameTooLargeError", "encode_frame"]

MAX_REQUEST_BYTES = 8 * 1024 * 1024
"""What a daemon reads at most as one request. File contents travel in chunks far below this."""

MAX_REPLY_BYTES = 256 * 1024 * 1024
"""What a client reads at most as one reply: a restore's lists of paths can be long."""


class FrameTooLargeError(ValueError):
    """A frame over the limit. The stream cannot be read on from here: the connection has to be closed."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"frame of more than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class FrameDecoder:
    """Cuts a stream of bytes into frames, whatever pieces it arrives in.

    ``limit_bytes`` bounds one frame without its line end; no more than that and one piece is ever held.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        # One buffer and no list of pieces: a frame that arrives byte by byte must not cost many times its length.
        self._begun = bytearray()
        self._refused = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next piece; return the frames it completes, in order, without their line ends.

        Raises FrameTooLargeError at the first frame over the limit, and ever after; frames before it in the same
        piece are lost with the connection.
        """
        lines = data.split(b"\n")
        frames = [self._complete(line) for line in lines[:-1]]
        self._check(lines[-1])
        self._begun += lines[-1]
        return frames

    @property
    def pending_bytes(self) -> int:
        """The length of the frame that has begun and not ended; above 0 at the end of a stream, it was cut."""
        return len(self._begun)

    def _complete(self, line: bytes) -> bytes:
        self._check(line)
        if not self._begun:
            return line
        frame = bytes(self._begun + line)
        self._begun.clear()
        return frame

    def _check(self, piece: bytes) -> None:
        self._refused = self._refused or len(self._begun) + len(piece) > self._limit
        if self._refused:
            raise FrameTooLargeError(self._limit)


def encode_frame(message: bytes) -> bytes:
    """End one JSON document as a frame; raises ValueError for one that holds a raw line feed."""
    if b"\n" in message:
        raise ValueError("a frame is one line")
    return message + b"\n"
