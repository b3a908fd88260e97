"""The envelope: what is a call, what is none, and the replies made from the table of errors."""

import msgspec
import pytest

from ckpt_protocol.envelope import Call, Failure, Success, failure
from ckpt_protocol.errors import BY_KIND
from ckpt_protocol.structs import PathB64

pytestmark = pytest.mark.core


def call(text: str) -> Call:
    return msgspec.json.decode(text, type=Call)


@pytest.mark.parametrize(("sent", "got"), [("1", 1), ("-1", -1), ('"a"', "a"), ('""', ""), ("null", None)])
def test_an_id_is_kept_as_it_is(sent, got):
    request = call(f'{{"jsonrpc":"2.0","method":"daemon.status","id":{sent}}}')
    assert request.id == got
    assert type(request.id) is type(got)


def test_a_call_without_id_is_a_notification_and_one_with_null_is_not():
    assert call('{"jsonrpc":"2.0","method":"m"}').id is msgspec.UNSET
    assert call('{"jsonrpc":"2.0","method":"m","id":null}').id is None


def test_a_notification_is_encoded_without_id():
    assert msgspec.json.encode(Call(jsonrpc="2.0", method="m")) == b'{"jsonrpc":"2.0","method":"m","params":{}}'


@pytest.mark.parametrize(
    "text",
    [
        '{"method":"m","id":1}',
        '{"jsonrpc":"1.0","method":"m","id":1}',
        '{"jsonrpc":2.0,"method":"m","id":1}',
        '{"jsonrpc":"2.0","id":1}',
        '{"jsonrpc":"2.0","method":1,"id":1}',
        '{"jsonrpc":"2.0","method":null,"id":1}',
        '{"jsonrpc":"2.0","method":"m","id":true}',
        '{"jsonrpc":"2.0","method":"m","id":1.5}',
        '{"jsonrpc":"2.0","method":"m","id":[]}',
        '{"jsonrpc":"2.0","method":"m","id":{}}',
        '{"jsonrpc":"2.0","method":"m","id":1,"more":1}',
        '{"jsonrpc":"2.0","method":"m","id":1,"result":{}}',
        '{"jsonrpc":"2.0","method":"m","id":1',
        '{"jsonrpc":"2.0","method":"m","id":1}}',
        "[]",
        "1",
        "null",
        "",
    ],
)
def test_what_is_no_call(text):
    with pytest.raises(msgspec.DecodeError):
        call(text)


def test_params_are_passed_on_as_they_were_written():
    text = '{ "a" : [1, 2.50, "\\u00e9"], "a": null }'
    assert bytes(call(f'{{"jsonrpc":"2.0","method":"m","params":{text},"id":1}}').params) == text.encode()


def test_params_may_be_left_out():
    assert bytes(call('{"jsonrpc":"2.0","method":"m","id":1}').params) == b"{}"


def test_a_result_is_passed_on_as_it_was_written():
    reply = msgspec.json.decode(b'{"jsonrpc":"2.0","result":{ "n":1 },"id":"x"}', type=Success)
    assert bytes(reply.result) == b'{ "n":1 }'
    assert msgspec.json.encode(reply) == b'{"jsonrpc":"2.0","result":{ "n":1 },"id":"x"}'


def test_a_reply_of_one_kind_is_not_read_as_the_other():
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(failure(1, "internal", "x")), type=Success)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"jsonrpc":"2.0","result":{},"id":1}', type=Failure)


@pytest.mark.parametrize("kind", sorted(BY_KIND))
def test_a_failure_has_code_and_retryable_of_its_row(kind):
    made = failure(7, kind, "text", hint="try", paths=["a", PathB64(b64="/w==")], error_id="e")
    assert (made.error.code, made.error.data.retryable) == (BY_KIND[kind].code, BY_KIND[kind].retryable)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Failure) == made


def test_a_kind_that_is_not_in_the_table_is_a_bug_of_ours():
    with pytest.raises(KeyError):
        failure(1, "no_such_kind", "text")


def test_a_failure_of_a_newer_daemon_can_be_read():
    text = (
        b'{"jsonrpc":"2.0","error":{"code":9999,"message":"m","new":1,'
        b'"data":{"kind":"from_the_future","retryable":true,"new":[]}},"id":null,"new":{}}'
    )
    reply = msgspec.json.decode(text, type=Failure)
    assert (reply.error.code, reply.error.data.kind, reply.error.data.retryable) == (9999, "from_the_future", True)
