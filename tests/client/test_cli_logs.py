"""``ckpt daemon logs -f``: goes on with the log whatever happens to its file, and ends without a word."""

import logging
import logging.handlers
import os
import random
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from ckpt_protocol.address import state_dir
from fabricatio_checkpoint.cli.daemonctl import Follower
from support.cli_run import as_process, command, environment, in_process
from support.poll import until


class Following:
    """A real run of the command, and what it has printed so far."""

    def __init__(self, *argv: str) -> None:
        self.process = subprocess.Popen(
            command("daemon", "logs", *argv), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.out = bytearray()
        self.err = bytearray()
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.out)),
            threading.Thread(target=self._read, args=(self.process.stderr, self.err)),
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream, said: bytearray) -> None:
        while data := os.read(stream.fileno(), 65536):
            said.extend(data)

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        code = self.process.wait()
        for reader in self._readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@pytest.fixture
def log(short_dir, monkeypatch):
    """The log's path, in a state directory that is not there yet."""
    for name, below in (("XDG_RUNTIME_DIR", "run"), ("XDG_STATE_HOME", "state")):
        (short_dir / below).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(short_dir / below))
    monkeypatch.chdir(short_dir)
    return Path(state_dir(os.environ)) / "ckptd.log"


@pytest.fixture
def follow():
    running = []

    def start(*argv: str) -> Following:
        running.append(Following(*argv))
        return running[-1]

    yield start
    for each in running:
        if each.process.returncode is None:
            each.end(signal.SIGKILL)


def append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        file.write(data)


def read(follower: Follower) -> bytes:
    return b"".join(follower.added())


# what is read


def test_the_end_comes_first_and_then_what_is_added(log):
    append(log, b"1\n2\n3\nbegun ")
    follower = Follower(str(log))
    assert follower.begin(2) == b"3\nbegun "
    assert read(follower) == b""
    append(log, b"and ended\n")
    assert read(follower) == b"and ended\n"
    append(log, b"x" * 200_000)
    assert read(follower) == b"x" * 200_000
    follower.close()


def test_a_log_that_comes_later_is_read_from_its_start(log):
    follower = Follower(str(log))
    assert follower.begin(1) is None
    assert read(follower) == b""
    append(log, b"1\n2\n")
    assert read(follower) == b"1\n2\n"
    follower.close()


def test_a_file_that_is_renamed_is_read_to_its_end_before_the_next_one(log):
    append(log, b"1\n")
    follower = Follower(str(log))
    follower.begin(9)
    os.rename(log, f"{log}.1")
    append(Path(f"{log}.1"), b"2\n")
    # Nothing is in its place yet, and its writer is not done with it.
    assert read(follower) == b"2\n"
    append(Path(f"{log}.1"), b"3\n")
    append(log, b"4\n")
    assert read(follower) == b"3\n4\n"
    log.unlink()
    assert read(follower) == b""
    append(log, b"5\n")
    assert read(follower) == b"5\n"
    follower.close()


def test_a_file_that_is_cut_short_is_read_from_its_start(log):
    append(log, b"a long line\n")
    follower = Follower(str(log))
    follower.begin(9)
    os.truncate(log, 0)
    append(log, b"short\n")
    assert read(follower) == b"short\n"
    os.truncate(log, 0)
    assert read(follower) == b""
    append(log, b"again\n")
    assert read(follower) == b"again\n"
    follower.close()


def test_no_line_is_lost_or_told_twice_over_many_rotations(log):
    append(log, b"")
    follower = Follower(str(log))
    found = follower.begin(1)
    handler = logging.handlers.RotatingFileHandler(log, maxBytes=500, backupCount=2)
    often = random.Random(1)
    for number in range(2000):
        handler.emit(logging.makeLogRecord({"msg": f"line {number}"}))
        if often.random() < 0.1 or number % 20 == 0:
            found += read(follower)
    handler.close()
    found += read(follower)
    follower.close()
    assert found.splitlines() == [b"line %d" % number for number in range(2000)]


# the command


def test_json_and_follow_exclude_each_other(log, capsysbinary):
    append(log, b"1\n")
    done = in_process(capsysbinary, "daemon", "logs", "-f", "--json")
    assert done.code == 2
    assert done.document["error"]["kind"] == "usage"


def test_the_help_tells_of_it(log, capsysbinary):
    out = in_process(capsysbinary, "help", "daemon", "logs").out
    assert out.splitlines()[0] == "usage: ckpt daemon logs [--lines N] [--follow]"
    assert "-f, --follow" in out


@pytest.mark.e2e
def test_it_goes_on_until_ctrl_c_and_says_nothing_of_it(log, follow):
    append(log, b"".join(b"line %d\n" % number for number in range(100)))
    run = follow("-f", "-n", "1")
    until(lambda: run.out == b"line 99\n")
    append(log, b"\xff added\n")
    until(lambda: run.out.endswith(b"\xff added\n"))
    os.rename(log, f"{log}.1")
    append(log, b"rotated\n")
    until(lambda: run.out.endswith(b"rotated\n"))
    assert run.end() == 130
    assert (bytes(run.out), bytes(run.err)) == (b"line 99\n\xff added\nrotated\n", b"")


@pytest.mark.e2e
def test_without_a_log_it_says_so_and_waits(log, follow):
    run = follow("-fn5")
    until(lambda: run.err.endswith(b"\n"))
    assert run.err.decode() == f"ckpt: there is no log yet at {log}; waiting for it\n"
    append(log, b"first\n")
    until(lambda: run.out == b"first\n")
    assert run.end() == 130


@pytest.mark.e2e
def test_a_reader_that_goes_away_ends_it_also_where_nothing_is_added(log):
    append(log, b"only\n")
    child = subprocess.Popen(
        command("daemon", "logs", "-f"), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout.readline() == b"only\n"
    child.stdout.close()
    with child.stderr:
        assert child.stderr.read() == b""
    assert child.wait() == 0


@pytest.mark.e2e
def test_a_log_that_cannot_be_read_is_an_error(log):
    log.mkdir(parents=True)
    done = as_process("daemon", "logs", "-f")
    assert done.code == 50
    assert "cannot read" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.e2e
def test_it_outlives_the_daemon(log, follow):
    run = follow("-f")
    try:
        for lives in (1, 2):
            assert as_process("daemon", "start").code == 0
            until(lambda lives=lives: run.out.count(b"serving ") == lives)
            assert as_process("daemon", "stop").code == 0
    finally:
        as_process("daemon", "stop")
    until(lambda: bytes(run.out) == log.read_bytes())
    assert run.end() == 130
