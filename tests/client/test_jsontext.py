"""JSON by the interpreter's accelerator: the same as the json package, to the byte."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricatio_checkpoint import jsontext

pytestmark = pytest.mark.core

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())
DOCUMENTS = st.recursive(SCALARS, lambda one: st.lists(one) | st.dictionaries(st.text(), one), max_leaves=20)


@given(DOCUMENTS)
def test_it_writes_and_reads_as_json_does(document: object):
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    assert jsontext.dumps(document) == text
    assert repr(jsontext.loads(text)) == repr(json.loads(text)) == repr(jsontext.loads(f" \r\n{text}\t"))


@given(st.text(alphabet='{}[]",:1e.-tnul\\ \n\ud800'))
def test_it_refuses_what_json_refuses(text: str):
    assert reading(jsontext.loads, text) == reading(json.loads, text)


def reading(loads: Callable[[str], object], text: str) -> object:
    try:
        return loads(text)
    except ValueError:
        return ValueError


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_it_survives_a_bomb(text: str):
    with pytest.raises((RecursionError, ValueError)):
        jsontext.loads(text)


def test_what_is_no_json_is_a_type_error():
    with pytest.raises(TypeError):
        jsontext.dumps({"a": object()})
    with pytest.raises(TypeError):
        jsontext.dumps({("a",): 1})


def test_without_the_accelerator_json_does_it():
    script = (
        "import sys; sys.modules['_json'] = None\n"
        "from fabricatio_checkpoint import jsontext\n"
        "assert jsontext.make_encoder is None\n"
        "print(jsontext.dumps({'a': [1, None, '\\u00e9']}), jsontext.loads('[1, 2]'))\n"
    )
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{script}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8")
    assert done.stdout == '{"a":[1,null,"é"]} [1, 2]\n'
