"""How two sides prove that they know the token: what passes, and what does not."""

import hashlib
import hmac

import pytest

from ckpt_protocol.proof import (
    CHALLENGE_BYTES,
    GREETING_BYTES,
    PROOF_BYTES,
    ClientSide,
    ServerSide,
    UnprovedError,
)

pytestmark = pytest.mark.core

TOKEN = bytes(range(32))
OTHER = bytes(32)
HERE = "tcp:127.0.0.1:4711"


def by_the_book(role: str, client_nonce: str, server_nonce: str, address: str = HERE, token: bytes = TOKEN) -> bytes:
    """As the page for other languages says it."""
    text = f"ckpt-auth 1\n{role}\n{address}\n{client_nonce}\n{server_nonce}"
    return hmac.new(token, text.encode(), hashlib.sha256).hexdigest().encode()


def exchange(client: ClientSide, server: ServerSide) -> None:
    server.check(client.answer(server.challenge(client.greeting())))


def test_two_who_know_the_token_believe_each_other():
    client, server = ClientSide(TOKEN, HERE), ServerSide(TOKEN, HERE)
    greeting = client.greeting()
    challenge = server.challenge(greeting)
    proof = client.answer(challenge)
    server.check(proof)
    assert (len(greeting), len(challenge), len(proof)) == (GREETING_BYTES, CHALLENGE_BYTES, PROOF_BYTES)
    nonces = greeting.split()[2].decode(), challenge.split()[2].decode()
    assert challenge.split()[3] == by_the_book("server", *nonces)
    assert proof == by_the_book("client", *nonces) + b"\n"
    assert TOKEN.hex().encode() not in greeting + challenge + proof


@pytest.mark.parametrize(
    ("client", "server"),
    [
        (ClientSide(OTHER, HERE), ServerSide(TOKEN, HERE)),
        (ClientSide(TOKEN, HERE), ServerSide(OTHER, HERE)),
        (ClientSide(TOKEN, "tcp:127.0.0.1:4712"), ServerSide(TOKEN, HERE)),
    ],
)
def test_the_client_finds_out_who_does_not_know_it(client, server):
    challenge = server.challenge(client.greeting())
    with pytest.raises(UnprovedError, match="does not know the token"):
        client.answer(challenge)


def test_the_server_finds_out_who_does_not_know_it():
    server = ServerSide(TOKEN, HERE)
    challenge = server.challenge(b"CKPT-AUTH 1 " + b"0" * 64 + b"\n").split()
    nonces = "0" * 64, challenge[2].decode()
    for wrong in (
        by_the_book("client", *nonces, token=OTHER),
        by_the_book("client", *nonces, address="tcp:127.0.0.1:1"),
        by_the_book("client", *nonces[::-1]),
        challenge[3],  # its own proof, sent back
        b"",
        b"0" * 64,
    ):
        with pytest.raises(UnprovedError, match="wrong"):
            server.check(wrong + b"\n")
    server.check(by_the_book("client", *nonces) + b"\n")


def test_a_proof_holds_once():
    client, first, second = ClientSide(TOKEN, HERE), ServerSide(TOKEN, HERE), ServerSide(TOKEN, HERE)
    proof = client.answer(first.challenge(client.greeting()))
    second.challenge(client.greeting())
    with pytest.raises(UnprovedError):
        second.check(proof)
    challenge = first.challenge(client.greeting())
    with pytest.raises(UnprovedError):
        ClientSide(TOKEN, HERE).answer(challenge)


@pytest.mark.parametrize(
    "greeting",
    [
        b"",
        b"\n",
        b'{"jsonrpc":"2.0"}\n',
        b"CKPT-AUTH 1 " + b"0" * 64,
        b"CKPT-AUTH 1 " + b"0" * 63 + b"\n",
        b"CKPT-AUTH 1 " + b"A" * 64 + b"\n",
        b"CKPT-AUTH 2 " + b"0" * 64 + b"\n",
        b"CKPT-AUTH 1 " + b"0" * 64 + b"\n\n",
    ],
)
def test_a_server_takes_one_greeting_and_no_other(greeting):
    with pytest.raises(UnprovedError, match="greeting"):
        ServerSide(TOKEN, HERE).challenge(greeting)


@pytest.mark.parametrize(
    "challenge", [b"", b"HTTP/1.1 400 Bad Request\r\n", b"CKPT-AUTH 1 " + b"0" * 64 + b" " + b"0" * 63 + b"\n"]
)
def test_a_client_knows_another_protocol_when_it_sees_one(challenge):
    with pytest.raises(UnprovedError, match="does not speak"):
        ClientSide(TOKEN, HERE).answer(challenge)
