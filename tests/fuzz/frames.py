"""Frames to fuzz with: requests made from the Structs of the methods, then bent; and bytes that are none.

``Frames(ground, rng)``: ``make()`` gives one line without its end. ``learn(answer)`` picks up what answers offer:
ids, tokens, cursors, digests, so that later requests can mean something. Nothing that is made reaches beyond the
ground: the daemon does for its user what the user asks.
"""

import base64
import json
import random
import string
from collections.abc import Callable
from typing import Any

import msgspec

from ckpt_protocol.methods import METHODS
from fuzz.ground import Ground

__all__ = ["Frames"]

_NEVER = ("daemon.stop",)
"""A daemon that was told to end is no crash; that is tested elsewhere."""

_WEIGHTS = {"checkpoint.save": 6, "checkpoint.restore": 5, "checkpoint.undo": 3, "checkpoint.redo": 2}
_RARE = {"worktree.forget": 0.3, "store.prune": 0.3}
_IDS = [
    "HEAD", "HEAD~1", "HEAD~999999999", "#1", "#2", "#999999999999999999", "@{now}", "@{1 hour ago}", "@{2026-11-30}",
    "@{}", "WORKTREE", "0" * 40, "abcd", "", "tag", "../../HEAD", "refs/tags/tag", "HEAD^{tree}", "-h", "é", "\0",
    "@{99999-01-01}", "@{0000-00-00 99:99}", "#0", "#-1", "HEAD~", "HEAD~-1",
]  # fmt: skip
_TEXTS = [
    "", "x", "message\n\nCkpt-Seq: 1\n", "é😀", "\x1b]0;title\x07", "a\0b", "\r\n\n", "x" * 5000, "\u2028", "%s%n{0}",
]  # fmt: skip
_TAGS = ["tag", "v1", "a/b", "../../x", "HEAD", "@x", "deadbeef", "a..b", "x.lock", "", "é", "x" * 300, "a b", "-x"]
_INTS = [0, 1, -1, 2, 1000, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 10**30]
_REQUEST_IDS: list[Any] = [
    None, 0, -1, 1.0, 1.5, 1e300, 10**30, True, False, "", "x" * 1000, "\u0000", [], {}, [1], {"a": 1},
]  # fmt: skip
_JUNK: list[Any] = [None, True, False, 0, -1, 1.5, 2**70, "", "x", [], {}, [[]], {"b64": "/w=="}, {"": {}}, ["a", 1]]
_BYTES = [
    b"", b"{", b"}", b"[", b"]", b"null", b"0", b'"', b"\\", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"1e999", b"NaN",
    b"{}" * 3, b"[" * 3000, b'{"a":' * 3000, b'"\\ud800"', b"-", b"//", b"\xc0\xaf", b'{"jsonrpc":"2.0"}',
]  # fmt: skip


