"""Many clients, many worktrees, one daemon."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fabricatio_checkpoint import StateError, blob_id
from support import holding_ckptd, saves
from support.cli_run import ROOT, command
from support.live import Place
from support.poll import until

pytestmark = pytest.mark.e2e

CLIENTS = 24


def begin_saving(place: Place, worktree: Path, name: str, times: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, saves.__file__, str(worktree), name, str(times)],
        env=place.environ, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def answers_of(children: "list[subprocess.Popen[bytes]]") -> list[dict]:
    told = [child.communicate(timeout=90) for child in children]
    assert [(child.returncode, err) for child, (_, err) in zip(children, told, strict=True)] == [(0, b"")] * len(told)
    return [json.loads(out) for out, _ in told]


def one_line(out: bytes) -> dict:
    assert out.count(b"\n") == 1
    return json.loads(out)


def test_clients_that_start_at_once_start_one_daemon(place: Place):
    children = [place.start("--json", "daemon", "start") for _ in range(CLIENTS)]
    told = [child.communicate(timeout=90) for child in children]
    assert [child.returncode for child in children] == [0] * CLIENTS, told
    pids = {one_line(out)["pid"] for out, _ in told}
    assert len(pids) == 1
    assert set(place.daemons()) == pids


def test_clients_that_save_or_look_at_once_start_one_daemon_and_are_all_answered(place: Place):
    (place.ws / "f").write_text("f\n")
    first = place.save("first")
    place.kill()
    (place.ws / "g").write_text("g\n")
    children = [place.start("--json", ["save", "status"][number % 2]) for number in range(CLIENTS)]
    told = [child.communicate(timeout=90) for child in children]
    assert [child.returncode for child in children] == [0] * CLIENTS, told
    answers = [one_line(out) for out, _ in told]
    saves, looks = answers[::2], answers[1::2]
    # One of them made the checkpoint; the others found nothing to add.
    assert len({answer["id"] for answer in saves}) == 1
    assert sorted(answer["created"] for answer in saves) == [False] * (len(saves) - 1) + [True]
    assert {answer["head"] for answer in looks} <= {first, saves[0]["id"]}
    assert len(place.daemons()) == 1


def test_eight_processes_save_eight_times_each_into_one_worktree(place: Place):
    answers = answers_of([begin_saving(place, place.ws, f"by {number}", 8) for number in range(8)])
    assert [len(answer["ids"]) for answer in answers] == [8] * 8
    listed = [record["id"] for record in place.json("ls")["checkpoints"]]
    assert {cid for answer in answers for cid in answer["ids"]} <= set(listed)
    assert len(listed) == len(set(listed))
    assert place.json("status")["changes"] == []
    # Every save holds at least what its own client had written.
    for number, answer in enumerate(answers):
        name = f"by {number} 3"
        assert place.json("cat", answer["ids"][3], name)["data"] == (place.ws / name).read_text()


def test_eight_processes_save_eight_times_each_into_worktrees_of_their_own(place: Place):
    roots = [place.home / f"tree {number}" for number in range(8)]
    for root in roots:
        root.mkdir()
    answers = answers_of([begin_saving(place, root, "f", 8) for root in roots])
    assert len({answer["pid"] for answer in answers}) == 1
    assert [len(set(answer["ids"])) for answer in answers] == [8] * 8
    for root, answer in zip(roots, answers, strict=True):
        assert [record["id"] for record in place.json("-w", str(root), "ls")["checkpoints"]] == answer["ids"][::-1]
    assert len(place.stores()) == 8


class Hold:
    """A daemon that holds the save of ``ws`` which ``words`` begin, until ``let_go()``; ``child`` is its client."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._path = place.base / "hold"
        words = [sys.executable, holding_ckptd.__file__, place.socket]
        paths = os.pathsep.join([str(ROOT / "tests"), place.environ["PYTHONPATH"]])
        place.spawn(words, {**place.environ, "PYTHONPATH": paths})
        until(lambda: os.path.exists(place.socket))
        self.message = f"hold {self._path}"

    def begin(self, *words: str) -> "subprocess.Popen[bytes]":
        child = self._place.start(*words, "save", self.message)
        until(lambda: os.path.exists(f"{self._path}.begun") or child.poll() is not None)
        assert child.poll() is None, "the save was not held"
        assert self._place.is_busy()
        return child

    def let_go(self) -> None:
        self._path.touch()


