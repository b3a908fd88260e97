"""Frames in, answers out: every kind of bad input, every method, every kind of error."""

import json
import logging
import re
import tracemalloc

import anyio
import anyio.lowlevel
import msgspec
import pytest

from ckpt_protocol import worktree
from ckpt_protocol.errors import BY_KIND
from ckpt_protocol.methods import METHODS
from ckpt_protocol.version import PROTOCOL_VERSION
from ckptd.dispatch import MAX_BATCH, Dispatcher
from ckptd.errors import DomainError
from ckptd.handlers import HANDLERS
from ckptd.peer import Peer
from support.fake_manager import IN_STEPS, SIDES, FakeManager, Run, daemon_on
from support.wire_samples import SAMPLES

pytestmark = [pytest.mark.core, pytest.mark.anyio]

SAVE = {"checkpoint_dir": "/h/.c", "worktree": {"path": "/w"}, "token": "0" * 32}
PLACE = {"checkpoint_dir": "/h/.c", "worktree": {"path": "/w"}}


class Wire:
    """A dispatcher on a fake manager, spoken to in JSON."""

    def __init__(self) -> None:
        self.manager = FakeManager()
        self.stopped: list[bool] = []
        self.dispatcher = Dispatcher(daemon_on(self.manager, lambda: self.stopped.append(True)))
        self.peer = Peer()

    async def raw(self, frame: bytes):
        answer = await self.dispatcher.handle(frame, self.peer)
        return None if answer is None else json.loads(answer)

    async def call(self, method: str, params: object = None, request_id: object = 1):
        document = {"jsonrpc": "2.0", "method": method, "params": {} if params is None else params, "id": request_id}
        return await self.raw(json.dumps(document).encode())

    async def error(self, method: str, params: object) -> dict:
        return (await self.call(method, params))["error"]


@pytest.fixture
def wire() -> Wire:
    return Wire()


def kind_of(answer) -> str:
    assert set(answer) == {"jsonrpc", "error", "id"}
    assert BY_KIND[answer["error"]["data"]["kind"]].code == answer["error"]["code"]
    return answer["error"]["data"]["kind"]


def test_every_method_has_a_handler() -> None:
    assert set(HANDLERS) == set(METHODS)


@pytest.mark.parametrize("method", [name for name in METHODS if not name.startswith(("daemon.", "rpc.", "events."))])
@pytest.mark.parametrize("params", ["params", "least_params"])
async def test_each_method_answers_its_own_result(wire, method, params) -> None:
    sent = msgspec.to_builtins(getattr(SAMPLES[method], params))
    answer = await wire.call(method, sent)
    result = msgspec.convert(answer["result"], METHODS[method].result)
    expected = SAMPLES[method].result
    if method == "worktree.watch":
        reboot = worktree.WatchReboot(unit=False, enabled=False, linger=False)
        expected = msgspec.structs.replace(expected, state="halted", halted="for the test", reboot=reboot)
    assert result == expected
    # These go on in steps: not done yet, done. Collections and thinnings begin and end by steps of their own, a diff
    # with the worktree begins by a look at that, and ends by letting go of it.
    has_ends = method in ("store.gc", "store.thin") or (method == "checkpoint.diff" and params == "least_params")
    assert len(wire.manager.asked) == (2 + 2 * has_ends if method in IN_STEPS else 1)


async def test_the_wire_is_described_by_itself(wire) -> None:
    answer = await wire.call("rpc.discover", {})
    assert [method["name"] for method in answer["result"]["methods"]] == list(METHODS)


@pytest.mark.parametrize("method", IN_STEPS)
async def test_what_goes_on_in_steps_ends_with_the_store_that_it_was_begun_with(wire, method) -> None:
    wire.manager.reopens = True
    answer = await wire.call(method, msgspec.to_builtins(SAMPLES[method].params))
    assert answer["error"]["data"]["kind"] == "stopping"


async def test_what_each_kind_of_method_asks_of_the_manager(wire) -> None:
    for method, params in (
        ("checkpoint.save", SAVE | {"force": True}),
        ("checkpoint.restore", SAVE),
        ("checkpoint.restore", SAVE | {"dry_run": True}),
        ("checkpoint.undo", SAVE),
        ("worktree.resume", SAVE | {"action": "finish"}),
        ("worktree.resume", SAVE | {"action": "undo", "dry_run": True}),
        ("worktree.status", PLACE),
        ("checkpoint.head", PLACE),
    ):
        assert "result" in await wire.call(method, params), method
    plain = {"create": False, "force": False, "exclusive": False}
    assert wire.manager.asked == [
        ("write", b"/h/.c", {"create": True, "force": True, "exclusive": False}),
        ("write", b"/h/.c", plain | {"exclusive": True}),
        ("write", b"/h/.c", plain),
        ("write", b"/h/.c", plain | {"exclusive": True}),
        ("write", b"/h/.c", plain | {"exclusive": True}),
        ("write", b"/h/.c", plain),
        ("status", b"/h/.c", {}),
        ("read", b"/h/.c", {}),
    ]


