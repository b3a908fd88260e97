"""``checkpoint_search``."""

import time
from typing import Any, Final

from ckpt_protocol.checkpoint import SearchParams, SearchResult
from fabricatio_checkpoint.mcp.answer import Answer
from fabricatio_checkpoint.mcp.field import arguments_of, result_of
from fabricatio_checkpoint.mcp.history import brief
from fabricatio_checkpoint.mcp.page import BUDGET_BYTES, head_of
from fabricatio_checkpoint.mcp.tool import HINT, PATHS, Call, Tool, limit

__all__ = ["SEARCH"]

_LONG_S: Final = 10.0
"""After so many seconds no further page is asked for; each one takes the daemon half a minute at most."""

_PATHS: Final = 20

_TEXT: Final = """\
Find the checkpoints that added or removed a text, newest first: where a line, a name or a function came from or went. \
For each it names the files, with how often the text was in them before and after. No patterns."""


def _search(call: Call) -> Answer:
    wanted = call.some("text", "ignore_case", "kind", "meta")
    wanted["paths"] = call.desk.filter(call.arguments["paths"])
    most, seq = call.arguments["limit"], call.arguments["before_seq"]
    hits: list[dict[str, Any]] = []
    sums = dict.fromkeys(("searched", "damaged", "unread"), 0)
    begun = time.monotonic()
    while True:
        position = {"limit": most - len(hits), "before_seq": seq}
        result = call.desk.ask("checkpoint.search", {**wanted, **position}, call.tell)
        hits += map(_hit, result["hits"])
        sums = {name: count + result.get(name, 0) for name, count in sums.items()}
        seq = result["next_seq"]
        if seq is None or len(hits) >= most or time.monotonic() - begun > _LONG_S:
            break
    shown = head_of(hits, most, BUDGET_BYTES)
    if len(shown) < len(hits):
        seq = shown[-1]["checkpoint"]["seq"]
    answer = {"hits": shown, "head": result["head"], "next_seq": seq, **sums}
    if seq is not None:
        answer["hint"] = "Not all has been searched yet: call again with before_seq=next_seq for older ones."
    elif not shown:
        answer["hint"] = "No checkpoint added or removed it. What has changed since the last one is no part of this."
    return Answer(answer)


def _hit(found: dict[str, Any]) -> dict[str, Any]:
    paths = found["paths"][:_PATHS]
    left_out = found.get("left_out", 0) + len(found["paths"]) - len(paths)
    return {"checkpoint": brief(found["checkpoint"]), "paths": paths, "left_out": left_out}


SEARCH: Final = Tool(
    "checkpoint_search",
    "Search the history for a text",
    _TEXT,
    arguments_of(
        "SearchArguments",
        SearchParams,
        {
            "text": "What to look for, exactly as it stands in the files.",
            "ignore_case": "Take both cases of a letter for the same.",
            "before_seq": "Only checkpoints with a lower seq: go on with a search.",
            "kind": "Only checkpoints of this kind.",
            "meta": "Only checkpoints with these values.",
            "paths": PATHS,
        },
        (limit(10),),
    ),
    result_of("SearchAnswer", SearchResult, (), (HINT,)),
    _search,
)
