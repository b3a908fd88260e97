"""``ckpt mcp`` as agents have it: the SDK's own client, a process, a daemon."""

import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import anyio
import pytest

from ckpt_protocol.framing import MAX_REQUEST_BYTES
from fabricatio_checkpoint.errors import CheckpointError
from fabricatio_checkpoint.mcp.answer import fault
from fabricatio_checkpoint.mcp.desk import Desk
from fabricatio_checkpoint.mcp.tools import TOOLS, run_tool
from fabricatio_checkpoint.store import blob_id
from support.poll import until

pytest.importorskip("mcp_types", reason="the MCP SDK (the extra [mcp]) is not installed")

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import Implementation

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ODD = b"odd\xff"


class Agent:
    """A client that has listed the tools, so that the SDK checks every structured result against its schema."""

    def __init__(self, client):
        self.client = client

    async def call(self, tool, **arguments):
        """Call a tool that has to succeed; give its structured result."""
        result = await self.client.call_tool(f"checkpoint_{tool}", arguments)
        assert not result.is_error, result.content
        return result.structured_content

    async def refused(self, tool, **arguments):
        """Call a tool that has to fail; give the error."""
        result = await self.client.call_tool(f"checkpoint_{tool}", arguments)
        assert result.is_error
        assert result.structured_content is None
        return json.loads(result.content[0].text)["error"]

    async def content(self, uri):
        """Read a resource that has one content."""
        (found,) = (await self.client.read_resource(uri)).contents
        return found


@asynccontextmanager
async def connected(place, *words, mode="auto", cwd=None, **options):
    command = ["-P", "-m", "fabricatio_checkpoint.cli", *words, "mcp"]
    parameters = StdioServerParameters(command=sys.executable, args=command, env=place.environ, cwd=cwd or place.ws)
    with (place.base / "mcp-stderr").open("a") as errlog:
        async with Client(stdio_client(parameters, errlog), mode=mode, **options) as client:
            await client.list_tools()
            yield Agent(client)


def said(place):
    return (place.base / "mcp-stderr").read_text()