@pytest.mark.parametrize(
    ("fields", "turns"), [({}, 1), ({"to_id": "HEAD"}, 0), ({"cursor": "c", "offset": 1}, 0), ({"from_id": "#1"}, 1)]
)
async def test_of_a_diff_only_the_look_at_the_worktree_takes_a_turn_among_saves(wire, fields, turns) -> None:
    assert "result" in await wire.call("checkpoint.diff", PLACE | fields)
    kinds = [kind for kind, _, _ in wire.manager.asked]
    assert kinds == ["write"] * turns + ["read", "read"] + ["read"] * turns
    assert [one.is_open for one in wire.manager.snapshots] == [False] * turns


async def test_a_diff_waits_for_others_where_many_are_being_made(wire) -> None:
    wire.manager.busy_looks = 3
    assert "result" in await wire.call("checkpoint.diff", PLACE)
    assert [kind for kind, _, _ in wire.manager.asked] == ["write"] * 4 + ["read"] * 3


@pytest.mark.parametrize(("kind", "looks"), [("object_missing", 2), ("no_checkpoint", 1)])
async def test_a_diff_looks_once_more_where_a_collection_came_in_between(wire, monkeypatch, kind, looks) -> None:
    def failing(_self: object) -> object:
        raise DomainError(kind, "for the test")

    monkeypatch.setattr(Run, "step", failing)
    assert kind_of(await wire.call("checkpoint.diff", PLACE)) == kind
    assert [one.is_open for one in wire.manager.snapshots] == [False] * looks


async def test_hello_names_the_caller_of_later_requests(wire) -> None:
    params = {"protocol": PROTOCOL_VERSION, "build": "9", "client": "ckpt", "session": "s1"}
    answer = await wire.call("daemon.hello", params)
    assert answer["result"]["capabilities"] == sorted(METHODS)
    await wire.call("checkpoint.save", SAVE)
    assert [(caller.client, caller.session) for caller in wire.manager.callers] == [("ckpt", "s1")]


async def test_without_hello_the_client_is_unknown(wire) -> None:
    await wire.call("checkpoint.save", SAVE)
    assert [(caller.client, caller.session) for caller in wire.manager.callers] == [("unknown", None)]


async def test_another_protocol_is_told_both_numbers(wire) -> None:
    error = await wire.error("daemon.hello", {"protocol": 99, "build": "9", "client": "ckpt"})
    assert error["data"]["kind"] == "protocol_mismatch"
    assert "99" in error["message"]
    assert f"protocol {PROTOCOL_VERSION}" in error["message"]
    assert wire.peer.client == "unknown"


async def test_status_and_stop_of_the_daemon(wire) -> None:
    status = (await wire.call("daemon.status"))["result"]
    assert (status["socket"], status["connections"], len(status["stores"])) == ("/run/x.sock", 3, 1)
    assert wire.stopped == []
    assert (await wire.call("daemon.stop"))["result"]["pid"] == status["pid"]
    assert wire.stopped == [True]


