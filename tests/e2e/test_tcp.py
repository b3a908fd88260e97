"""The whole thing over loopback TCP: daemons killed, a port taken by somebody else, a token open to others."""

import json
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from support import poll
from support.live import Place

pytestmark = pytest.mark.e2e

ADDRESS = "tcp:127.0.0.1:0"


@pytest.fixture
def over_tcp(place: Place) -> Place:
    place.environ["FABRICATIO_EXT__CHECKPOINT__SOCKET"] = ADDRESS
    return place


def address_file(place: Place) -> Path:
    return Path(place.socket).parent / "ckptd.tcp"


def test_everything_goes_over_tcp(over_tcp):
    (over_tcp.ws / "a").write_text("one")
    first = over_tcp.save("first")
    (over_tcp.ws / "a").write_text("two")
    over_tcp.done("reset", first, "--yes")
    assert (over_tcp.ws / "a").read_text() == "one"
    assert over_tcp.json("daemon", "status")["socket"] == f"{ADDRESS}@{address_file(over_tcp)}"
    assert not os.path.exists(over_tcp.socket), "there is no Unix socket beside it"
    assert "no daemon" not in over_tcp.ckpt("doctor").out
    over_tcp.done("daemon", "stop")
    assert not address_file(over_tcp).exists()


def test_after_a_kill_the_next_command_starts_another_one(over_tcp):
    over_tcp.save()
    before = over_tcp.pid()
    over_tcp.kill(signal.SIGKILL)
    assert address_file(over_tcp).exists(), "a leftover, as a killed daemon leaves it"
    over_tcp.save()
    assert over_tcp.pid() != before


def test_a_port_that_is_another_program_s_by_now_leads_nobody_astray(over_tcp):
    over_tcp.save()
    over_tcp.kill(signal.SIGKILL)
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as other:
        address_file(over_tcp).write_text(f"tcp:127.0.0.1:{other.getsockname()[1]}\n")
        listening = threading.Thread(target=answer_as_a_web_server, args=(other, heard), daemon=True)
        listening.start()
        (over_tcp.ws / "secret").write_text("s")
        over_tcp.save("not for others")
        other.shutdown(socket.SHUT_RDWR)
        listening.join(20)
    assert heard
    assert all(said.startswith(b"CKPT-AUTH 1 ") and said[-1:] == b"\n" for said in heard), "nothing but greetings"


def test_a_listener_without_the_token_in_the_place_of_a_living_daemon_is_refused(over_tcp):
    over_tcp.save()
    heard: list[bytes] = []
    published = address_file(over_tcp).read_text()
    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=answer_as_a_web_server, args=(other, heard), daemon=True).start()
        # In place: another file would be the daemon's reason to publish its address again.
        address_file(over_tcp).write_text(f"tcp:127.0.0.1:{other.getsockname()[1]}\n")
        outcome = over_tcp.ckpt("--json", "save")
        other.shutdown(socket.SHUT_RDWR)
    address_file(over_tcp).write_text(published)
    assert outcome.code == 60
    assert json.loads(outcome.out)["error"]["kind"] == "forbidden_peer"
    over_tcp.save()


def test_a_token_that_others_may_read_is_refused_by_the_client(over_tcp):
    over_tcp.save()
    token = address_file(over_tcp).with_suffix(".tcp.token")
    token.chmod(0o644)
    outcome = over_tcp.ckpt("--json", "ls")
    assert outcome.code == 60
    error = json.loads(outcome.out)["error"]
    assert error["kind"] == "forbidden_peer"
    assert "0600" in error["message"]
    token.chmod(0o600)
    over_tcp.done("ls")


def test_the_doctor_asks_over_tcp_and_finds_who_is_no_daemon(over_tcp):
    over_tcp.save()
    well = over_tcp.json("doctor")
    assert well["findings"] == []
    over_tcp.kill(signal.SIGKILL)
    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=answer_as_a_web_server, args=(other, []), daemon=True).start()
        address_file(over_tcp).write_text(f"tcp:127.0.0.1:{other.getsockname()[1]}\n")
        found = over_tcp.json("doctor", code=3)["findings"]
        other.shutdown(socket.SHUT_RDWR)
    (one,) = [one for one in found if one["check"] == "socket"]
    assert (one["path"], "does not speak" in one["problem"]) == (str(address_file(over_tcp)), True)


def test_a_stop_waits_for_the_end_of_what_runs(over_tcp):
    over_tcp.done("daemon", "start")
    over_tcp.heavy(24)
    saving = over_tcp.start("save", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    poll.until(over_tcp.is_busy)
    over_tcp.done("daemon", "stop")
    assert not over_tcp.daemons(), "the process has ended when the command has"
    assert saving.wait(60) == 0


def test_systemd_gets_no_unit_for_an_address_that_it_cannot_pass(over_tcp):
    outcome = over_tcp.ckpt("daemon", "install")
    assert outcome.code == 60
    assert "Unix socket" in outcome.stderr
    assert not (over_tcp.home / ".config" / "systemd").exists()


@pytest.mark.parametrize("address", ["tcp:0.0.0.0:0", "tcp:localhost:0", "tcp:127.0.0.1:x"])
def test_an_address_that_others_could_reach_is_refused(place, address):
    outcome = place.ckpt("--json", "save", FABRICATIO_EXT__CHECKPOINT__SOCKET=address)
    assert outcome.code == 10
    assert json.loads(outcome.out)["error"]["kind"] == "bad_option"
    assert not place.daemons()


def test_a_port_that_another_program_has_is_named(place):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"tcp:127.0.0.1:{other.getsockname()[1]}"
        outcome = place.ckpt("save", FABRICATIO_EXT__CHECKPOINT__SOCKET=address)
    assert outcome.code == 60
    assert f"in use: '{address}'" in outcome.stderr


def test_the_owner_of_a_directory_is_found_over_tcp(over_tcp):
    over_tcp.save("by tcp")
    # Another client, with the usual socket: its daemon sends it on to the one that has the stores.
    assert over_tcp.done("ls", FABRICATIO_EXT__CHECKPOINT__SOCKET="").out.count("by tcp") == 1


def answer_as_a_web_server(listener: socket.socket, heard: list[bytes]) -> None:
    while True:
        try:
            connected, _ = listener.accept()
        except OSError:
            return
        with connected:
            heard.append(connected.recv(65536))
            connected.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