def test_a_whole_session(place):
    (place.ws / "a.txt").write_text("one\n")
    (place.ws / "src").mkdir()
    (place.ws / "src" / "m.py").write_text("".join(f"line {number}\n" for number in range(1, 501)))
    (place.ws / "data.bin").write_bytes(bytes(range(256)))

    async def session():
        async with connected(place) as agent:
            assert (await agent.refused("status"))["kind"] == "not_tracked"
            assert (await agent.client.list_resources()).resources == []
            saved = await agent.call("save", message="before", tag="start", meta={"task": "7"})
            assert saved["created"]
            again = await agent.call("save", meta={"task": "7"})
            assert (again["created"], again["id"]) == (False, saved["id"])
            (place.ws / "a.txt").write_text("two\n")
            (place.ws / "data.bin").write_bytes(bytes(range(255, -1, -1)))
            (place.ws / "src" / "m.py").unlink()
            (place.ws / os.fsdecode(ODD)).write_text("new\n")
            await look_at_it(agent, saved["id"])
            await go_back_and_forth(agent)
            await read_resources(agent, saved["id"])

    async def look_at_it(agent, first):
        status = await agent.call("status")
        assert status["worktree"] == str(place.ws)
        assert status["head"] == first
        assert status["head_record"]["meta"] == {
            "agent": "mcp",
            "event": "save",
            "session": status["session"],
            "task": "7",
        }
        assert status["changes"] == [
            {"path": "a.txt", "change": "modified"},
            {"path": "data.bin", "change": "modified"},
            {"path": {"b64": "b2Rk/w=="}, "change": "added"},
            {"path": "src/m.py", "change": "deleted"},
        ]
        diff = await agent.call("diff", max_bytes=1000)
        assert "-one\n+two\n" in diff["patch"]
        assert "Binary content differs" in diff["patch"]
        assert diff["next_files"] == ["src/m.py"]
        rest = await agent.call("diff", cursor=diff["cursor"], max_bytes=60_000)
        assert rest["patch"].startswith("diff --git a/src/m.py")
        assert rest["patch"].endswith("-line 500\n")
        assert rest["cursor"] is None
        assert "a.txt" in (await agent.call("diff", format="stat", paths=["a.txt"]))["patch"]
        read = await agent.call("read", id="start", path="src/m.py", start_line=499)
        assert (read["text"], read["first_line"], read["next_offset"]) == ("line 499\nline 500\n", 499, None)
        piece = await agent.call("read", id="start", path=str(place.ws / "src" / "m.py"), max_bytes=1000)
        assert piece["text"].endswith("\n")
        assert (await agent.call("read", id="start", path="src/m.py", offset=piece["next_offset"]))["id"] == first
        binary = await agent.call("read", id="HEAD", path="data.bin")
        assert binary["binary"]
        assert "text" not in binary
        assert "b64" in await agent.call("read", id="HEAD", path="data.bin", encoding="base64")

    async def go_back_and_forth(agent):
        plan = await agent.call("restore")
        assert plan["dry_run"]
        assert plan["written"] == ["a.txt", "data.bin", "src/m.py"]
        assert plan["deleted"] == [{"b64": "b2Rk/w=="}]
        assert plan["digest"] in plan["hint"]
        assert (place.ws / "a.txt").read_text() == "two\n"
        (place.ws / "a.txt").write_text("three\n")
        stale = await agent.refused("restore", confirm_digest=plan["digest"])
        assert (stale["kind"], stale["retryable"]) == ("plan_changed", True)
        assert (place.ws / "a.txt").read_text() == "three\n"
        held = {"path": "a.txt", "oid": blob_id(b"two\n")}
        assert (await agent.refused("restore", expect=[held]))["kind"] == "precondition_failed"
        plan = await agent.call("restore", id="start", paths=["src", "a.txt"])
        done = await agent.call("restore", id="start", paths=["src", "a.txt"], confirm_digest=plan["digest"])
        assert not done["dry_run"]
        assert (done["written"], done["deleted"]) == (["a.txt", "src/m.py"], [])
        assert done["safety"]
        assert (place.ws / "a.txt").read_text() == "one\n"
        assert (place.ws / os.fsdecode(ODD)).exists()
        assert (await agent.call("undo", dry_run=True))["counts"]["deleted"] == 1
        assert (place.ws / "src" / "m.py").exists()
        await agent.call("undo")
        assert (place.ws / "a.txt").read_text() == "three\n"
        assert not (place.ws / "src" / "m.py").exists()
        await agent.call("redo")
        assert (place.ws / "a.txt").read_text() == "one\n"
        assert (await agent.refused("redo"))["kind"] == "nothing_to_redo"

    async def read_resources(agent, first):
        listed = await agent.call("list", limit=1)
        assert listed["checkpoints"][0]["kind"] == "safety"
        older = await agent.call("list", before_seq=listed["next_before_seq"])
        assert older["checkpoints"][-1]["id"] == first
        assert not older["more"]
        hit, *others = (await agent.call("search", text="line 250", limit=9))["hits"][::-1]
        assert hit["checkpoint"]["id"] == first
        assert hit["paths"] == [{"path": "src/m.py", "before": 0, "after": 1}]
        assert others
        assert (await agent.call("search", text="never there"))["hits"] == []
        resources = (await agent.client.list_resources()).resources
        assert [each.uri for each in resources][-1] == f"checkpoint:///{first}"
        assert "before [start]" in resources[-1].name
        record = json.loads((await agent.content("checkpoint:///start")).text)
        assert record["checkpoint"]["id"] == first
        assert record["counts"]["changes"] == len(record["changes"]) == 3
        patch = await agent.content(f"{resources[0].uri}/patch")
        assert patch.text.startswith("diff --git")
        assert (await agent.content("checkpoint:///start/files/src/m.py")).text.startswith("line 1\n")
        assert (await agent.content(f"{resources[0].uri}/files/odd%FF")).text == "new\n"
        assert (await agent.content("checkpoint:///start/files/data.bin")).blob
        assert len((await agent.client.list_resource_templates()).resource_templates) == 3
        with pytest.raises(MCPError, match="no checkpoint 'nothing'") as raised:
            await agent.content("checkpoint:///nothing")
        assert raised.value.data["kind"] == "unknown_checkpoint"

    anyio.run(session)
    assert said(place) == ""