@pytest.mark.parametrize(
    ("frame", "kind", "request_id"),
    [
        (b"{", "parse_error", None),
        (b"nonsense", "parse_error", None),
        (b'{"jsonrpc":"2.0","method":"daemon.status","id":1} x', "parse_error", None),
        (b'{"jsonrpc":"2.0","method":1,"id":1, nonsense', "parse_error", None),
        (b'{"jsonrpc":"2.0","method":"daemon.status","params":{"a":"\xff"},"id":1}', "parse_error", None),
        (b'{"jsonrpc":"2.0","method":"daemon.status","params":' + b"[" * 100_000, "parse_error", None),
        (b"[" * 100_000 + b"]" * 100_000, "parse_error", None),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "parse_error", None),
        (b'[{"jsonrpc":"2.0","method":"daemon.status","id":1},', "parse_error", None),
        (b"1", "invalid_request", None),
        (b'"daemon.status"', "invalid_request", None),
        (b"null", "invalid_request", None),
        (b"[]", "invalid_request", None),
        (b" [ ] ", "invalid_request", None),
        (b"{}", "invalid_request", None),
        (b'{"jsonrpc":"1.0","method":"daemon.status","id":7}', "invalid_request", 7),
        (b'{"method":"daemon.status","id":"a"}', "invalid_request", "a"),
        (b'{"jsonrpc":"2.0","method":5,"id":7}', "invalid_request", 7),
        (b'{"jsonrpc":"2.0","method":"daemon.status","id":7,"extra":1}', "invalid_request", 7),
        (b'{"jsonrpc":"2.0","method":"daemon.status","id":{}}', "invalid_request", None),
        (b'{"jsonrpc":"2.0","method":"daemon.status","id":true}', "invalid_request", None),
        (b'{"jsonrpc":"2.0","method":"daemon.status","id":1.5}', "invalid_request", None),
        (b'{"jsonrpc":"2.0","method":"daemon.nothing","id":7}', "method_not_found", 7),
        (b'{"jsonrpc":"2.0","method":"daemon.status","params":[],"id":7}', "invalid_params", 7),
        (b'{"jsonrpc":"2.0","method":"daemon.status","params":null,"id":7}', "invalid_params", 7),
        (b'{"jsonrpc":"2.0","method":"daemon.status","params":{"x":1},"id":7}', "invalid_params", 7),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_bad_frames(wire, frame, kind, request_id) -> None:
    answer = await wire.raw(frame)
    assert (kind_of(answer), answer["id"]) == (kind, request_id)
    assert wire.manager.asked == []


async def test_ids_come_back_as_they_were(wire) -> None:
    for request_id in (0, -1, "x", "", None, 10**30):
        assert (await wire.call("daemon.status", request_id=request_id))["id"] == request_id


async def test_batch_members_are_answered_each_on_its_own(wire) -> None:
    batch = [
        {"jsonrpc": "2.0", "method": "daemon.status", "id": 1},
        {"foo": "bar", "id": 2},
        3,
        {"jsonrpc": "2.0", "method": "daemon.status"},
        {"jsonrpc": "2.0", "method": "no.such", "id": "d"},
        {"jsonrpc": "2.0", "method": "checkpoint.save", "params": SAVE, "id": 5},
    ]
    answers = await wire.raw(json.dumps(batch).encode())
    assert [answer["id"] for answer in answers] == [1, 2, None, "d", 5]
    assert ["result" in answer for answer in answers] == [True, False, False, False, True]
    assert [kind_of(answer) for answer in answers[1:4]] == ["invalid_request", "invalid_request", "method_not_found"]


async def test_a_batch_is_limited(wire) -> None:
    member = {"jsonrpc": "2.0", "method": "daemon.status", "id": 1}
    assert len(await wire.raw(json.dumps([member] * MAX_BATCH).encode())) == MAX_BATCH
    assert kind_of(await wire.raw(json.dumps([member] * (MAX_BATCH + 1)).encode())) == "invalid_request"


async def test_notifications_are_done_and_not_answered(wire) -> None:
    note = {"jsonrpc": "2.0", "method": "checkpoint.save", "params": SAVE}
    assert await wire.raw(json.dumps(note).encode()) is None
    assert await wire.raw(json.dumps([note, note]).encode()) is None
    assert len(wire.manager.asked) == 3
    assert await wire.raw(b'{"jsonrpc":"2.0","method":"no.such"}') is None
    assert await wire.raw(json.dumps(note | {"params": {}}).encode()) is None
    wire.manager.raises = RuntimeError("x")
    assert await wire.raw(json.dumps(note).encode()) is None


async def test_invalid_params_name_the_field_and_not_the_value(wire) -> None:
    error = await wire.error("checkpoint.save", SAVE | {"message": {"secret": "hunter2"}})
    assert error["data"]["kind"] == "invalid_params"
    assert "$.message" in error["message"]
    assert "hunter2" not in json.dumps(error)
    error = await wire.error("checkpoint.save", SAVE | {"massage": "hunter2"})
    assert "massage" in error["message"]
    assert "hunter2" not in json.dumps(error)
    assert (await wire.error("checkpoint.save", PLACE))["data"]["kind"] == "invalid_params"
    assert wire.manager.asked == []


@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("checkpoint.save", {"checkpoint_dir": "relative"}),
        ("checkpoint.save", {"checkpoint_dir": ""}),
        ("checkpoint.save", {"checkpoint_dir": "/a/../b"}),
        ("checkpoint.save", {"worktree": {"path": "w"}}),
        ("checkpoint.save", {"worktree": {"path": "/w/"}}),
        ("checkpoint.save", {"worktree": {"path": "/w//x"}}),
        ("checkpoint.save", {"worktree": {"path": "/w\0"}}),
        ("checkpoint.save", {"worktree": {"path": {"b64": "L3c="}}}),
        ("checkpoint.save", {"worktree": {"path": {"b64": "!"}}}),
        ("checkpoint.restore", {"paths": ["ok", "../up"]}),
        ("checkpoint.restore", {"paths": ["/etc/passwd"]}),
        ("checkpoint.restore", {"paths": [""]}),
        ("checkpoint.restore", {"paths": ["a/./b"]}),
    ],
)
async def test_paths_are_checked_at_the_boundary(wire, method, change) -> None:
    error = await wire.error(method, SAVE | change)
    assert error["data"]["kind"] == "bad_path"
    assert wire.manager.asked == []


