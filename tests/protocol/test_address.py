"""Where sockets and logs lie, and which directories are refused for them."""

import os
import socket
import stat

import pytest

from ckpt_protocol.address import (
    APP,
    MAX_SOCKET_PATH_BYTES,
    InsecureDirectoryError,
    ensure_private,
    home_dir,
    run_dir,
    socket_path,
    state_dir,
)

pytestmark = pytest.mark.core

FALLBACK = f"/h/.local/state/{APP}/run/{os.uname().nodename[:32]}"


@pytest.fixture
def runtime(short_dir):
    (short_dir / "r").mkdir(mode=0o700)
    return short_dir / "r"


def test_state_lies_in_the_state_home():
    assert state_dir({"XDG_STATE_HOME": "/s", "HOME": "/h"}) == f"/s/{APP}"


@pytest.mark.parametrize("state_home", [{}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative/state"}])
def test_without_a_usable_state_home_it_lies_in_the_home(state_home):
    assert state_dir({"HOME": "/h", **state_home}) == f"/h/.local/state/{APP}"


def test_without_a_home_the_user_database_tells_and_not_the_environment_of_this_process():
    pwd = pytest.importorskip("pwd")
    assert os.environ["HOME"] != pwd.getpwuid(os.getuid()).pw_dir
    assert state_dir({}) == os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".local", "state", APP)


def test_a_home_is_an_absolute_path():
    known = home_dir({})
    assert os.path.isabs(known)
    assert home_dir({"HOME": ""}) == home_dir({"HOME": "relative"}) == known
    assert home_dir({"HOME": "/"}) == "/"


def test_the_socket_lies_in_the_runtime_directory(runtime):
    environ = {"XDG_RUNTIME_DIR": str(runtime), "HOME": "/h"}
    assert run_dir(environ) == f"{runtime}/{APP}"
    assert socket_path(environ) == f"{runtime}/{APP}/ckptd.sock"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o701, 0o777, 0o1777])
def test_a_runtime_directory_that_others_can_enter_is_passed_over(runtime, mode):
    runtime.chmod(mode)
    assert run_dir({"XDG_RUNTIME_DIR": str(runtime), "HOME": "/h"}) == FALLBACK


def test_a_runtime_directory_that_is_a_link_is_passed_over(runtime):
    link = runtime.parent / "link"
    link.symlink_to(runtime)
    assert run_dir({"XDG_RUNTIME_DIR": str(link), "HOME": "/h"}) == FALLBACK


@pytest.mark.parametrize("value", ["", "relative", "/does/not/exist", "/dev/null"])
def test_a_runtime_directory_that_is_none_is_passed_over(value):
    assert run_dir({"XDG_RUNTIME_DIR": value, "HOME": "/h"}) == FALLBACK


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")
def test_a_runtime_directory_of_another_user_is_passed_over(runtime):
    os.chown(runtime, 12345, 12345)
    assert run_dir({"XDG_RUNTIME_DIR": str(runtime), "HOME": "/h"}) == FALLBACK


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")
def test_root_makes_nothing_in_the_directory_of_another_user(short_dir):
    (short_dir / "home").mkdir()
    os.chown(short_dir / "home", 12345, 12345)
    with pytest.raises(InsecureDirectoryError, match="belongs to user 12345, this is root"):
        ensure_private(str(short_dir / "home" / "state" / "run"))
    assert os.listdir(short_dir / "home") == []


def test_a_configured_socket_is_used_as_it_is():
    assert socket_path({"HOME": "/h"}, "/somewhere/else.sock") == "/somewhere/else.sock"


def test_a_path_of_exactly_the_limit_is_used_and_a_longer_one_is_replaced():
    longest = "/" + "x" * (MAX_SOCKET_PATH_BYTES - 1)
    assert socket_path({}, longest) == longest
    replaced = socket_path({}, longest + "x")
    assert replaced.startswith(f"/tmp/ckpt-{os.getuid()}-")
    assert len(os.fsencode(replaced)) <= MAX_SOCKET_PATH_BYTES


def test_the_limit_counts_bytes_and_not_characters():
    path = "/" + "ü" * (MAX_SOCKET_PATH_BYTES // 2 + 1)
    assert len(path) < MAX_SOCKET_PATH_BYTES
    assert socket_path({}, path) != path


def test_two_long_paths_have_two_replacements_and_one_path_always_the_same():
    first, second = ("/" + letter * 200 for letter in "ab")
    assert socket_path({}, first) == socket_path({}, first) != socket_path({}, second)


def test_a_socket_can_be_bound_at_a_path_of_the_limit(short_dir):
    directory = str(short_dir)
    path = os.path.join(directory, "s" * (MAX_SOCKET_PATH_BYTES - len(directory) - 1))
    assert socket_path({}, path) == path
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277, 0o777])
def test_a_directory_is_made_for_us_alone_whatever_the_umask(short_dir, umask):
    target = short_dir / "home" / "state" / "run"
    before = os.umask(umask)
    try:
        ensure_private(str(target))
    finally:
        os.umask(before)
    for made in (target, *target.parents[:2]):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    ensure_private(str(target))


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o750, 0o755, 0o777])
def test_an_open_directory_is_refused_and_left_as_it_is(short_dir, mode):
    target = short_dir / "run"
    target.mkdir()
    target.chmod(mode)
    with pytest.raises(InsecureDirectoryError, match="chmod 700"):
        ensure_private(str(target))
    assert stat.S_IMODE(target.stat().st_mode) == mode


def test_a_link_is_refused_even_to_a_private_directory(short_dir):
    (short_dir / "real").mkdir(mode=0o700)
    (short_dir / "run").symlink_to("real")
    with pytest.raises(InsecureDirectoryError):
        ensure_private(str(short_dir / "run"))


@pytest.mark.parametrize("make", ["dangling", "file", "fifo"])
def test_other_things_in_the_place_are_refused(short_dir, make):
    target = short_dir / "run"
    if make == "dangling":
        target.symlink_to("nowhere")
    elif make == "file":
        target.touch(0o700)
    else:
        os.mkfifo(target, 0o700)
    with pytest.raises(InsecureDirectoryError):
        ensure_private(str(target))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")
def test_a_directory_of_another_user_is_refused(short_dir):
    (short_dir / "run").mkdir(mode=0o700)
    os.chown(short_dir / "run", 12345, 12345)
    with pytest.raises(InsecureDirectoryError):
        ensure_private(str(short_dir / "run"))


def test_a_directory_that_cannot_be_made_is_an_os_error(short_dir):
    (short_dir / "file").touch()
    with pytest.raises(OSError):
        ensure_private(str(short_dir / "file" / "run"))
