"""What runs can be watched and called off: $/cancel, $/progress, deadlines, events, batches, and who waits for whom."""

import asyncio
import json
import socket

import anyio
import pytest

from ckpt_protocol.methods import METHODS
from ckpt_protocol.version import PROTOCOL_VERSION
from support.obedient import params, serving_obedient
from support.served import Client, kind_of, until

pytestmark = pytest.mark.anyio

HELLO = {"protocol": PROTOCOL_VERSION, "build": "1", "client": "test"}


async def save(client, name="a", message="quick", request_id=1, **more):
    await client.send("checkpoint.save", params(name, message, **more), request_id)


async def cancel(client, request_id):
    note = {"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": request_id}}
    await client.raw(json.dumps(note).encode() + b"\n")


async def answers(client, count):
    """So many answers by id; each comes once."""
    found = {}
    for _ in range(count):
        answer = await client.line()
        assert answer["id"] not in found
        found[answer["id"]] = answer
    return found


async def status(client):
    """Ask what must always be answered; nothing else may be said before."""
    await client.send("daemon.status", {}, "status")
    answer = await client.line()
    assert answer["id"] == "status"
    return answer["result"]


# -- cancel


async def test_a_running_save_is_called_off_and_answered_once(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await save(client, message="slow", request_id="x")
        await until(lambda: served.store().begun == ["slow"])
        await cancel(client, "x")
        answer = await client.line()
        assert (answer["id"], kind_of(answer)) == ("x", "cancelled")
        assert answer["error"]["data"]["retryable"]
        await cancel(client, "x")
        await status(client)
        assert served.store().saves == []


async def test_a_queued_one_leaves_the_mailbox_and_never_begins(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await save(client, message="deaf", request_id=1)
        await until(lambda: served.store().begun == ["deaf"])
        await save(client, message="second", request_id=2)
        await save(client, message="third", request_id=3)
        await until(lambda: served.manager.stores()[0].queued == 2)
        await cancel(client, 2)
        answer = await client.line()
        assert (answer["id"], kind_of(answer)) == (2, "cancelled")
        assert (await status(client))["stores"][0]["queued"] == 1
        served.store().go.set()
        found = await answers(client, 2)
        assert [found[number]["result"]["seq"] for number in (1, 3)] == [1, 2]
    assert served.store().begun == ["deaf", "third"]


async def test_what_cannot_be_called_off_any_more_says_what_it_did(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await save(client, message="deaf")
        await until(lambda: served.store().begun == ["deaf"])
        await cancel(client, 1)
        await status(client)
        served.store().go.set()
        assert (await client.line())["result"]["seq"] == 1


@pytest.mark.parametrize("unknown", [2, "1", -1, "", 10**18])
async def test_an_unknown_id_is_nothing(short_dir, unknown):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await save(client, message="slow")
        await until(lambda: served.store().begun == ["slow"])
        await cancel(client, unknown)
        await status(client)
        served.store().go.set()
        assert (await client.line())["result"]["seq"] == 1


async def test_ids_are_of_one_connection(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as one, Client.of(served.path) as other:
        await save(one, message="slow")
        await until(lambda: served.store().begun == ["slow"])
        await cancel(other, 1)
        await status(other)
        served.store().go.set()
        assert (await one.line())["result"]["seq"] == 1


@pytest.mark.parametrize(
    "bad", [None, {}, {"id": None}, {"id": 1.5}, {"id": True}, {"id": 1, "x": 1}, [1], {"id": [1]}]
)
async def test_a_bad_cancel_is_passed_over_or_refused_where_it_has_an_id(short_dir, bad):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        note = {"jsonrpc": "2.0", "method": "$/cancel", "params": bad}
        await client.raw(json.dumps(note).encode() + b"\n")
        await status(client)
        await client.raw(json.dumps({**note, "id": 9}).encode() + b"\n")
        answer = await client.line()
        assert (answer["id"], kind_of(answer)) == (9, "invalid_params")


async def test_a_cancel_with_an_id_is_answered(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        assert (await client.call("$/cancel", {"id": 5}))["result"] == {}


async def test_a_cancel_is_heard_where_too_many_requests_are_under_way(short_dir):
    from ckptd.connection import MAX_IN_FLIGHT

    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        names = [f"n{number}" for number in range(MAX_IN_FLIGHT)]
        for name in names:
            await save(client, name, "slow", request_id=name)
        await until(lambda: all(served.store(name).begun for name in names))
        await save(client, "one-more", request_id="late")
        assert kind_of(await client.line()) == "too_many_requests"
        await cancel(client, "n7")
        assert (await client.line())["id"] == "n7"
        served.release()
        assert len(await answers(client, MAX_IN_FLIGHT - 1)) == MAX_IN_FLIGHT - 1


# -- clients that go away


async def test_a_read_whose_client_went_away_is_called_off(short_dir):
    async with serving_obedient(short_dir) as served:
        served.store().reading.clear()
        async with Client.of(served.path) as client:
            await save(client)
            await client.line()
            for number in range(3):
                await client.send("checkpoint.head", params(), number)
            await until(lambda: served.store().reads == 1)
        await until(lambda: served.server.connections == 0)
        served.store().reading.set()
        async with Client.of(served.path) as client:
            assert (await client.call("checkpoint.head", params()))["result"]["id"] == f"{1:040x}"
        assert served.store().reads == 2


async def test_a_write_whose_client_went_away_is_done(short_dir):
    async with serving_obedient(short_dir) as served:
        async with Client.of(served.path) as client:
            await save(client, message="slow")
            await save(client, message="second", request_id=2)
            await until(lambda: served.manager.stores() and served.manager.stores()[0].queued == 1)
        served.store().go.set()
        await until(lambda: len(served.store().saves) == 2)
    assert served.store().begun == ["slow", "second"]


async def test_a_client_that_only_ended_its_side_gets_its_answers(short_dir):
    """As ``nc`` and ``socat`` do at the end of their input."""
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await save(client)
        await client.line()
        served.store().reading.clear()
        await client.send("checkpoint.head", params(), "read")
        await until(lambda: served.store().reads == 1)
        client.writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        await anyio.sleep(0.3)
        served.store().reading.set()
        assert (await client.line())["result"]["id"] == f"{1:040x}"
        assert await client.ended()


# -- progress


async def hello(client, *capabilities):
    await client.send("daemon.hello", {**HELLO, "capabilities": list(capabilities)}, "hello")
    assert (await client.line())["result"]["protocol"] == PROTOCOL_VERSION


async def test_progress_is_told_while_it_runs_and_while_it_waits_and_never_after_the_answer(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await hello(client, "progress", "something else")
        await save(client, message="deaf", request_id="first")
        await until(lambda: served.store().begun == ["deaf"])
        await save(client, message="second", request_id=2)
        seen: dict[object, list] = {"first": [], 2: []}
        while min(map(len, seen.values())) < 3:
            note = await client.line()
            assert (note["method"], set(note)) == ("$/progress", {"jsonrpc", "method", "params"})
            seen[note["params"].pop("id")].append(note["params"])
        assert seen["first"][0] == {"phase": "hash", "done": 1, "total": 0, "bytes": 10}
        assert seen[2][0] == {"phase": "waiting", "done": 0, "total": 0, "bytes": 0}
        # Nothing new to say is said again: it proves life.
        assert len({json.dumps(told) for told in seen["first"]}) == 1
        served.store().go.set()
        answered = set()
        while len(answered) < 2:
            line = await client.line()
            if "method" in line:
                assert line["params"]["id"] not in answered
            else:
                answered.add(line["id"])
        await anyio.sleep(1.0)
        await status(client)


@pytest.mark.parametrize("capabilities", [None, [], ["events"]])
async def test_nobody_is_told_who_has_not_asked_for_it(short_dir, capabilities):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        if capabilities is not None:
            await hello(client, *capabilities)
        await save(client, message="slow")
        await anyio.sleep(1.0)
        served.store().go.set()
        assert (await client.line())["result"]["seq"] == 1


async def test_a_client_that_does_not_read_is_told_no_more_than_it_takes(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await hello(client, "progress")
        (connection,) = served.server._connections
        async with connection._sending:
            await save(client, message="slow")
            await until(lambda: served.store().begun == ["slow"])
            await anyio.sleep(1.0)
            assert connection._sending.statistics().tasks_waiting == 0
            served.store().go.set()
            await until(lambda: connection._sending.statistics().tasks_waiting == 1)
        assert (await client.line())["result"]["seq"] == 1


async def test_what_is_no_longer_true_when_its_turn_comes_is_not_said(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await status(client)
        (connection,) = served.server._connections
        connection.post(b'{"old":1}', lambda: False)
        connection.post(b'{"new":1}', lambda: True)
        assert await client.line() == {"new": 1}
        await status(client)


# -- deadlines


@pytest.mark.parametrize("seconds", [0.05, 1e-9])
async def test_a_deadline_ends_what_waits_and_what_runs(short_dir, seconds):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await save(client, "b", message="deaf", request_id="other")
        await until(lambda: served.store("b").begun == ["deaf"])
        await save(client, "a", message="slow", request_id=1, deadline_s=seconds)
        await save(client, "b", message="queued", request_id=2, deadline_s=seconds)
        found = await answers(client, 2)
        assert {kind_of(answer) for answer in found.values()} == {"deadline_exceeded"}
        assert all(answer["error"]["data"]["retryable"] for answer in found.values())
        assert f"{seconds:g} s" in found[1]["error"]["message"]
        assert "nothing was done" in found[2]["error"]["message"]
        served.store("b").go.set()
        assert (await client.line())["id"] == "other"
    assert (served.store("a").saves, served.store("b").begun) == ([], ["deaf"])


async def test_a_deadline_that_is_not_reached_means_nothing(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await save(client, deadline_s=1000)
        assert (await client.line())["result"]["seq"] == 1
        await save(client, deadline_s=None, request_id=2)
        assert (await client.line())["result"]["seq"] == 2


async def test_who_cancels_before_the_deadline_is_told_so(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await save(client, message="slow", deadline_s=1000)
        await until(lambda: served.store().begun == ["slow"])
        await cancel(client, 1)
        assert kind_of(await client.line()) == "cancelled"


@pytest.mark.parametrize("bad", [0, -1, "1", True, [1]])
async def test_a_deadline_is_a_positive_number(short_dir, bad):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await save(client, deadline_s=bad)
        assert kind_of(await client.line()) == "invalid_params"


async def test_every_method_takes_a_deadline():
    assert all("deadline_s" in row.params.__struct_fields__ for row in METHODS.values())


# -- events


async def test_events_are_told_to_those_who_listen(short_dir):
    async with (
        serving_obedient(short_dir) as served,
        Client.of(served.path) as listener,
        Client.of(served.path) as client,
    ):
        subscribed = (await listener.call("events.subscribe", {"worktree": {"path": "/w/a"}}))["result"]
        for name in ("a", "b", "a"):
            await save(client, name)
            await client.line()
        first, second = await listener.line(), await listener.line()
        assert (first["method"], set(first)) == ("event", {"jsonrpc", "method", "params"})
        told = first["params"]
        assert (told["kind"], told["worktree"], told["checkpoint_dir"]) == ("checkpoint.created", "/w/a", "/c")
        assert told["subscription"] == subscribed["subscription"]
        assert [one["params"]["seq"] for one in (first, second)] == [subscribed["seq"] + 1, subscribed["seq"] + 3]
        assert (await listener.call("events.unsubscribe", {"subscription": 99}))["result"] == {"known": False}
        number = {"subscription": subscribed["subscription"]}
        assert (await listener.call("events.unsubscribe", number))["result"] == {"known": True}
        await save(client)
        await client.line()
        await status(listener)
        await status(client)


async def test_a_listener_that_does_not_read_misses_some_and_is_told_and_nobody_waits_for_it(short_dir):
    async with (
        serving_obedient(short_dir) as served,
        Client.of(served.path) as listener,
        Client.of(served.path) as client,
    ):
        await listener.call("events.subscribe", {"limit": 3})
        (connection,) = [one for one in served.server._connections if one._peer._subscriptions]
        async with connection._sending:
            for _ in range(10):
                await save(client)
                await client.line()
        heard = [(await listener.line())["params"] for _ in range(4)]
        # One was on its way when the others came.
        assert [one["seq"] for one in heard] == [1, 8, 9, 10]
        assert [(one["lost"], one["missed"]) for one in heard] == [(False, 0), (True, 6), (False, 0), (False, 0)]


async def test_a_connection_ends_with_its_subscriptions(short_dir):
    async with serving_obedient(short_dir) as served:
        async with Client.of(served.path) as listener:
            await listener.call("events.subscribe")
        await until(lambda: served.server.connections == 0)
        assert served.manager.bus._subscriptions == {}


async def test_subscriptions_of_one_connection_have_a_limit(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as listener:
        found = [await listener.call("events.subscribe") for _ in range(33)]
        assert ["error" in one for one in found] == [False] * 32 + [True]
        assert kind_of(found[-1]) == "too_many_requests"


# -- reads that go on in steps


async def test_other_reads_come_in_between_the_steps_of_a_list(short_dir):
    async with (
        serving_obedient(short_dir) as served,
        Client.of(served.path) as lister,
        Client.of(served.path) as client,
    ):
        await save(client)
        await client.line()
        await hello(lister, "progress")
        await lister.send("checkpoint.list", params(), "list")
        await until(lambda: served.store().lists)
        (run,) = served.store().lists
        told = (await lister.line())["params"]
        assert (told["id"], told["phase"]) == ("list", "list")
        for _ in range(5):
            wanted = run.steps + 1
            assert "result" in await client.call("checkpoint.head", params())
            await save(client)
            await client.line()
            await until(lambda wanted=wanted: run.steps >= wanted)
        run.enough.set()
        while "result" not in (answer := await lister.line()):
            assert answer["params"]["phase"] == "list"
        assert answer["id"] == "list"
        # What has come to its end needs no other one.
        assert run.closes == 0


@pytest.mark.parametrize("how", ["cancel", "deadline", "hanging up"])
async def test_a_list_ends_in_the_middle_and_is_closed(short_dir, how):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await save(client)
        await client.line()
        async with Client.of(served.path) as lister:
            await lister.send("checkpoint.list", params(**({"deadline_s": 0.3} if how == "deadline" else {})), 7)
            await until(lambda: served.store().lists and served.store().lists[0].steps > 2)
            if how == "cancel":
                await cancel(lister, 7)
            if how != "hanging up":
                answer = await lister.line()
                assert (answer["id"], kind_of(answer)) == (7, {"cancel": "cancelled"}.get(how, "deadline_exceeded"))
        (run,) = served.store().lists
        await until(lambda: run.closes > 0)
        steps = run.steps
        assert (await client.call("checkpoint.head", params()))["result"]
        assert run.steps == steps


# -- a checkpoint directory that does not answer


DEAD = {"checkpoint_dir": "/dead/mount"}


def asked_in(directory):
    """A request of every kind that names a checkpoint directory, by its method."""
    place = {"checkpoint_dir": directory, "worktree": {"path": "/w/a"}}
    token = "0" * 32
    return {
        "worktree.open": {**place, "token": token},
        "worktree.list": {"checkpoint_dir": directory},
        "worktree.status": place,
        "worktree.forget": {**place, "token": token},
        "worktree.adopt": {**place, "old": "/w/old", "token": token},
        "worktree.watch": {**place, "action": "on", "token": token},
        "checkpoint.save": {**place, "token": token},
        "checkpoint.head": place,
        "checkpoint.list": place,
        "store.prune": {"checkpoint_dir": directory, "token": token},
        "store.usage": {"checkpoint_dir": directory},
        "store.verify": place,
        "store.gc": {**place, "token": token},
        "events.subscribe": {"checkpoint_dir": directory},
    }


async def test_a_directory_on_a_dead_mount_holds_up_nobody_else(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as stuck, Client.of(served.path) as client:
        for method, asked in asked_in("/dead/mount").items():
            await stuck.send(method, asked, method)
        await until(served.names.dead[b"/dead/mount"].reached.is_set)
        await status(client)
        await save(client)
        assert (await client.line())["result"]["seq"] == 1
        assert served.manager.stores()[0].worktree == "/w/a"
        # All of them wait in the one thread of that name.
        assert {thread for name, thread in served.names.asked if name == b"/dead/mount"} == {"ckptd-claim /dead/mount"}
        for method in asked_in("/dead/mount"):
            await cancel(stuck, method)
        found = await answers(stuck, len(asked_in("/dead/mount")))
        assert {method: kind_of(answer) for method, answer in found.items()} == dict.fromkeys(found, "cancelled")


async def test_a_deadline_ends_the_wait_for_a_directory(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await save(client, deadline_s=0.05, **DEAD)
        assert kind_of(await client.line()) == "deadline_exceeded"
        served.names.revive()
        await save(client, **DEAD)
        assert (await client.line())["result"]["seq"] == 1


# -- batches


def member(request_id, name="a", message="quick", **more):
    document = {"jsonrpc": "2.0", "method": "checkpoint.save", "params": params(name, message, **more)}
    return document if request_id is None else {**document, "id": request_id}


async def batch(client, *members):
    await client.raw(json.dumps(members).encode() + b"\n")


async def test_members_of_a_batch_can_be_called_off_one_by_one(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await batch(client, member(1, message="slow"), member(2), {"bad": 1}, member(3, "b"), member(None, "c"))
        await until(lambda: served.store().begun == ["slow"])
        await cancel(client, 2)
        await cancel(client, 1)
        found = {answer["id"]: answer for answer in await client.line()}
        assert set(found) == {1, 2, None, 3}
        assert [kind_of(found[number]) for number in (1, 2, None)] == ["cancelled", "cancelled", "invalid_request"]
        assert found[3]["result"]["seq"] == 1
    assert (served.store("a").saves, len(served.store("c").saves)) == ([], 1)


async def test_a_member_can_call_off_another_one_and_an_earlier_request(short_dir):
    def note(number):
        return {"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": number}}

    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await save(client, "b", "slow", request_id="b")
        await until(lambda: served.store("b").begun == ["slow"])
        await batch(client, member(1), member(2), note(2), note("b"), {**note(1), "id": "late"}, member(3))
        lines = [await client.line(), await client.line()]
        (many,) = [line for line in lines if isinstance(line, list)]
        (one,) = [line for line in lines if isinstance(line, dict)]
        assert (one["id"], kind_of(one)) == ("b", "cancelled")
        found = {answer["id"]: answer for answer in many}
        assert set(found) == {1, 2, "late", 3}
        assert [kind_of(found[number]) for number in (1, 2)] == ["cancelled", "cancelled"]
        assert found["late"]["result"] == {}
        assert found[3]["result"]["seq"] == 1


async def test_progress_and_deadlines_count_inside_a_batch(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as client:
        await hello(client, "progress")
        await batch(client, member(1, message="deaf"), member(2, deadline_s=0.01))
        seen = set()
        while len(seen) < 2:
            note = (await client.line())["params"]
            seen.add((note["id"], note["phase"]))
        assert seen == {(1, "hash"), (2, "waiting")}
        served.store().go.set()
        lines = await client.line()
        while isinstance(lines, dict):
            lines = await client.line()
        assert [answer["id"] for answer in lines] == [1, 2]
        assert kind_of(lines[1]) == "deadline_exceeded"


# -- fairness


async def test_a_flood_of_one_client_does_not_go_before_another_ones_request(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as flood, Client.of(served.path) as client:
        await save(flood, message="deaf", request_id=0)
        await until(lambda: served.store().begun == ["deaf"])
        for number in range(1, 6):
            await save(flood, message=f"flood {number}", request_id=number)
        await until(lambda: served.manager.stores()[0].queued == 5)
        await save(client, message="mine")
        await until(lambda: served.manager.stores()[0].queued == 6)
        served.store().go.set()
        await client.line()
        await answers(flood, 6)
    assert served.store().begun == ["deaf", "mine", *(f"flood {number}" for number in range(1, 6))]


async def test_a_full_mailbox_is_told_at_once_and_other_worktrees_do_not_notice(short_dir):
    async with serving_obedient(short_dir) as served, Client.of(served.path) as flood, Client.of(served.path) as client:
        await save(flood, message="deaf", request_id=0)
        await until(lambda: served.store().begun == ["deaf"])
        for number in range(1, 12):
            await save(flood, message="deaf", request_id=number)
        refused = await answers(flood, 3)
        assert {kind_of(answer) for answer in refused.values()} == {"worktree_busy"}
        await save(client, "b")
        assert (await client.line())["result"]["seq"] == 1
        assert {store["worktree"]: store["queued"] for store in (await status(client))["stores"]} == {
            "/w/a": 8,
            "/w/b": 0,
        }
        served.store().go.set()
        assert len(await answers(flood, 9)) == 9


async def test_each_of_many_clients_of_many_kinds_is_answered_exactly_once(short_dir):
    """Cancels, deadlines and disconnects in any order: one answer a request, and whatever was made was told."""

    async def one(served, seed):
        async with Client.of(served.path) as client:
            for number in range(6):
                kind = (seed * 7 + number * 3) % 4
                await save(client, f"w{(seed + number) % 3}", ["quick", "slow", "slow", "quick"][kind], number,
                           **({"deadline_s": 0.05} if kind == 1 else {}))  # fmt: skip
            for number in range(6):
                await cancel(client, number)
            return await answers(client, 6)

    async with serving_obedient(short_dir) as served:
        found = await asyncio.gather(*(one(served, seed) for seed in range(6)))
    made = sum("result" in answer for each in found for answer in each.values())
    assert made == sum(len(store.saves) for store in served.catalog.kept.values())
    kinds = {kind_of(answer) for each in found for answer in each.values() if "error" in answer}
    assert kinds <= {"cancelled", "deadline_exceeded", "worktree_busy"}
