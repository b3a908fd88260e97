"""How the two ends of a connection prove to each other that they know the token, without sending it.

Three lines of ASCII, before the first frame:

    client  CKPT-AUTH 1 <client nonce>
    server  CKPT-AUTH 1 <server nonce> <server proof>
    client  <client proof>

Nonces are 32 random bytes, proofs HMAC-SHA256 with the token as the key, all in lower-case hexadecimal digits. What is
authenticated are five lines joined by line feeds: ``ckpt-auth 1``, the role that proves (``client`` or ``server``), the
address as the address file has it, the client's nonce, the server's nonce. Fresh nonces of both sides make an old proof
worthless, the role one that is sent back, and the address one that another listener passes on to the daemon.
"""

import hmac
import os
import re

__all__ = ["GREETING_BYTES", "PATIENCE_S", "PROOF_BYTES", "ClientSide", "ServerSide", "UnprovedError"]

PATIENCE_S = 5.0
"""How long a side waits for the whole exchange."""

_GREETING = "CKPT-AUTH 1 "
GREETING_BYTES = len(_GREETING) + 64 + 1
"""The length of the client's first line, line end included."""
CHALLENGE_BYTES = GREETING_BYTES + 1 + 64
"""The length of the server's line."""
PROOF_BYTES = 64 + 1
"""The length of the client's second line."""

_GREETING_LINE = re.compile(_GREETING.encode() + rb"([0-9a-f]{64})\n")
_CHALLENGE_LINE = re.compile(_GREETING.encode() + rb"([0-9a-f]{64}) ([0-9a-f]{64})\n")


class UnprovedError(Exception):
    """The other side does not know the token, or speaks something else; the text says which."""


class ClientSide:
    """The client's part of one exchange about ``address``."""

    def __init__(self, token: bytes, address: str) -> None:
        self._token = token
        self._address = address
        self._nonce = os.urandom(32).hex()

    def greeting(self) -> bytes:
        """The first line."""
        return f"{_GREETING}{self._nonce}\n".encode()

    def answer(self, challenge: bytes) -> bytes:
        """Check the server's line and give the second one; raises UnprovedError."""
        found = _CHALLENGE_LINE.fullmatch(challenge)
        if found is None:
            raise UnprovedError("what listens there does not speak this protocol")
        nonce, proof = found[1].decode(), found[2]
        if not hmac.compare_digest(proof, _proof(self._token, "server", self._address, self._nonce, nonce)):
            raise UnprovedError("what listens there does not know the token")
        return _proof(self._token, "client", self._address, self._nonce, nonce) + b"\n"


class ServerSide:
    """The daemon's part of one exchange about ``address``."""

    def __init__(self, token: bytes, address: str) -> None:
        self._token = token
        self._address = address
        self._nonce = os.urandom(32).hex()
        self._client_nonce = ""

    def challenge(self, greeting: bytes) -> bytes:
        """Read the client's first line and give the answer to it; raises UnprovedError."""
        found = _GREETING_LINE.fullmatch(greeting)
        if found is None:
            raise UnprovedError("the first line is no greeting")
        self._client_nonce = found[1].decode()
        proof = _proof(self._token, "server", self._address, self._client_nonce, self._nonce)
        return f"{_GREETING}{self._nonce} ".encode() + proof + b"\n"

    def check(self, proof: bytes) -> None:
        """Check the client's second line; raises UnprovedError."""
        expected = _proof(self._token, "client", self._address, self._client_nonce, self._nonce) + b"\n"
        if not hmac.compare_digest(proof, expected):
            raise UnprovedError("the proof is wrong")


def _proof(token: bytes, role: str, address: str, client_nonce: str, server_nonce: str) -> bytes:
    text = "\n".join(("ckpt-auth 1", role, address, client_nonce, server_nonce))
    return hmac.digest(token, text.encode(), "sha256").hex().encode()
