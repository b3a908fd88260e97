"""The user units: written, enabled and removed; and a daemon that a service manager starts."""

import json
import os
import shlex
import shutil
import signal
import site
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ckpt_protocol.version import BUILD
from support.cli_run import ROOT
from support.live import Place
from support.other_build import copy_of, python_path
from support.poll import until

pytestmark = pytest.mark.e2e

# What a service manager does between fork and exec.
BECOME = (
    "import os, sys\n"
    "os.dup2(int(sys.argv[1]), 3)\n"
    "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1', LISTEN_FDNAMES='ckptd')\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


@pytest.fixture
def python(place: Place) -> str:
    """A Python in which the packages are installed, whatever the environment says."""
    home = place.base / "a venv of 100% $HOME"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True, stdin=subprocess.DEVNULL)
    (packages,) = (home / "lib").glob("python3.*/site-packages")
    rooms = [str(ROOT / room) for room in ("protocol", "daemon", "client")]
    (packages / "here.pth").write_text("\n".join([*rooms, *site.getsitepackages()]) + "\n")
    del place.environ["PYTHONPATH"]
    return str(home / "bin" / "python")


@pytest.fixture
def systemctl(place: Place) -> Path:
    """A systemctl that writes down what it is told; gives that file."""
    said = place.base / "systemctl said"
    (place.base / "bin").mkdir()
    script = place.base / "bin" / "systemctl"
    script.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(said))}\n')
    script.chmod(0o755)
    place.environ["PATH"] = f"{script.parent}:{place.environ['PATH']}"
    return said


def run(place: Place, python: str, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [python, "-P", "-m", "fabricatio_checkpoint.cli", *words]
    return subprocess.run(
        command, cwd=place.ws, env=place.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def units(place: Place) -> Path:
    return place.home / ".config" / "systemd" / "user"


def exec_start(place: Place) -> str:
    lines = (units(place) / "ckptd.service").read_text().splitlines()
    return next(line for line in lines if line.startswith("ExecStart=")).removeprefix("ExecStart=")


def test_install_and_uninstall(place: Place, python: str, systemctl: Path):
    done = run(place, python, "daemon", "install")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.splitlines()[-1] == "systemd listens, and starts the daemon when it is needed"
    assert sorted(os.listdir(units(place))) == ["ckptd.service", "ckptd.socket"]
    assert systemctl.read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable --now ckptd.socket",
        "--user enable ckptd.service",
    ]
    # As systemd wants it written: specifiers doubled, variables not.
    written = python.replace("%", "%%")
    assert exec_start(place) == f'"{written}" -P -m ckptd'
    assert "ListenStream=%t/fabricatio-checkpoint/ckptd.sock" in (units(place) / "ckptd.socket").read_text()
    # Again is the same again.
    assert run(place, python, "daemon", "install").returncode == 0
    systemctl.unlink()
    done = run(place, python, "--json", "daemon", "uninstall")
    told = json.loads(done.stdout)
    assert (done.returncode, told["removed"], told["left"], told["problem"]) == (0, True, [], None)
    assert os.listdir(units(place)) == []
    assert systemctl.read_text().splitlines() == [
        "--user disable --now ckptd.socket ckptd.service",
        "--user daemon-reload",
    ]
    assert run(place, python, "daemon", "uninstall").stdout == "no units are installed\n"


def test_install_ends_the_daemon_that_has_the_socket(place: Place, python: str, systemctl: Path):
    assert run(place, python, "save").returncode == 0
    assert len(place.daemons()) == 1
    assert run(place, python, "daemon", "install").returncode == 0
    assert place.daemons() == []


def test_where_systemd_cannot_be_told_the_commands_are_said(place: Place, python: str, systemctl: Path):
    script = place.base / "bin" / "systemctl"
    script.write_text("#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n")
    done = run(place, python, "daemon", "install")
    assert done.returncode == 3
    assert "Failed to connect to bus: No medium found" in done.stdout
    assert done.stdout.splitlines()[-3:] == [
        "  systemctl --user daemon-reload",
        "  systemctl --user enable --now ckptd.socket",
        "  systemctl --user enable ckptd.service",
    ]
    told = json.loads(run(place, python, "--json", "daemon", "install").stdout)
    assert told["left"] == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now ckptd.socket",
        "systemctl --user enable ckptd.service",
    ]
    assert len(told["units"]) == 2
    assert (units(place) / "ckptd.socket").exists()
    place.environ["PATH"] = str(place.base / "empty")
    assert run(place, python, "daemon", "install").returncode == 3


