"""Clients in other languages, made from ``protocol/WIRE.md`` alone: a plain shell, and Node.js."""

import json
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from support.live import Place

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
GREETING = "Grüße\n"


def need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} here")


def ready(place: Place) -> None:
    """A daemon, and something to save."""
    (place.ws / "greeting").write_text(GREETING)
    place.done("daemon", "start")


def run(place: Place, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [*words, str(place.checkpoint_dir), str(place.ws)], env={**place.environ, **environ},
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("tool", ["nc", "socat"])
def test_a_plain_shell(place, tool):
    need(tool)
    if tool == "nc" and "-N" not in subprocess.run(["nc", "-h"], capture_output=True, text=True).stderr:
        pytest.skip("this nc is not OpenBSD's: it knows no -N")
    ready(place)
    done = run(place, "sh", str(HERE / "client.sh"), place.socket, CLIENT_TOOL=tool)
    assert done.stdout == GREETING
    sent = [json.loads(line[3:]) for line in done.stderr.splitlines() if line.startswith("-> ")]
    heard = [json.loads(line[3:]) for line in done.stderr.splitlines() if line.startswith("<- ")]
    assert len(sent) == len(heard) == 6
    hello, _, save, listed, _, plan = (reply["result"] for reply in heard)
    assert hello["protocol"] == 1
    assert save["created"]
    assert [one["message"] for one in listed["checkpoints"]] == ["from the shell"]
    assert (plan["dry_run"], plan["written"], plan["target"]) == (True, [], save["id"])
    assert place.json("ls")["checkpoints"][0]["id"] == save["id"]


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def node_says(place: Place, address: str) -> dict[str, object]:
    done = run(place, "node", str(HERE / "client.mjs"), address)
    said: dict[str, object] = {}
    for line in done.stdout.splitlines():
        said |= json.loads(line)
    return said


@pytest.mark.parametrize("address", ["unix", "tcp:127.0.0.1:0", "tcp:[::1]:0"])
def test_node(place, address):
    need("node")
    if "::1" in address and not has_ipv6():
        pytest.skip("there is no IPv6 here")
    if address != "unix":
        place.environ["FABRICATIO_EXT__CHECKPOINT__SOCKET"] = address
    ready(place)
    said = node_says(place, place.json("daemon", "status")["socket"])
    assert said["hello"]["protocol"] == 1
    assert said["cat"] == GREETING
    assert [one["id"] for one in said["list"]["checkpoints"]] == [said["save"]["id"]]
    assert said["list"]["checkpoints"][0]["client"] == "client.mjs"
    assert (said["plan"]["dry_run"], said["plan"]["written"]) == (True, [])
    assert said["refused"]["kind"] == "bad_path"


def test_node_watches_a_save_and_calls_it_off(place):
    need("node")
    place.heavy()
    place.done("daemon", "start")
    done = run(place, "node", str(HERE / "cancel.mjs"), place.socket)
    assert json.loads(done.stdout) == {"outcome": "cancelled", "deadline": "deadline_exceeded", "told": True}
    assert place.json("ls")["checkpoints"] == []


def test_node_refuses_a_daemon_that_does_not_know_the_token(place):
    need("node")
    place.environ["FABRICATIO_EXT__CHECKPOINT__SOCKET"] = "tcp:127.0.0.1:0"
    ready(place)
    address = place.json("daemon", "status")["socket"]
    token = Path(address.partition("@")[2] + ".token")
    kept = token.read_text()
    token.write_text("00" * 32 + "\n")
    done = subprocess.run(
        ["node", str(HERE / "client.mjs"), address, str(place.checkpoint_dir), str(place.ws)],
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 1
    assert "does not know the token" in done.stderr
    token.chmod(0o644)
    done = subprocess.run(["node", str(HERE / "client.mjs"), address, "/", "/"], capture_output=True, text=True)
    assert "must be yours, mode 0600" in done.stderr
    token.chmod(0o600)
    token.write_text(kept)