def test_a_client_of_the_older_kind_is_greeted_and_named_in_the_history(place):
    (place.ws / "sub").mkdir()
    (place.ws / "sub" / "file").write_text("x")
    place.save("by hand")

    async def session():
        info = Implementation(name="my-agent", version="3")
        async with connected(place, mode="legacy", cwd=place.ws / "sub", client_info=info) as agent:
            assert agent.client.protocol_version == "2025-11-25"
            assert "checkpoint_save" in agent.client.instructions
            tools = {tool.name: tool for tool in (await agent.client.list_tools()).tools}
            assert set(tools) == set(TOOLS)
            assert tools["checkpoint_status"].annotations.read_only_hint
            assert tools["checkpoint_restore"].annotations.destructive_hint
            assert not tools["checkpoint_save"].annotations.destructive_hint
            # The worktree is the tracked one around the directory that the client started it in.
            assert (await agent.call("status"))["worktree"] == str(place.ws)
            (place.ws / "sub" / "file").write_text("y")
            saved = await agent.call("save", kind="auto")
            shown = await agent.call("show", id=saved["id"])
            assert shown["checkpoint"]["meta"]["agent"] == "my-agent"
            assert shown["changes"] == [{"path": "sub/file", "change": "modified"}]
            mine = await agent.call("list", meta={"agent": "my-agent"})
            assert [each["id"] for each in mine["checkpoints"]] == [saved["id"]]
            # What anybody does after a save is not held to be the agent's.
            (place.ws / "by hand").write_text("later")
            session = shown["checkpoint"]["meta"]["session"]
            refusal = place.json("undo", "--session", session, "--dry-run", code=20)
            assert refusal["error"]["kind"] == "nothing_to_undo"

    anyio.run(session)
    assert "in the tracked worktree" in said(place)


def test_what_goes_wrong_is_told_to_the_model(place):
    async def session():
        async with connected(place) as agent:
            await agent.call("save")
            outside = await agent.refused("read", id="HEAD", path="../secret")
            assert outside["kind"] == "outside_worktree"
            assert outside["hint"]
            odd = await agent.refused("read", id="HEAD", path={"b64": "b2Rk/w=="})
            assert (odd["kind"], odd["paths"]) == ("path_not_in_checkpoint", [{"b64": "b2Rk/w=="}])
            assert (await agent.refused("read", id="HEAD", path={"b64": "b2Rk"}))["kind"] == "bad_path"
            assert "checkpoint_list" in (await agent.refused("show", id="nothing"))["hint"]
            assert "limit" in (await agent.refused("list", limit=-1))["message"]
            assert (await agent.refused("restore", paths=[]))["kind"] == "bad_path"
            assert (await agent.refused("undo"))["kind"] == "nothing_to_undo"
            assert (await agent.refused("diff", cursor="old:0"))["kind"] == "expired_cursor"
            with pytest.raises(MCPError, match="no tool"):
                await agent.client.call_tool("save", {})

    anyio.run(session)
    assert said(place) == ""


def test_a_wrong_directory_is_told_to_the_model(place):
    for directory, kind in ((place.home / "gone", "worktree_missing"), (place.home, "protected_place")):
        desk = Desk(place.socket, str(place.checkpoint_dir), lambda where=directory: os.fsencode(where), "s")
        tool = TOOLS["checkpoint_save" if kind == "protected_place" else "checkpoint_status"]
        with pytest.raises(CheckpointError) as raised:
            run_tool(tool, desk, {}, None, None)
        desk.close()
        told = fault(raised.value)["error"]
        assert told["kind"] == kind
        assert "user" in told["hint"]