def test_a_package_that_is_only_on_the_path_of_this_shell_is_not_installed(place: Place, python: str, systemctl: Path):
    (packages,) = Path(python).parents[1].glob("lib/python3.*/site-packages")
    (packages / "here.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    place.environ["PYTHONPATH"] = python_path(ROOT)
    done = run(place, python, "daemon", "install")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (60, "", 1)
    assert "install the package first" in done.stderr
    assert not units(place).exists()


def test_a_configured_socket_is_the_one_that_systemd_listens_at(place: Place, python: str, systemctl: Path):
    path = place.home / ".config" / "fabricatio" / "fabricatio.toml"
    path.parent.mkdir(parents=True)
    path.write_text(f'[ext.checkpoint]\nsocket = "{place.base}/s/100%.sock"\n')
    assert run(place, python, "daemon", "install").returncode == 0
    assert f"ListenStream={place.base}/s/100%%.sock\n" in (units(place) / "ckptd.socket").read_text()


def test_systemd_finds_no_fault_in_the_units(place: Place, python: str, systemctl: Path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze")
    assert run(place, python, "daemon", "install").returncode == 0
    names = ["ckptd.service", "ckptd.socket"]
    done = subprocess.run(
        [analyze, "--user", "--man=no", "verify", *names],
        cwd=units(place), env=place.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "ckptd" in line]
    assert said == []


def listener_at(path: str) -> socket.socket:
    Path(path).parent.mkdir(mode=0o700, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen()
    return listener


def activate(place: Place, listener: socket.socket, environ: dict[str, str]) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-c", BECOME, str(listener.fileno()), sys.executable, "-P", "-m", "ckptd"]
    return place.spawn(words, environ, pass_fds=(listener.fileno(),))


def test_a_daemon_behind_a_passed_socket_comes_and_goes(place: Place):
    (place.ws / "f").write_text("one\n")
    with listener_at(place.socket) as listener:
        first = activate(place, listener, place.environ)
        saved = place.save("one")
        assert place.pid() == first.pid
        assert place.done("daemon", "stop").out == f"the daemon has ended, pid {first.pid}\n"
        assert first.wait(20) == 0
        # The socket is the service manager's: who connects now waits in it for the next daemon.
        assert os.path.exists(place.socket)
        child = place.start("cat", saved, "f")
        second = activate(place, listener, place.environ)
        out, err = child.communicate(timeout=30)
        assert (child.returncode, out) == (0, b"one\n"), err
        second.send_signal(signal.SIGTERM)
        assert second.wait(20) == 0
    assert place.daemons() == []


def test_a_supervised_daemon_is_replaced_only_where_another_build_would_start(place: Place):
    tree = copy_of(place.base / "old", "0.9.0")
    environ = {**place.environ, "PYTHONPATH": python_path(tree)}
    (place.ws / "f").write_text("one\n")
    with listener_at(place.socket) as listener:
        process = activate(place, listener, environ)
        saved = place.save("one")
        # This client is newer; but systemd would start the same old one again, and again.
        for _ in range(3):
            place.done("cat", saved, "f")
        assert place.pid() == process.pid
        version = tree / "protocol" / "ckpt_protocol" / "version.py"
        version.write_text(version.read_text().replace("0.9.0", BUILD))
        # What is compiled is known by the second and the size of its source, and both may be the same.
        os.utime(version, (1, 1))
        child = place.start("cat", saved, "f")
        assert process.wait(20) == 0
        activate(place, listener, environ)
        out, err = child.communicate(timeout=30)
        assert (child.returncode, out) == (0, b"one\n"), err
        assert place.json("daemon", "status")["version"] == BUILD
        place.done("daemon", "stop")


def test_socket_activation_by_systemds_own_tool(place: Place):
    tool = shutil.which("systemd-socket-activate")
    if tool is None:
        pytest.skip("there is no systemd-socket-activate")
    Path(place.socket).parent.mkdir(mode=0o700)
    command = [tool, "--listen", place.socket, "--fdname=ckptd", f"--setenv=PYTHONPATH={place.environ['PYTHONPATH']}"]
    names = ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")
    command += [f"--setenv={name}={place.environ[name]}" for name in names]
    process = place.spawn([*command, sys.executable, "-P", "-m", "ckptd"], place.environ, stderr=subprocess.DEVNULL)
    until(lambda: os.path.exists(place.socket))
    (place.ws / "f").write_text("one\n")
    saved = place.save("one")
    assert place.done("cat", saved, "f").out == "one\n"
    assert place.pid() == process.pid
    assert place.done("daemon", "stop").out == f"the daemon has ended, pid {process.pid}\n"
    assert process.wait(20) == 0
