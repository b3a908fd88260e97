"""Addresses that are no path, and the files that say where they lead."""

import os

import pytest

from ckpt_protocol.address import file_of, socket_path
from ckpt_protocol.endpoint import (
    AddressError,
    Endpoint,
    InsecureFileError,
    parse,
    published,
    read_private,
    read_token,
)

pytestmark = pytest.mark.core

TOKEN = "00ff" * 16


def put(path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("text", "name", "file"),
    [
        ("tcp:127.0.0.1:0", "tcp:127.0.0.1:0", ""),
        ("tcp:127.9.9.9:65535@/r/ckptd.tcp", "tcp:127.9.9.9:65535", "/r/ckptd.tcp"),
        ("tcp:[::1]:4711", "tcp:[::1]:4711", ""),
        ("tcp:[0:0:0:0:0:0:0:1]:007", "tcp:[::1]:7", ""),
        ("tcp:::1:7", "tcp:[::1]:7", ""),
        ("pipe:ckptd-u", "pipe:ckptd-u", ""),
        ("tcp:127.0.0.1:1@/r/a@b", "tcp:127.0.0.1:1", "/r/a@b"),
    ],
)
def test_an_address_has_one_form(text, name, file):
    assert (parse(text).name, parse(text).file) == (name, file)


@pytest.mark.parametrize(
    "text",
    [
        "tcp:0.0.0.0:0",
        "tcp:192.168.1.1:80",
        "tcp:[::]:0",
        "tcp:[fe80::1]:1",
        "tcp:localhost:1",
        "tcp:127.0.0.1",
        "tcp:127.0.0.1:",
        "tcp:127.0.0.1:65536",
        "tcp:127.0.0.1:-1",
        "tcp:127.0.0.1:²",
        "tcp:127.1:80",
        "tcp::80",
        "tcp:",
        "pipe:",
        "pipe:a\\b",
        "pipe:../x",
        "udp:127.0.0.1:1",
        "tcp:127.0.0.1:1@relative",
    ],
)
def test_what_is_no_address_or_would_be_open_to_other_machines_is_refused(text):
    with pytest.raises(AddressError):
        parse(text)


def test_host_and_port():
    assert parse("tcp:127.0.0.1:80").host_and_port == ("127.0.0.1", 80)
    assert parse("tcp:[::1]:80").host_and_port == ("::1", 80)
    assert parse("tcp:[::1]:0@/f").at_port(5).text == "tcp:[::1]:5@/f"


def test_an_address_gets_its_file_in_the_runtime_directory(tmp_path):
    tmp_path.chmod(0o700)
    environ = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": "/nowhere"}
    text = socket_path(environ, "tcp:127.0.0.1:0")
    assert text == f"tcp:127.0.0.1:0@{tmp_path}/fabricatio-checkpoint/ckptd.tcp"
    assert socket_path(environ, text) == text
    assert file_of(text) == f"{tmp_path}/fabricatio-checkpoint/ckptd.tcp"
    assert file_of("/r/ckptd.sock") == "/r/ckptd.sock"


def test_what_is_published(tmp_path):
    file = tmp_path / "ckptd.tcp"
    wanted = Endpoint("tcp", "127.0.0.1:0", str(file))
    assert published(wanted) is None
    put(file, "tcp:127.0.0.1:4711\n")
    assert published(wanted).text == f"tcp:127.0.0.1:4711@{file}"
    # A file that somebody else could have written leads nowhere, and neither does one that leads away.
    for text in ("tcp:10.0.0.1:80\n", "pipe:other\n", "tcp:127.0.0.1:1@/other\n", "\n", "\0"):
        put(file, text)
        with pytest.raises(AddressError):
            published(wanted)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o666])
def test_a_file_that_others_can_read_or_write_is_refused(tmp_path, mode):
    with pytest.raises(InsecureFileError, match="0600"):
        read_token(put(tmp_path / "token", TOKEN, mode))


def test_a_link_is_refused(tmp_path):
    put(tmp_path / "real", TOKEN)
    (tmp_path / "token").symlink_to("real")
    with pytest.raises(OSError):
        read_private(str(tmp_path / "token"))


@pytest.mark.parametrize("kind", ["fifo", "directory"])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path, kind):
    path = str(tmp_path / "token")
    os.mkfifo(path, 0o600) if kind == "fifo" else os.mkdir(path, 0o700)
    with pytest.raises(InsecureFileError):
        read_private(path)


@pytest.mark.parametrize("text", ["", "\n", "00" * 31, "00" * 33, "zz" * 32, "é"])
def test_what_is_no_token_is_refused(tmp_path, text):
    with pytest.raises(InsecureFileError, match="token"):
        read_token(put(tmp_path / "token", text))


def test_a_token_is_read(tmp_path):
    assert read_token(put(tmp_path / "token", TOKEN + "\n")) == bytes.fromhex(TOKEN)
