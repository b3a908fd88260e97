"""The method ``rpc.discover``: the wire, described for programs."""

from typing import Any

from ckpt_protocol.structs import Request, Result

__all__ = ["DiscoverParams", "DiscoverResult"]


class DiscoverParams(Request, frozen=True, kw_only=True):
    """``rpc.discover``: describe every method and every error. Needs no hello."""


class DiscoverResult(Result, frozen=True, kw_only=True):
    """A document of OpenRPC (version ``openrpc``), made from the very types that the daemon checks requests with."""

    openrpc: str
    info: dict[str, Any]
    methods: list[dict[str, Any]]
    components: dict[str, Any]
