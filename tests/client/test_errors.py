"""From an error reply to an exception that says what to do."""

import pickle

import pytest

from ckpt_protocol.errors import BY_KIND
from fabricatio_checkpoint.errors import (
    CheckpointError,
    ConnectionLost,
    DaemonStartError,
    InputError,
    InternalError,
    StateError,
    StorageError,
    TransportError,
    error_of,
    from_reply,
)

pytestmark = pytest.mark.core

FAMILIES = {
    "input": (InputError, 10),
    "state": (StateError, 20),
    "storage": (StorageError, 50),
    "daemon": (TransportError, 60),
    "bug": (InternalError, 70),
}


def _reply(kind, code, message="it failed", **data):
    return {"code": code, "message": message, "data": {"kind": kind, "retryable": True, **data}}


@pytest.mark.parametrize("kind", sorted(BY_KIND))
def test_each_kind_has_the_class_and_exit_code_of_its_family(kind):
    row = BY_KIND[kind]
    cls, exit_code = FAMILIES[row.family]
    for error in (from_reply(_reply(kind, row.code), "checkpoint.save"), error_of(kind, "it failed")):
        assert isinstance(error, cls)
        assert isinstance(error, RuntimeError)
        assert error.exit_code == exit_code
        assert (error.kind, error.code) == (kind, row.code)


@pytest.mark.parametrize(
    ("code", "cls"), [(1999, InputError), (2999, StateError), (3999, StorageError), (4999, TransportError)]
)
def test_a_kind_of_a_newer_daemon_keeps_its_word_and_is_classed_by_its_code(code, cls):
    error = from_reply(_reply("from_the_future", code), None)
    assert type(error) is cls
    assert (error.kind, error.code) == ("from_the_future", code)


@pytest.mark.parametrize("body", [{}, {"code": "x", "message": None, "data": []}, {"data": {"paths": 3, "hint": 4}}])
def test_an_error_reply_of_the_wrong_shape_is_an_internal_error(body):
    error = from_reply(body, None)
    assert type(error) is InternalError
    assert error.paths == []


def test_everything_in_the_reply_becomes_an_attribute():
    body = _reply(
        "conflicts", 2008, "2 conflicts", hint="save first", paths=["a", {"b64": "/w=="}, {"b64": "!"}], error_id="E7"
    )
    error = from_reply(body, "checkpoint.restore")
    assert error.message == "2 conflicts"
    assert error.hint == "save first"
    assert error.paths == ["a", "\udcff", "{'b64': '!'}"]
    assert (error.retryable, error.error_id, error.method) == (True, "E7", "checkpoint.restore")


def test_text_says_what_where_and_what_to_do():
    error = InputError("no such file", hint="look at ckpt ls", paths=["a", "b", "c", "d", "e"], error_id="E7")
    assert str(error) == "no such file: a, b, c and 2 more; look at ckpt ls (error E7 in the daemon's log)"
    assert str(InputError("no file a/b", paths=["a/b"])) == "no file a/b"
    assert str(InputError("no file")) == "no file"


def test_a_path_outside_says_prefix_not_found_whoever_found_it():
    assert "prefix not found" in str(from_reply(_reply("outside_worktree", 1002, "x is outside"), None))
    said = from_reply(_reply("outside_worktree", 1002, "prefix not found: x"), None)
    assert str(said).count("prefix not found") == 1


def test_special_classes():
    assert isinstance(error_of("start_failed", "x"), DaemonStartError)
    lost = error_of("connection_lost", "x")
    assert isinstance(lost, ConnectionLost)
    assert lost.sent is False


def test_an_error_survives_pickling():
    error = StateError("x", kind="no_checkpoint", hint="save", paths=["p"], code=2002, method="m")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is StateError
    assert (str(copy), copy.kind, copy.code, copy.paths) == (str(error), "no_checkpoint", 2002, ["p"])
    assert isinstance(copy, CheckpointError)
