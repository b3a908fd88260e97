"""The tools as a model sees them: schemas, addresses, progress, errors. None of it needs the SDK."""

import ast
import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ckpt_protocol.checkpoint import Expected, RestoreParams, RestoreResult, SaveParams
from ckpt_protocol.methods import METHODS
from ckpt_protocol.wirepath import decode, encode
from fabricatio_checkpoint import mcp as room_of_mcp
from fabricatio_checkpoint.errors import InputError, error_of
from fabricatio_checkpoint.mcp.address import Address, read_address, record_address
from fabricatio_checkpoint.mcp.answer import fault
from fabricatio_checkpoint.mcp.instructions import INSTRUCTIONS
from fabricatio_checkpoint.mcp.pace import Pace
from fabricatio_checkpoint.mcp.schema import input_schema, output_schema
from fabricatio_checkpoint.mcp.tools import TOOLS, run_tool
from support.cli_run import ROOT

every_tool = pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)


@every_tool
def test_a_tool_s_schemas_are_schemas_of_objects(tool):
    for schema in (input_schema(tool.arguments), output_schema(tool.result)):
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"


@every_tool
def test_arguments_are_written_out_and_each_is_explained(tool):
    schema = input_schema(tool.arguments)
    assert "$ref" not in json.dumps(schema)
    assert "null" not in json.dumps(schema)
    for name, argument in schema["properties"].items():
        assert argument["description"].strip().endswith((".", "'")), name


@every_tool
def test_what_a_tool_says_of_itself_is_short_enough_to_be_carried_along(tool):
    assert 80 < len(tool.text) < 1000
    assert len(json.dumps(input_schema(tool.arguments))) < 2500


def test_all_that_is_read_before_the_first_call_is_a_few_thousand_tokens():
    told = [INSTRUCTIONS, *(tool.text + json.dumps(input_schema(tool.arguments)) for tool in TOOLS.values())]
    assert sum(map(len, told)) < 16_000


def test_every_tool_that_the_others_speak_of_is_there():
    words = " ".join([INSTRUCTIONS, *(tool.text for tool in TOOLS.values())])
    spoken_of = {word.strip(".,:;()") for word in words.split() if word.startswith("checkpoint_")}
    assert spoken_of <= set(TOOLS)
    assert set(TOOLS) <= spoken_of | {"checkpoint_redo", "checkpoint_list"}


def test_a_model_can_remove_no_history_and_insist_on_nothing():
    room = Path(room_of_mcp.__file__).parent
    strings = {
        node.value
        for path in room.glob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    reading = {"worktree.status", *(f"checkpoint.{name}" for name in ("list", "show", "diff", "search", "cat"))}
    assert strings & set(METHODS) == reading | {f"checkpoint.{name}" for name in ("save", "restore", "undo", "redo")}
    for tool in TOOLS.values():
        names = {each.name for each in msgspec.structs.fields(tool.arguments)}
        assert not names & {"force", "recreate", "checkpoint_dir", "worktree"}


def test_the_page_tells_of_every_tool():
    named = re.findall(r"`(checkpoint_\w+)`", (ROOT / "docs" / "mcp.md").read_text())
    assert set(named) == set(TOOLS)


def test_arguments_are_the_protocol_s_own_in_type_limit_and_default():
    theirs = {field.name: field for field in msgspec.structs.fields(SaveParams)}
    ours = {field.name: field for field in msgspec.structs.fields(TOOLS["checkpoint_save"].arguments)}
    assert set(ours) == {"message", "tag", "meta", "kind", "expect_head"}
    for name, field in ours.items():
        assert field.default == theirs[name].default
        assert msgspec.json.schema(field.type) == {**msgspec.json.schema(theirs[name].type), **_described(field.type)}


def _described(kind):
    return {"description": msgspec.json.schema(kind)["description"]}


def test_a_result_is_the_protocol_s_but_for_what_is_said_to_be_left_out():
    schema = output_schema(TOOLS["checkpoint_restore"].result)
    theirs = {field.name for field in msgspec.structs.fields(RestoreResult)}
    assert set(schema["properties"]) == theirs - {"stats"} | {"counts", "next_after_path", "hint"}
    assert schema["$defs"].keys() >= {"LeftOut", "PathB64"}


def test_preconditions_at_paths_are_those_of_the_protocol():
    given_pattern = input_schema(TOOLS["checkpoint_restore"].arguments)["properties"]["expect"]["items"]["properties"]
    assert set(given_pattern) == {"path", "oid"}
    assert given_pattern["oid"]["pattern"] == "^([0-9a-f]{40}|absent)$"
    assert msgspec.convert({"path": "a", "oid": "absent"}, Expected).oid == "absent"
    assert {field.name for field in msgspec.structs.fields(RestoreParams)} >= {"expect", "expect_head", "digest"}


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("checkpoint_list", {"limit": 0}, "limit"),
        ("checkpoint_list", {"kind": "odd"}, "kind"),
        ("checkpoint_show", {}, "id"),
        ("checkpoint_save", {"force": True}, "force"),
        ("checkpoint_read", {"id": "HEAD", "path": 5}, "path"),
    ],
)
def test_wrong_arguments_are_named(name, arguments, said):
    with pytest.raises(InputError) as raised:
        run_tool(TOOLS[name], None, arguments, None, None)
    assert raised.value.kind == "invalid_params"
    assert said in raised.value.message


def test_an_error_says_what_to_do_in_the_words_of_the_tools():
    told = fault(error_of("plan_changed", "the worktree has changed", hint="ckpt reset --dry-run"))["error"]
    assert told["kind"] == "plan_changed"
    assert told["retryable"] is True
    assert "confirm_digest" in told["hint"]
    assert fault(error_of("bad_tag", "no", hint="another name"))["error"]["hint"] == "another name"


def test_an_error_about_an_odd_name_is_valid_json():
    odd = b"odd\xff".decode("utf-8", "surrogateescape")
    told = fault(error_of("bad_path", f"{odd} is wrong", hint=f"not {odd}", paths=[odd] * 50))
    text = json.dumps(told, ensure_ascii=False).encode("utf-8").decode()
    assert "odd\\udcff is wrong" in told["error"]["message"]
    assert json.loads(text)["error"]["paths"] == [{"b64": "b2Rk/w=="}] * 20
    assert told["error"]["paths_total"] == 50


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 9), st.integers(0, 99))))
def test_progress_only_grows(steps):
    pace, last = Pace(), -1.0
    for phase, done, total, read in steps:
        params = {"phase": phase, "done": done, "total": total, "bytes": read}
        told = pace.told({"method": "$/progress", "params": params})
        assert told.progress > last
        assert told.message.startswith(f"{phase}: {done}")
        last = told.progress
    assert pace.told({"method": "event", "params": {}}) is None


@given(st.text(min_size=1), st.binary(min_size=1))
def test_an_address_leads_to_any_checkpoint_and_any_file(name, path):
    name = name.encode("utf-8", "replace").decode()
    address = record_address(name)
    assert address.isascii()
    assert read_address(address) == Address(name)
    assert read_address(address + "/patch") == Address(name, patch=True)
    spelled = "".join(f"%{byte:02X}" for byte in path)
    found = read_address(f"{address}/files/{spelled}")
    assert decode(found.path) == path
    assert found == Address(name, path=encode(path))


@pytest.mark.parametrize(
    "uri", ["", "checkpoint:///", "checkpoint://x", "file:///etc/passwd", "checkpoint:///a/files/", "checkpoint:///a/b"]
)
def test_other_addresses_are_refused(uri):
    with pytest.raises(InputError, match="no resource"):
        read_address(uri)
