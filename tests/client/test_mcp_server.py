"""The SDK's side of ``ckpt mcp`` in this process: what a bug costs, and stdin and stdout without threads."""

import json
import os

import anyio
import pytest

from ckpt_protocol.framing import MAX_REQUEST_BYTES, FrameTooLargeError
from fabricatio_checkpoint.mcp.desk import Desk
from fabricatio_checkpoint.mcp.streams import Lines, Outlet, own_stdout

pytestmark = pytest.mark.timeout(120)


def broken_desk() -> Desk:
    def locate() -> bytes:
        raise ZeroDivisionError("a secret of the code")

    return Desk("/nowhere", "/nowhere", locate, "s")


def test_a_bug_costs_one_answer_and_tells_the_model_nothing_of_the_code(caplog):
    mcp = pytest.importorskip("mcp", reason="the MCP SDK (the extra [mcp]) is not installed")
    from fabricatio_checkpoint.mcp.server import make_server

    async def session():
        async with mcp.Client(make_server(broken_desk())) as client:
            for _ in range(2):
                result = await client.call_tool("checkpoint_status", {})
                error = json.loads(result.content[0].text)["error"]
                assert (result.is_error, error["kind"]) == (True, "internal")
                assert "secret" not in result.content[0].text
            with pytest.raises(mcp.MCPError, match="a fault of this server"):
                await client.read_resource("checkpoint:///HEAD")

    anyio.run(session)
    assert "a secret of the code" in caplog.text


@pytest.fixture
def pipe():
    ends = list(os.pipe())
    yield ends
    for end in ends:
        os.close(end)


async def lines_of(fd):
    return [line async for line in Lines(fd)]


def test_lines_come_as_they_are_written_however_they_arrive(short_dir):
    text = "one\n" + "ä" * 100_000 + "\n\nlast\n"
    (short_dir / "file").write_bytes(text.encode() + b"odd \xff\n")
    with open(short_dir / "file", "rb") as file:
        assert anyio.run(lines_of, file.fileno()) == [*text.splitlines(), "odd \ufffd"]
    with open(os.devnull, "rb") as file:
        assert anyio.run(lines_of, file.fileno()) == []


def test_a_message_without_an_end_is_refused(short_dir):
    with open(short_dir / "file", "wb") as file:
        file.truncate(MAX_REQUEST_BYTES + 1)
    with open(short_dir / "file", "rb") as file, pytest.raises(FrameTooLargeError):
        anyio.run(lines_of, file.fileno())


def test_reading_and_writing_can_be_cancelled(pipe):
    reading, writing = pipe

    async def wait():
        with anyio.move_on_after(0.01) as scope:
            await lines_of(reading)
        assert scope.cancelled_caught
        with anyio.move_on_after(0.01) as scope:
            await Outlet(writing).write("x" * 10_000_000)
        assert scope.cancelled_caught

    anyio.run(wait)


def test_what_is_written_arrives_whole(pipe):
    reading, writing = pipe
    text = "".join(f"{number} ä\n" for number in range(50_000))

    async def exchange():
        lines = []
        async with anyio.create_task_group() as group:
            group.start_soon(Outlet(writing).write, text)
            async for line in Lines(reading):
                lines.append(line)
                if len(lines) == 50_000:
                    break
        return lines

    assert anyio.run(exchange) == text.splitlines()


def test_stdout_is_ours_alone_until_the_end(capfdbinary):
    with own_stdout() as private:
        os.write(private, b"protocol\n")
        os.write(1, b"stray\n")
    os.write(1, b"after\n")
    out, err = capfdbinary.readouterr()
    assert (out, err) == (b"protocol\nafter\n", b"stray\n")