def test_many_paths_come_in_pages_and_a_new_daemon_is_no_obstacle(place):
    place.save()
    for number in range(1200):
        (place.ws / f"a file with quite a long name {number:04}").touch()

    async def session():
        async with connected(place) as agent:
            page = await agent.call("status", limit=1000)
            found = page["changes"]
            assert page["counts"]["changes"] == 1200
            assert len(json.dumps(page)) < 25_000
            place.kill()
            while "next_after_path" in page:
                page = await agent.call("status", limit=1000, after_path=page["next_after_path"])
                found += page["changes"]
            assert [each["path"] for each in found] == sorted(path.name for path in place.ws.iterdir())
            plan = await agent.call("restore")
            assert plan["counts"]["deleted"] == 1200
            assert len(plan["deleted"]) == 50
            assert plan["next_after_path"] == plan["deleted"][-1]

    anyio.run(session)


def test_a_call_that_is_cancelled_is_given_up_and_tells_before_how_far_it_is(place):
    place.heavy(128)
    told = []

    async def session():
        async with connected(place) as agent:

            async def listen(progress, _total, message):
                told.append((progress, message))
                if len(told) > 1:
                    scope.cancel()

            with anyio.move_on_after(120) as scope:
                await agent.client.call_tool("checkpoint_save", {}, progress_callback=listen)
            assert scope.cancel_called
            assert (await agent.call("list"))["checkpoints"] == []

    anyio.run(session)
    assert [progress for progress, _ in told] == sorted({progress for progress, _ in told})
    assert all(" files, " in message for _, message in told)


INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}  # fmt: skip


def begun(place, *words):
    child = place.start(*words, stdin=subprocess.PIPE)
    child.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
    child.stdin.flush()
    reply = json.loads(child.stdout.readline())
    assert reply["result"]["serverInfo"]["name"] == "ckpt"
    return child


def test_a_closed_stdin_ends_it_and_nothing_but_the_protocol_is_on_stdout(place):
    child = begun(place, "--json", "mcp")
    out, err = child.communicate(b"this is no message\n", timeout=60)
    assert (child.returncode, out, err) == (0, b"", b"")
    assert place.daemons() == []


def test_ctrl_c_ends_it_and_gives_a_save_up(place):
    place.heavy(128)
    child = begun(place, "mcp")
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "checkpoint_save", "arguments": {}}}
    # Answers for which the pipe has no room, as nobody reads them.
    listing = [{"jsonrpc": "2.0", "id": number, "method": "tools/list"} for number in range(3, 9)]
    notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    child.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in (notice, *listing, call)))
    child.stdin.flush()
    until(lambda: place.daemons() and place.is_busy(), 60)
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 130
    assert child.stderr.read() == b"ckpt: interrupted\n"
    child.stdin.close()
    until(lambda: not place.is_busy(), 60)
    assert place.ckpt("ls").out == ""


def test_a_client_that_is_killed_is_no_error(place):
    child = begun(place, "mcp")
    child.stdout.close()
    child.stdin.write(b'{"jsonrpc":"2.0","id":2,"method":"ping"}\n')
    child.stdin.flush()
    assert child.wait(60) == 0
    child.stdin.close()
    assert child.stderr.read() == b""


def test_a_message_that_does_not_end_ends_it(place):
    child = begun(place, "mcp")
    out, err = child.communicate(b"x" * (MAX_REQUEST_BYTES + 100_000), timeout=60)
    assert (child.returncode, out) == (60, b"")
    assert err == b"ckpt: the client sent a message of more than %d bytes\n" % MAX_REQUEST_BYTES


def test_without_the_sdk_one_line_says_what_to_install(place):
    code = (
        "import sys; sys.modules['mcp'] = None; from fabricatio_checkpoint.cli.__main__ import main; sys.exit(main())"
    )
    for words in (["mcp"], ["--json", "mcp"]):
        outcome = place.python(code, *words)
        assert (outcome.code, outcome.out) == (2, "")
        assert 'pip install "fabricatio-checkpoint[mcp]"' in outcome.stderr
        assert outcome.stderr.count("\n") == 1
    assert '"mcpServers"' in place.done("help", "mcp").out