async def test_names_that_a_list_follows_are_checked(wire) -> None:
    assert (await wire.error("checkpoint.list", PLACE | {"follow": ["../y"]}))["data"]["kind"] == "bad_path"
    assert "result" in await wire.call("checkpoint.list", PLACE | {"follow": ["a/y"]})


async def test_the_file_of_a_cat_is_checked(wire) -> None:
    assert (await wire.error("checkpoint.cat", PLACE | {"id": "x", "path": "../y"}))["data"]["kind"] == "bad_path"
    assert "result" in await wire.call("checkpoint.cat", PLACE | {"id": "x", "path": "a/y"})


@pytest.mark.parametrize("kind", sorted(BY_KIND))
async def test_domain_errors_arrive_whole(wire, kind) -> None:
    wire.manager.raises = DomainError(kind, "no \udcff", hint="do \udcfe", paths=[b"a", b"\xff"])
    answer = await wire.call("checkpoint.save", SAVE)
    row = BY_KIND[kind]
    assert answer["error"] == {
        "code": row.code,
        "message": "no \\udcff",
        "data": {
            "kind": kind,
            "retryable": row.retryable,
            "hint": "do \\udcfe",
            "paths": ["a", {"b64": "/w=="}],
            "error_id": None,
        },
    }


@pytest.mark.parametrize(
    "error", [ValueError("secret text"), KeyError("secret text"), ExceptionGroup("s", [OSError()])]
)
async def test_unexpected_errors_reach_the_log_alone(wire, caplog, error) -> None:
    wire.manager.raises = error
    with caplog.at_level(logging.INFO):
        answer = await wire.call("checkpoint.save", SAVE)
    error_id = answer["error"]["data"]["error_id"]
    assert (kind_of(answer), answer["id"]) == ("internal", 1)
    assert re.fullmatch("[0-9a-f]{12}", error_id)
    assert "secret" not in json.dumps(answer)
    assert error_id in caplog.text
    assert "Traceback" in caplog.text
    assert type(error).__name__ in caplog.text


@pytest.mark.parametrize("method", sorted(SIDES))
async def test_a_result_that_cannot_be_encoded_is_an_error_of_ours(wire, method) -> None:
    wire.manager.instead = msgspec.structs.replace(SAMPLES["worktree.status"].result, head="\udcff")
    answer = await wire.call(method, msgspec.to_builtins(SAMPLES[method].params))
    assert kind_of(answer) == "internal"


async def test_one_line_a_request_without_contents(wire, caplog) -> None:
    with caplog.at_level(logging.INFO, logger="ckptd.requests"):
        await wire.call("checkpoint.save", SAVE | {"message": "hunter2", "worktree": {"path": "/w\nforged"}})
        await wire.call("no.such\nforged")
        wire.manager.raises = DomainError("no_space", "full")
        await wire.call("checkpoint.save", SAVE)
    lines = [record.getMessage() for record in caplog.records if record.name == "ckptd.requests"]
    assert len(lines) == 3
    assert re.fullmatch(r"checkpoint\.save worktree='/w\\nforged' ms=\d+\.\d outcome=ok", lines[0])
    assert re.fullmatch(r"no\.such\\nforged worktree=- ms=\d+\.\d outcome=method_not_found", lines[1])
    assert re.fullmatch(r"checkpoint\.save worktree='/w' ms=\d+\.\d outcome=no_space", lines[2])
    assert "hunter2" not in caplog.text


async def test_refusals_echo_ids(wire) -> None:
    def refuse(document: object):
        answer = wire.dispatcher.refuse(json.dumps(document).encode(), "too_many_requests", "later", wire.peer)
        return None if answer is None else json.loads(answer)

    call = {"jsonrpc": "2.0", "method": "checkpoint.save", "params": SAVE, "id": 4}
    note = {"jsonrpc": "2.0", "method": "checkpoint.save", "params": SAVE}
    assert (kind_of(refuse(call)), refuse(call)["id"]) == ("too_many_requests", 4)
    assert refuse(note) is None
    assert [answer["id"] for answer in refuse([call, note, call])] == [4, 4]
    assert kind_of(refuse([])) == "invalid_request"
    assert json.loads(wire.dispatcher.refuse(b"{", "too_many_requests", "later", wire.peer))["error"]["code"] == -32700
    assert wire.manager.asked == []