@pytest.fixture
def hold(place: Place) -> Hold:
    """A daemon that can be made to stay in the middle of a save."""
    return Hold(place)


def test_a_slow_save_holds_up_nobody_else(place: Place, hold: Hold):
    (place.ws / "f").write_text("f\n")
    other = place.home / "other"
    other.mkdir()
    (other / "f").write_text("f\n")
    place.save("-w", str(other))
    slow = hold.begin()
    (other / "g").write_text("g\n")
    place.save("-w", str(other))
    place.done("daemon", "status")
    assert slow.poll() is None
    hold.let_go()
    out, err = slow.communicate(timeout=90)
    assert (slow.returncode, len(out)) == (0, 41), err


def test_a_client_that_is_killed_does_not_cut_its_save_short(place: Place, hold: Hold):
    (place.ws / "f").write_text("f\n")
    child = hold.begin()
    child.kill()
    child.wait()
    hold.let_go()
    # A read does not wait behind the save, so the next client has to look again.
    until(lambda: [record["message"] for record in place.json("ls")["checkpoints"]] == [hold.message])
    again = place.json("save", "of the living")
    assert (again["created"], again["seq"], again["complete"]) == (False, 1, True)
    assert place.json("status")["changes"] == []


def test_reads_go_on_during_a_save(place: Place, hold: Hold):
    (place.ws / "f").write_text("f\n")
    first = place.save("first")
    (place.ws / "f").write_text("g\n")
    slow = hold.begin()
    seen = [record["id"] for record in place.json("ls")["checkpoints"]]
    content = place.json("cat", first, "f")["data"]
    assert (seen, content) == ([first], "f\n")
    assert slow.poll() is None
    hold.let_go()
    assert slow.wait(90) == 0
    assert len(place.json("ls")["checkpoints"]) == 2


def test_saves_and_restores_from_all_sides(place: Place):
    for number in range(30):
        (place.ws / f"f{number}").write_text(f"{number}\n")
    first = place.save()
    store = place.service().get_store(place.ws)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(4):
                (place.ws / f"f{number}").write_text(f"{number} {step}\n")
                if number % 2:
                    store.save(f"{number} {step}")
                else:
                    store.rollback(first, f"f{number}")
                    assert (place.ws / f"f{number}").read_text() == f"{number}\n"
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    store.reset(first)
    assert all((place.ws / f"f{number}").read_text() == f"{number}\n" for number in range(30))


