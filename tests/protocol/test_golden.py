"""Version 1 of the wire, byte for byte: what is written here may never change under the same protocol version.

A new method or error kind needs a sample and a golden file: see tests/support/wire_samples.py.
"""

import copy
import json
from collections.abc import Iterator

import msgspec
import pytest

from ckpt_protocol.envelope import Call, Failure, Success
from ckpt_protocol.errors import BY_KIND
from ckpt_protocol.framing import encode_frame
from ckpt_protocol.methods import METHODS
from ckpt_protocol.version import PROTOCOL_VERSION
from support.wire_samples import DATA, MESSAGES, NOTICES, SAMPLES, golden_path

pytestmark = pytest.mark.core

PARTS = ("request", "request.least", "reply", "reply.least")
FREE_FORM = {"meta", "info", "methods", "components"}  # keys of the user's, and those of OpenRPC


def golden(name: str) -> bytes:
    return golden_path(name).read_bytes()


def test_the_files_are_those_of_this_version():
    assert DATA.name == f"v{PROTOCOL_VERSION}"


def test_every_method_and_every_error_has_its_golden_files():
    wanted = {f"{method}.{part}" for method in METHODS for part in PARTS} | {f"error.{kind}" for kind in BY_KIND}
    wanted |= set(NOTICES)
    there = {path.name.removesuffix(".json") for path in DATA.iterdir()}
    assert wanted - there == set(), "write a sample, then run tests/support/wire_samples.py"
    assert there - wanted == {"error.least"}, "a method or error of version 1 was removed"


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_encoding_gives_these_bytes(name):
    """And nothing else but fields that came later, which stand after the others and are all empty here."""
    text = encode_frame(msgspec.json.encode(MESSAGES[name]))
    if text != golden(name):
        cut = without_later_fields(json.loads(text), json.loads(golden(name)))
        text = json.dumps(cut, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    assert text == golden(name)


def without_later_fields(value: object, first: object) -> object:
    if isinstance(value, dict) and isinstance(first, dict):
        assert list(value)[: len(first)] == list(first)
        assert not any(value[name] for name in list(value)[len(first) :])
        return {name: without_later_fields(value[name], first[name]) for name in first}
    if isinstance(value, list) and isinstance(first, list):
        return [without_later_fields(*pair) for pair in zip(value, first, strict=True)]
    return value


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_other_writers_of_json_can_give_the_same_document(name):
    text = golden(name)
    assert json.loads(json.dumps(json.loads(text))) == json.loads(text)
    assert text.endswith(b"\n")
    assert text.count(b"\n") == 1


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("least", [False, True])
def test_decoding_gives_the_structs(method, least):
    suffix = ".least" if least else ""
    sample = SAMPLES[method]
    call = msgspec.json.decode(golden(f"{method}.request{suffix}"), type=Call)
    params = msgspec.json.decode(call.params, type=METHODS[method].params)
    assert (call.method, params) == (method, sample.least_params if least else sample.params)
    reply = msgspec.json.decode(golden(f"{method}.reply{suffix}"), type=Success)
    result = msgspec.json.decode(reply.result, type=METHODS[method].result)
    assert result == (sample.least_result if least else sample.result)


@pytest.mark.parametrize("kind", sorted(BY_KIND))
def test_decoding_gives_the_error(kind):
    reply = msgspec.json.decode(golden(f"error.{kind}"), type=Failure)
    assert reply == MESSAGES[f"error.{kind}"]
    assert (reply.error.code, reply.error.data.kind) == (BY_KIND[kind].code, kind)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_samples_fill_every_field(method):
    sample = SAMPLES[method]
    for full, least in zip(sample.fullest(), (sample.least_params, sample.least_result), strict=True):
        for field in msgspec.structs.fields(type(full)):
            if not field.required:
                assert getattr(full, field.name) != getattr(least, field.name), field.name


@pytest.mark.parametrize("method", sorted(METHODS))
def test_what_is_encoded_is_decoded_again(method):
    for sample in SAMPLES[method].fullest():
        assert msgspec.json.decode(msgspec.json.encode(sample), type=type(sample)) == sample


@pytest.mark.parametrize("method", sorted(METHODS))
def test_fields_with_a_default_may_be_left_out(method):
    for part, kind, least in (
        ("request", METHODS[method].params, SAMPLES[method].least_params),
        ("reply", METHODS[method].result, SAMPLES[method].least_result),
    ):
        body = body_of(f"{method}.{part}.least")
        required = {field.name for field in msgspec.structs.fields(kind) if field.required}
        assert msgspec.convert({name: body[name] for name in required}, type=kind) == least


@pytest.mark.parametrize("method", sorted(METHODS))
def test_required_fields_may_not_be_left_out(method):
    for part, kind in (("request", METHODS[method].params), ("reply", METHODS[method].result)):
        body = body_of(f"{method}.{part}")
        for field in msgspec.structs.fields(kind):
            if field.required:
                with pytest.raises(msgspec.ValidationError):
                    msgspec.convert({name: body[name] for name in body if name != field.name}, type=kind)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_an_unknown_field_of_params_is_refused_wherever_it_stands(method):
    body = body_of(f"{method}.request")
    for changed in with_an_unknown_field(body):
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            msgspec.convert(changed, type=METHODS[method].params)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_an_unknown_field_of_a_result_is_passed_over_wherever_it_stands(method):
    body = body_of(f"{method}.reply")
    for changed in with_an_unknown_field(body, paths=False):
        assert msgspec.convert(changed, type=METHODS[method].result) == SAMPLES[method].result


@pytest.mark.parametrize("method", sorted(name for name, row in METHODS.items() if row.writes))
@pytest.mark.parametrize("token", ["", "0" * 31, "0" * 33, "G" * 32, "A" * 32, "0" * 31 + "\n", "0" * 32 + "\n"])
def test_a_writing_request_needs_a_token_of_128_bits(method, token):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**body_of(f"{method}.request"), "token": token}, type=METHODS[method].params)


@pytest.mark.parametrize("number", ["", "-1", "01", "1.0", "1e3", " 1", "1\n", "0x1", "9" * 21, 1])
def test_device_and_inode_are_decimal_strings(number):
    body = body_of("checkpoint.head.request")
    body["worktree"]["ino"] = number
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(body, type=METHODS["checkpoint.head"].params)


def test_the_methods_that_write_are_those_with_a_token():
    for row in METHODS.values():
        names = {field.name for field in msgspec.structs.fields(row.params)}
        assert ("token" in names) == row.writes, row.name


def body_of(name: str) -> dict:
    document = json.loads(golden(name))
    return document["params"] if ".request" in name else document["result"]


def with_an_unknown_field(body: dict, paths: bool = True) -> Iterator[dict]:
    for place in list(objects(body, (), paths)):
        changed = copy.deepcopy(body)
        target = changed
        for step in place:
            target = target[step]
        target["from_the_future"] = 1
        yield changed


def objects(value: object, place: tuple, paths: bool) -> Iterator[tuple]:
    """The places of all objects but free-form ones; a path's object is closed even inside a result."""
    if isinstance(value, dict):
        if paths or set(value) != {"b64"}:
            yield place
        for name, member in value.items():
            if name not in FREE_FORM:
                yield from objects(member, (*place, name), paths)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from objects(member, (*place, index), paths)