class Frames:
    """See the module."""

    def __init__(self, ground: Ground, rng: random.Random) -> None:
        self._ground, self._rng = ground, rng
        self._types = {
            name: msgspec.inspect.type_info(row.params) for name, row in METHODS.items() if name not in _NEVER
        }
        self._names = list(self._types)
        self._weights = [_WEIGHTS.get(name, _RARE.get(name, 1.0)) for name in self._names]
        self._number = 0
        self._known: dict[str, list[str]] = {"id": [], "token": [], "cursor": [], "digest": []}
        self._pools: dict[str, Callable[[], Any]] = {
            "checkpoint_dir": lambda: self._place(self._ground.checkpoint_dirs),
            "worktree": self._worktree,
            "token": self._token,
            "path": self._path,
            "paths": lambda: [self._path() for _ in range(self._rng.choice([0, 1, 1, 2, 5, 40]))],
            "meta": lambda: {self._pick(_TEXTS): self._pick(_TEXTS) for _ in range(self._rng.choice([0, 1, 3]))},
            "message": lambda: self._pick(_TEXTS),
            "tag": lambda: self._pick(_TAGS),
            "protocol": lambda: self._pick([1] * 20 + [2, -1]),
        }

    def learn(self, answer: Any) -> None:
        """Remember what later requests can refer to."""
        result = answer.get("result") if isinstance(answer, dict) else None
        if not isinstance(result, dict):
            return
        for name, pool in self._known.items():
            value = result.get({"token": "id"}.get(name, name))
            if isinstance(value, str) and name != "token":
                pool.append(value)
                del pool[:-20]

    def make(self) -> bytes:
        """Give the next frame; it may be anything but one with a line end in it."""
        while True:
            frame = self._make().replace(b"\n", b" ")
            if self._is_harmless(frame):
                return frame

    def _make(self) -> bytes:
        chance = self._rng.random()
        if chance < 0.03:
            return self._rng.randbytes(self._rng.choice([1, 5, 50, 2000]))
        if chance < 0.06:
            return b"".join(self._pick(_BYTES) for _ in range(self._rng.choice([1, 2, 6])))
        if chance < 0.10:
            return self._dump([self._call() for _ in range(self._pick([0, 1, 2, 5, 70]))])
        frame = self._dump(self._call())
        return self._bent_bytes(frame) if chance < 0.3 else frame

    # -- requests

    def _call(self) -> Any:
        name = self._rng.choices(self._names, self._weights)[0]
        self._number += 1
        call: dict[str, Any] = {
            "jsonrpc": "2.0",
            "method": name,
            "params": self._struct(self._types[name]),
            "id": self._number,
        }
        if self._rng.random() < 0.03:
            call["id"] = self._pick(_REQUEST_IDS)
        if self._rng.random() < 0.02:
            del call["id"]
        return self._bent(call) if self._rng.random() < 0.15 else call

    def _struct(self, kind: Any) -> dict[str, Any]:
        made = {}
        for field in kind.fields:
            if not field.required and self._rng.random() < 0.75:
                continue
            made[field.encode_name] = self._field(field)
        return made

    def _field(self, field: Any) -> Any:
        name = field.encode_name
        known = self._known.get("id" if name in ("id", "from_id", "to_id") else name)
        if known and self._rng.random() < 0.85:
            return self._pick(known)
        if name in ("id", "from_id", "to_id"):
            return self._pick(_IDS)
        make = self._pools.get(name)
        return make() if make is not None else self._value(field.type)

    def _value(self, kind: Any) -> Any:
        if isinstance(kind, msgspec.inspect.Metadata):
            return self._value(kind.type)
        if isinstance(kind, msgspec.inspect.UnionType):
            return self._value(self._pick(list(kind.types)))
        if isinstance(kind, msgspec.inspect.StructType):
            return self._struct(kind)
        if isinstance(kind, msgspec.inspect.LiteralType):
            return self._pick(list(kind.values))
        if isinstance(kind, msgspec.inspect.ListType):
            return [self._value(kind.item_type) for _ in range(self._rng.randrange(3))]
        if isinstance(kind, msgspec.inspect.DictType):
            return {self._pick(_TEXTS): self._value(kind.value_type) for _ in range(self._rng.randrange(3))}
        if isinstance(kind, msgspec.inspect.IntType):
            return self._rng.randrange(1, 20) if self._rng.random() < 0.8 else self._pick(_INTS)
        if isinstance(kind, msgspec.inspect.FloatType):
            return 60.0 if self._rng.random() < 0.8 else self._pick([0.0, 0.001, 1.5, -1.0, 1e300])
        if isinstance(kind, msgspec.inspect.BoolType):
            return self._rng.random() < 0.5
        return None if isinstance(kind, msgspec.inspect.NoneType) else self._pick(_TEXTS)

    def _place(self, usual: list[str]) -> Any:
        place = self._pick(usual) if self._rng.random() < 0.93 else self._pick(self._ground.odd_places)
        if self._rng.random() < 0.03:
            return {"b64": base64.b64encode(place.encode() + self._pick([b"", b"\xff"])).decode()}
        return place + self._pick(["/", "/.", "/..", "//", "\0"]) if self._rng.random() < 0.02 else place

    def _worktree(self) -> Any:
        place: dict[str, Any] = {"path": self._place(self._ground.worktrees)}
        if self._rng.random() < 0.1:
            place |= {"dev": self._pick(["1", "0", "x", "", "9" * 20]), "ino": self._pick(["2", "-1", None])}
        return place

    def _path(self) -> Any:
        if self._rng.random() < 0.1:
            raw = self._pick([b"\xff", b"caf\xe9", b"../\xff", b"/\xff", b"a", b"\xff/..", b"\xff\0", b""])
            return {"b64": base64.b64encode(raw).decode() + self._pick(["", "", "=", "\n"])}
        return self._pick(self._ground.names if self._rng.random() < 0.8 else self._ground.bad_names)

    def _token(self) -> str:
        tokens = self._known["token"]
        if tokens and self._rng.random() < 0.1:
            return self._pick(tokens)
        token = self._rng.randbytes(16).hex()
        tokens.append(token)
        del tokens[:-20]
        return token if self._rng.random() < 0.98 else self._pick(["", "x", token.upper(), token + "\n", token[:-1]])

    # -- bending

    def _bent(self, call: dict[str, Any]) -> Any:
        holders = [
            holder for holder in (call, call["params"], call["params"].get("worktree")) if isinstance(holder, dict)
        ]
        holder = self._pick([holder for holder in holders if holder] or [call])
        key = self._pick(list(holder))
        how = self._rng.randrange(5)
        if how == 0:
            del holder[key]
        elif how == 1:
            holder[key] = self._pick(_JUNK)
        elif how == 2:
            holder[self._pick(["x", "__class__", "jsonrpc", "params", "\ud800", "é" * 50, key + " "])] = self._pick(
                _JUNK
            )
        elif how == 3:
            holder[key] = [holder[key]] * self._pick([1, 3, 200])
        else:
            deep: Any = holder[key]
            for _ in range(self._pick([3, 100, 900])):
                deep = {"a": deep}
            holder[key] = deep
        return call

    def _bent_bytes(self, frame: bytes) -> bytes:
        bent = bytearray(frame)
        for _ in range(self._pick([1, 1, 2, 8])):
            at = self._rng.randrange(len(bent) + 1)
            how = self._rng.randrange(5)
            if how == 0:
                bent[at:at] = self._pick(_BYTES)
            elif how == 1:
                del bent[at : at + self._pick([1, 3, 20])]
            elif how == 2:
                bent[at : at + 1] = bytes([self._rng.randrange(256)])
            elif how == 3:
                bent[at:at] = bent[max(0, at - self._pick([5, 30, 100])) : at]
            else:
                del bent[at:]
        return bytes(bent)

    def _dump(self, document: Any) -> bytes:
        text = json.dumps(
            document, ensure_ascii=self._rng.random() < 0.5, separators=self._pick([(",", ":"), (", ", ": ")])
        )
        if self._rng.random() < 0.03:
            # A name twice: decoders differ in which of the two they take.
            text = text.replace('"params":', '"params":{},"params":', 1).replace('"token"', '"force":true,"token"', 1)
        return text.encode("utf-8", "replace")

    def _pick(self, pool: Any) -> Any:
        return self._rng.choice(pool)

    # -- no farther than the ground

    def _is_harmless(self, frame: bytes) -> bool:
        try:
            document = json.loads(frame)
        except (ValueError, RecursionError):
            return True
        return all(self._stays(call) for call in (document if isinstance(document, list) else [document]))

    def _stays(self, call: Any) -> bool:
        if not isinstance(call, dict):
            return True
        if call.get("method") in _NEVER:
            return False
        params = call.get("params")
        if not isinstance(params, dict):
            return True
        worktree = params.get("worktree")
        places = [params.get("checkpoint_dir"), worktree.get("path") if isinstance(worktree, dict) else None]
        return all(self._ground.is_inside(_text(place)) for place in places)


def _text(place: Any) -> str:
    if isinstance(place, dict):
        encoded = "".join(char for char in str(place.get("b64")) if char in string.ascii_letters + string.digits + "+/")
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4) if len(encoded) % 4 != 1 else b"").decode("latin-1")
    return place if isinstance(place, str) else ""
