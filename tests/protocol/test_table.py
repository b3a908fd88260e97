"""One table of methods, and everything that has to follow it: the daemon, the client, the page, the golden files."""

import inspect
import re
from pathlib import Path

import pytest

from ckpt_protocol import openrpc
from ckpt_protocol.address import MAX_SOCKET_PATH_BYTES
from ckpt_protocol.errors import BY_KIND
from ckpt_protocol.framing import MAX_REPLY_BYTES, MAX_REQUEST_BYTES
from ckpt_protocol.methods import METHODS
from ckpt_protocol.proof import PATIENCE_S, ClientSide, ServerSide
from ckpt_protocol.version import PROTOCOL_VERSION
from ckptd.connection import MAX_IN_FLIGHT
from ckptd.dispatch import MAX_BATCH
from ckptd.handlers import HANDLERS
from fabricatio_checkpoint.aio import AsyncCheckpointService, AsyncCheckPointStore
from fabricatio_checkpoint.connection import READS
from fabricatio_checkpoint.service import CheckpointService
from fabricatio_checkpoint.store import CheckPointStore
from support import wire_page
from support.wire_samples import SAMPLES, golden_path

pytestmark = pytest.mark.core

CLIENT = Path(__file__).parents[2] / "client" / "fabricatio_checkpoint"
CLIENT_TEXT = "\n".join(path.read_text() for path in sorted(CLIENT.rglob("*.py")))
FOR_PROGRAMS_ONLY = {"rpc.discover", "events.subscribe", "events.unsubscribe"}
"""Methods that the client need not call: it knows the wire, and its calls wait for their answers."""

ASKED_ONCE = {"daemon.hello", "daemon.stop", "events.subscribe", "events.unsubscribe", "checkpoint.export"}
"""Methods without a token that are not asked again after a broken connection: they are about that connection or this
daemon, or find the place taken that they filled themselves."""

API = {
    "save": "checkpoint.save",
    "head": "checkpoint.head",
    "commits": "checkpoint.list",
    "checkpoints": "checkpoint.list",
    "show": "checkpoint.show",
    "status": "worktree.status",
    "get_status": "worktree.status",
    "diff": "checkpoint.diff",
    "get_file_diff": "checkpoint.diff",
    "cat": "checkpoint.cat",
    "rollback": "checkpoint.restore",
    "reset": "checkpoint.restore",
    "plan_reset": "checkpoint.restore",
    "undo": "checkpoint.undo",
    "redo": "checkpoint.redo",
    "watch": "worktree.watch",
    "watch_status": "worktree.watch",
}
"""The names of CheckPointStore, and the method that each stands on."""

SERVICE = {"get_store": "worktree.open", "workspaces": "worktree.list", "prune_invalid": "store.prune"}


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_method_is_everywhere(method):
    assert method in HANDLERS, "daemon/ckptd/handlers.py has no handler"
    assert method in SAMPLES, "tests/support/wire_samples.py has no sample"
    assert golden_path(f"{method}.request").exists(), "run tests/support/wire_samples.py"
    assert method in {one["name"] for one in openrpc.document().methods}
    section = wire_page.method_sections().get(method)
    assert section is not None, f"protocol/WIRE.md: write a section '### {method}' under Methods"
    assert "```wire\n" in section, f"protocol/WIRE.md: {method} has no example (->, <-)"
    assert f'"method":"{method}"' in section
    assert section.lstrip().startswith("Writes.") == METHODS[method].writes, (
        "the page begins with Writes. where it does"
    )
    assert f'"{method}"' in CLIENT_TEXT or method in FOR_PROGRAMS_ONLY, "the client never calls it"


def test_the_client_asks_again_what_changes_nothing():
    assert {row.name for row in METHODS.values() if not row.writes} - ASKED_ONCE == READS


def test_nothing_else_is_anywhere():
    assert set(HANDLERS) == set(SAMPLES) == set(wire_page.method_sections()) == set(METHODS)


@pytest.mark.parametrize(
    ("plain", "awaitable", "names"),
    [(CheckPointStore, AsyncCheckPointStore, API), (CheckpointService, AsyncCheckpointService, SERVICE)],
)
def test_the_api_has_its_names_in_both_forms(plain, awaitable, names):
    for name, method in names.items():
        assert method in METHODS
        assert callable(getattr(plain, name))
        assert inspect.iscoroutinefunction(getattr(awaitable, name)), name


def test_the_page_has_every_error_as_it_is():
    rows = wire_page.error_rows()
    assert [row[:3] for row in rows] == [(row.kind, row.code, row.retryable) for row in BY_KIND.values()], (
        "protocol/WIRE.md: the table under Errors"
    )
    assert all(row[3] for row in rows)


def test_the_page_s_limits_are_those_of_the_code():
    text = " ".join(wire_page.PAGE.read_text().split())
    for limit in (
        f"A request has at most {MAX_REQUEST_BYTES // 2**20} MiB",
        f"A reply has at most {MAX_REPLY_BYTES // 2**20} MiB",
        f"A batch is an array of 1 to {MAX_BATCH} requests",
        f"At most {MAX_IN_FLIGHT} may be under way",
        f"The daemon waits {PATIENCE_S:g} seconds",
        f"A path of more than {MAX_SOCKET_PATH_BYTES} bytes",
        f"`protocol` is {PROTOCOL_VERSION}.",
    ):
        assert limit in text, limit


def test_the_page_s_proof_is_one():
    (text,) = [block.text for block in wire_page.blocks() if block.kind == "proof"]
    said = dict(re.split(r"  +", line) for line in text.splitlines())
    token = bytes.fromhex(said["token"])
    client, server = ClientSide(token, said["address"]), ServerSide(token, said["address"])
    client._nonce, server._nonce = said["client nonce"], said["server nonce"]
    challenge = server.challenge(client.greeting())
    assert challenge.split()[3].decode() == said["server proof"]
    assert client.answer(challenge).decode().strip() == said["client proof"]


def test_what_is_shown_of_the_golden_files_is_in_them():
    shown = [block for block in wire_page.blocks() if block.kind.startswith("golden ")]
    assert shown
    for block in shown:
        assert golden_path(block.kind.partition(" ")[2]).read_text() == block.text


def test_every_block_of_the_page_is_of_a_kind_that_is_tested_or_is_no_frame():
    kinds = {block.kind.partition(" ")[0] for block in wire_page.blocks()}
    assert kinds <= {"wire", "sh", "proof", "golden", ""}
    assert not [block for block in wire_page.blocks() if block.kind == "" and "jsonrpc" in block.text]
