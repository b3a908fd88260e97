"""The table of errors: what can go wrong, its JSON-RPC code, and whether trying again can help."""

from typing import Final, NamedTuple

__all__ = ["BY_CODE", "BY_KIND", "FAMILIES", "INTERNAL", "ErrorKind"]


class ErrorKind(NamedTuple):
    """One row: ``kind`` is the stable word, ``code`` the number, ``family`` what the caller can do about it."""

    kind: str
    code: int
    family: str
    retryable: bool


FAMILIES: Final = ("input", "state", "storage", "daemon", "bug")
"""input: ask differently; state: the worktree or the history is not as needed; storage: disk or store;
daemon: the connection, the process or its limits; bug: ours."""

# -32768 to -32000 are JSON-RPC's own; -32000 is used by the dispatching library and therefore never by us.
_ROWS: Final = (
    ErrorKind("parse_error", -32700, "input", False),
    ErrorKind("invalid_request", -32600, "input", False),
    ErrorKind("method_not_found", -32601, "input", False),
    ErrorKind("invalid_params", -32602, "input", False),
    ErrorKind("internal", -32603, "bug", False),
    # input, 1000
    ErrorKind("bad_path", 1001, "input", False),
    ErrorKind("outside_worktree", 1002, "input", False),
    ErrorKind("unknown_checkpoint", 1003, "input", False),
    ErrorKind("ambiguous_id", 1004, "input", False),
    ErrorKind("path_not_in_checkpoint", 1005, "input", False),
    ErrorKind("protected_place", 1006, "input", False),
    ErrorKind("bad_message", 1007, "input", False),
    ErrorKind("bad_tag", 1008, "input", False),
    ErrorKind("not_a_directory", 1009, "input", False),
    ErrorKind("beyond_symlink", 1010, "input", False),
    ErrorKind("not_a_file", 1011, "input", False),
    ErrorKind("bad_option", 1012, "input", False),
    ErrorKind("unknown_tag", 1013, "input", False),
    # state, 2000
    ErrorKind("not_tracked", 2001, "state", False),
    ErrorKind("no_checkpoint", 2002, "state", False),
    ErrorKind("worktree_missing", 2003, "state", False),
    ErrorKind("worktree_replaced", 2004, "state", False),
    ErrorKind("worktree_empty", 2005, "state", False),
    ErrorKind("nothing_to_undo", 2006, "state", False),
    ErrorKind("nothing_to_redo", 2007, "state", False),
    ErrorKind("conflicts", 2008, "state", False),
    ErrorKind("plan_changed", 2009, "state", True),
    ErrorKind("tag_exists", 2010, "state", False),
    ErrorKind("restore_incomplete", 2011, "state", True),
    ErrorKind("cancelled", 2012, "state", True),
    ErrorKind("identity_mismatch", 2013, "state", False),
    ErrorKind("expired_cursor", 2014, "state", True),
    ErrorKind("nothing_to_resume", 2015, "state", False),
    ErrorKind("precondition_failed", 2016, "state", False),
    ErrorKind("checkpoint_needed", 2017, "state", False),
    ErrorKind("rules_drop", 2018, "state", False),
    ErrorKind("destination_exists", 2019, "state", False),
    ErrorKind("deadline_exceeded", 2020, "state", True),
    ErrorKind("worktree_moved", 2021, "state", False),
    ErrorKind("two_claimants", 2022, "state", False),
    # storage, 3000
    ErrorKind("store_damaged", 3001, "storage", False),
    ErrorKind("store_format", 3002, "storage", False),
    ErrorKind("object_missing", 3003, "storage", False),
    ErrorKind("no_space", 3004, "storage", True),
    ErrorKind("permission_denied", 3005, "storage", False),
    ErrorKind("io_error", 3006, "storage", True),
    ErrorKind("read_only", 3007, "storage", False),
    ErrorKind("too_many_files", 3008, "storage", True),
    ErrorKind("foreign_owner", 3009, "storage", False),
    # daemon, 4000
    ErrorKind("worktree_busy", 4001, "daemon", True),
    ErrorKind("stopping", 4002, "daemon", True),
    ErrorKind("owned_elsewhere", 4003, "daemon", False),
    ErrorKind("protocol_mismatch", 4004, "daemon", False),
    ErrorKind("frame_too_large", 4005, "daemon", False),
    ErrorKind("too_many_requests", 4006, "daemon", True),
    ErrorKind("unreachable", 4007, "daemon", True),
    ErrorKind("connection_lost", 4008, "daemon", True),
    ErrorKind("start_failed", 4009, "daemon", False),
    ErrorKind("forbidden_peer", 4010, "daemon", False),
    ErrorKind("not_running", 4011, "daemon", False),
)

BY_KIND: Final = {row.kind: row for row in _ROWS}
BY_CODE: Final = {row.code: row for row in _ROWS}
INTERNAL: Final = BY_KIND["internal"]