@pytest.mark.parametrize(
    "text",
    [
        '{"jsonrpc":"2.0","method":"checkpoint.save","params":{%s,"force":false,"force":true},"id":1}',
        '{"jsonrpc":"2.0","method":"checkpoint.save","params":{%s,"force":false,"f\\u006frce":true},"id":1}',
        '{"jsonrpc":"2.0","method":"checkpoint.save","params":{%s,"force":true,"force":true},"id":1}',
        '{"jsonrpc":"2.0","method":"checkpoint.save","params":{%s,"meta":{"a":"1","a":"2"}},"id":1}',
        '{"jsonrpc":"2.0","method":"daemon.status","method":"checkpoint.save","params":{%s},"id":1}',
        '{"jsonrpc":"2.0","method":"checkpoint.save","params":{},"params":{%s},"id":1}',
        '[{"jsonrpc":"2.0","method":"checkpoint.save","params":{%s,"tag":"a","tag":"b"},"id":1}]',
    ],
)
async def test_a_writing_call_in_which_a_name_stands_twice_is_not_done(wire, text) -> None:
    answer = await wire.raw((text % json.dumps(SAVE)[1:-1]).encode())
    error = (answer[0] if isinstance(answer, list) else answer)["error"]
    assert error["data"]["kind"] == "invalid_params"
    assert "twice" in error["message"]
    assert wire.manager.asked == []


async def test_a_name_may_stand_once_in_each_of_several_objects(wire) -> None:
    meta = {"checkpoint_dir": "a", "token": "b", "path": "c", "id": "d"}
    assert "result" in await wire.call("checkpoint.save", SAVE | {"meta": meta})


async def test_the_reason_of_a_refusal_is_no_longer_than_a_few_lines(wire) -> None:
    long = "x" * 100_000
    assert len(json.dumps(await wire.call("daemon.status", {long: 1}))) < 1000
    assert len(json.dumps(await wire.call(long))) < 1000
    assert len(json.dumps(await wire.raw(json.dumps({"jsonrpc": "2.0", long: 1}).encode()))) < 1000


async def test_a_refused_frame_takes_no_more_memory_than_it_is_long(wire) -> None:
    frame = b'{"jsonrpc":1,"id":5,"params":[' + b"[]," * 500_000 + b"[]]}"
    tracemalloc.start()
    try:
        answer = await wire.raw(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (kind_of(answer), answer["id"]) == ("invalid_request", 5)
    assert peak < 4 * len(frame)


async def test_many_paths_are_checked_without_keeping_others_waiting(wire) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        params = SAMPLES["checkpoint.list"].least_params
        document = msgspec.to_builtins(params) | {"paths": ["a"] * 50_000}
        assert "result" in await wire.call("checkpoint.list", document)
        tasks.cancel_scope.cancel()
    assert turns > 20


async def test_a_batch_whose_answers_are_too_long_together_keeps_those_that_fit(wire) -> None:
    dispatcher = Dispatcher(daemon_on(wire.manager), batch_bytes=2000)
    member = {"jsonrpc": "2.0", "method": "worktree.list", "params": {"checkpoint_dir": "/h/.c"}}
    frame = json.dumps([member | {"id": number} for number in range(20)]).encode()
    answers = json.loads(await dispatcher.handle(frame, wire.peer))
    assert [answer["id"] for answer in answers] == list(range(20))
    done = ["result" in answer for answer in answers]
    assert done == sorted(done, reverse=True)
    assert 1 <= sum(done) < 20
    assert {kind_of(answer) for answer in answers[sum(done) :]} == {"frame_too_large"}
    assert sum(len(json.dumps(answer)) for answer in answers[: sum(done)]) < 2000


async def test_names_that_are_written_down_with_every_operation_are_short(wire) -> None:
    hello = {"protocol": PROTOCOL_VERSION, "build": "1", "client": "c" * 100_000, "session": "s" * 200}
    assert "result" in await wire.call("daemon.hello", hello)
    assert (len(wire.peer.client), len(wire.peer.session)) == (200, 200)
    assert kind_of(await wire.call("daemon.hello", hello | {"session": "s" * 201})) == "bad_option"