def test_restores_at_once_are_done_one_after_the_other(place: Place):
    """Never a mixture: the worktree is as one of them left it, and undoing both brings back what was there."""
    names = [f"d{number % 7}/f{number}" for number in range(200)]

    def everywhere(text: str) -> None:
        for name in names:
            (place.ws / name).parent.mkdir(exist_ok=True)
            (place.ws / name).write_text(f"{text} {name}\n")

    def contents() -> set[str]:
        return {(place.ws / name).read_text().partition(" ")[0] for name in names}

    targets = []
    for text in ("one", "two", "three"):
        everywhere(text)
        targets.append(place.save(text))
    everywhere("mine")
    store = place.service().get_store(place.ws)
    results: list[object] = []
    threads = [threading.Thread(target=lambda target=target: results.append(store.reset(target))) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert contents() in ({"one"}, {"two"}, {"three"})
    for _ in targets:
        store.undo()
        assert len(contents()) == 1
    assert contents() == {"mine"}


def test_two_agents_do_not_undo_each_others_work(place: Place):
    for name in ("a", "b", "c"):
        (place.ws / name).write_text("0\n")
    first = place.save()
    ada = place.service(session="ada").get_store(place.ws)
    bob = place.service(session="bob").get_store(place.ws)
    (place.ws / "a").write_text("ada\n")
    (place.ws / "b").write_text("bob\n")
    seen = ada.save()
    ada.rollback(first, "a", expect_head=seen, expect={"a": blob_id(b"ada\n"), "new": None})
    bob.rollback(first, "b")
    with pytest.raises(StateError) as caught:
        ada.reset(first, expect_head=seen)
    assert caught.value.kind == "precondition_failed"
    with pytest.raises(StateError) as caught:
        bob.rollback(first, "a", expect={"a": blob_id(b"ada\n")})
    assert (caught.value.kind, [str(path) for path in caught.value.paths]) == ("precondition_failed", ["a"])
    assert ada.undo(session="ada").written == ("a",)
    assert [(place.ws / name).read_text() for name in ("a", "b")] == ["ada\n", "0\n"]
    (place.ws / "b").write_text("somebody\n")
    assert place.json("undo", "--session", "bob", code=20)["error"]["paths"] == ["b"]
    assert place.json("undo", "--session", "bob", "--skip-conflicts", code=3)["written"] == []
    assert (place.ws / "b").read_text() == "somebody\n"


def tool(place: Place, event: str, session: str) -> None:
    """What an agent tells its hooks before and after it writes."""
    told = {"hook_event_name": event, "session_id": session, "cwd": str(place.ws), "tool_name": "Write"}
    data = json.dumps(told).encode()
    done = subprocess.run(
        command("hook", "--budget", "60"), input=data, env=place.environ, capture_output=True, check=True
    )
    assert (done.stdout, done.stderr) == (b"", b"")


def test_what_an_agent_did_is_taken_back_and_nothing_else(place: Place):
    for name in ("a", "b", "c"):
        (place.ws / name).write_text("0\n")
    place.save()
    for session, names in (("ada", "ab"), ("bob", "b")):
        tool(place, "PreToolUse", session)
        for name in names:
            (place.ws / name).write_text(f"{session}\n")
        tool(place, "PostToolUse", session)
    (place.ws / "c").write_text("by hand\n")
    told = place.json("undo", "--session", "ada", code=20)["error"]
    assert (told["kind"], told["paths"]) == ("conflicts", ["b"])
    assert "b: session bob changed it between #4 and #5" in told["message"]
    plan = place.json("undo", "--session", "ada", "--dry-run", "--skip-conflicts", code=3)
    done = place.json("undo", "--session", "ada", "--skip-conflicts", "--expect-digest", plan["digest"], code=3)
    assert (done["written"], [one["reason"] for one in done["conflicts"]]) == (["a"], ["other_session"])
    assert [(place.ws / name).read_text() for name in ("a", "b", "c")] == ["0\n", "bob\n", "by hand\n"]
    place.done("redo")
    assert (place.ws / "a").read_text() == "ada\n"
    assert place.json("undo", "--session", "bob")["written"] == ["b"]
    assert (place.ws / "b").read_text() == "ada\n"
    place.done("undo", "--session", "ada")
    assert [(place.ws / name).read_text() for name in ("a", "b", "c")] == ["0\n", "0\n", "by hand\n"]


# Ctrl-C


def is_asleep(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="sees in /proc when the command waits")
def test_ctrl_c_during_a_save(place: Place, hold: Hold):
    (place.ws / "f").write_text("f\n")
    child = hold.begin()
    until(lambda: is_asleep(child.pid))
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    told = b"ckpt: interrupted: no checkpoint was made; what was read is kept for the next save\n"
    assert (child.returncode, out, err) == (130, b"", told)
    again = place.json("save", "again")
    assert (again["complete"], again["seq"]) == (True, 1)
    assert place.json("status")["changes"] == []


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="sees in /proc when the command waits")
def test_ctrl_c_with_json_is_one_document(place: Place, hold: Hold):
    (place.ws / "f").write_text("f\n")
    child = hold.begin("--json")
    until(lambda: is_asleep(child.pid))
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    hold.let_go()
    assert (child.returncode, err) == (130, b"")
    assert one_line(out)["error"] == {
        "kind": "cancelled",
        "message": "interrupted: no checkpoint was made; what was read is kept for the next save",
        "hint": None,
        "paths": [],
    }
