"""Names on the wire: arbitrary bytes go and come back, and each has exactly one form."""

import base64
import os

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_protocol import wirepath
from ckpt_protocol.structs import PathB64, WirePath, from_wire, to_wire
from ckpt_protocol.wirepath import PathError
from support.effort import examples

pytestmark = pytest.mark.core

NAME = st.binary(max_size=60) | st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass"))
PART = st.binary(min_size=1, max_size=12).filter(lambda part: part not in (b".", b"..") and not set(part) & set(b"/\0"))


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@settings(max_examples=examples(300))
@given(name=NAME)
def test_arbitrary_bytes_go_and_come_back(name):
    assert wirepath.decode(wirepath.encode(name)) == name


@settings(max_examples=examples(300))
@given(name=NAME)
def test_they_go_and_come_back_through_json(name):
    document = msgspec.json.encode(to_wire(name))
    assert from_wire(msgspec.json.decode(document, type=WirePath)) == name
    assert wirepath.decode(msgspec.json.decode(document)) == name


@settings(max_examples=examples(300))
@given(name=NAME)
def test_text_is_used_exactly_where_the_name_is_utf8(name):
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        assert wirepath.encode(name) == {"b64": b64(name)}
    else:
        assert isinstance(wirepath.encode(name), str)


ALPHABET = "ABCDEFabcdef0129+/=-_ \n"


@settings(max_examples=examples(2000))
@given(text=st.text(ALPHABET, max_size=12) | st.binary(max_size=9).map(b64))
def test_base64_is_accepted_only_in_the_form_that_encode_gives(text):
    try:
        name = wirepath.decode_b64(text)
    except PathError:
        return
    assert wirepath.encode(name) == {"b64": text}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/w",
        "/w=",
        "/w===",
        "/w==\n",
        " /w==",
        "/ w==",
        "/x==",
        "_w==",
        "/w==/w==",
        "=",
        "!",
        "ÿw==",
        "\ud800",
        b64(b"plain"),
        b64("naïve".encode()),
    ],
)
def test_other_spellings_are_refused(text):
    with pytest.raises(PathError):
        wirepath.decode_b64(text)
    with pytest.raises(PathError):
        from_wire(PathB64(b64=text))


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        b"bytes",
        [],
        {},
        {"b64": 1},
        {"b64": None},
        {"b64": b64(b"\xff"), "more": 1},
        {"B64": b64(b"\xff")},
        "\ud800",
        "a\udcff",
    ],
)
def test_other_shapes_are_refused(value):
    with pytest.raises(PathError):
        wirepath.decode(value)


@pytest.mark.parametrize(
    "document", [b'"\\ud800"', b'"a\\udcffb"', b'"\xff"', b"1", b"null", b"[]", b'{"b64":1}', b'{"x":1}']
)
def test_structs_refuse_them_too(document):
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(document, type=WirePath)


RELATIVE_REFUSED = [
    b"",
    b"/",
    b"/a",
    b"//a",
    b"a/",
    b"a//b",
    b".",
    b"..",
    b"./a",
    b"../a",
    b"a/.",
    b"a/..",
    b"a/./b",
    b"a/../b",
    b"a\0",
    b"\0",
    b"a/\0/b",
    b"a/\xff/../b",
]


@pytest.mark.parametrize("path", RELATIVE_REFUSED)
def test_a_relative_path_that_could_lead_elsewhere_is_refused(path):
    with pytest.raises(PathError) as caught:
        wirepath.check_relative(path)
    str(caught.value).encode()  # the text goes over the wire, whatever bytes the path had


@pytest.mark.parametrize(
    "path", [b"", b"a", b"a/b", b"//", b"//a", b"/a/", b"/a//b", b"/.", b"/..", b"/a/../b", b"/a\0", b"~/a"]
)
def test_an_absolute_path_with_a_detour_is_refused(path):
    with pytest.raises(PathError) as caught:
        wirepath.check_absolute(path)
    str(caught.value).encode()


@settings(max_examples=examples(200))
@given(parts=st.lists(PART, min_size=1, max_size=5))
def test_every_plain_path_is_accepted(parts):
    path = b"/".join(parts)
    assert wirepath.check_relative(path) == path
    assert wirepath.check_absolute(b"/" + path) == b"/" + path


@settings(max_examples=examples(500))
@given(path=st.text("a./\0\\", max_size=9).map(str.encode))
def test_what_is_accepted_stays_below_where_it_begins(path):
    try:
        wirepath.check_relative(path)
    except PathError:
        return
    assert b"\0" not in path
    assert os.path.normpath(path) == path
    assert os.path.normpath(b"/root/" + path) == b"/root/" + path


def test_the_root_and_names_that_only_look_odd_are_paths():
    assert wirepath.check_absolute(b"/") == b"/"
    for path in (b"...", b".a", b"..a", b"a..", b"-rf", b" ", b"a\nb", b"\\", b"git~1", b".git/x"):
        assert wirepath.check_relative(path) == path


@settings(max_examples=examples(200))
@given(name=NAME)
def test_the_text_of_the_api_is_that_of_the_operating_system(name):
    assert wirepath.to_bytes(wirepath.to_text(name)) == name
    assert wirepath.to_text(name) == name.decode("utf-8", "surrogateescape")
