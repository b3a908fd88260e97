"""``rpc.discover``: a valid OpenRPC document, and a true one: what it says holds for the golden files."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from ckpt_protocol import openrpc
from ckpt_protocol.errors import BY_KIND
from ckpt_protocol.methods import METHODS
from support.wire_samples import golden_path

pytestmark = pytest.mark.core

META_SCHEMA = json.loads((Path(__file__).parent / "data" / "openrpc" / "meta-schema.json").read_text())
# What the meta-schema refers to: any schema, and what a "$ref" may be.
ANY_SCHEMA = {
    "$id": "https://meta.json-schema.tools",
    "$ref": "http://json-schema.org/draft-07/schema",
    "definitions": {"JSONSchemaObject": {"properties": {"$ref": {"type": "string", "format": "uri-reference"}}}},
}
REGISTRY = Registry().with_resources(
    (uri, Resource(contents=found, specification=DRAFT7))
    for uri, found in (
        ("https://meta.json-schema.tools", ANY_SCHEMA),
        ("https://meta.json-schema.tools/", ANY_SCHEMA),
        ("http://json-schema.org/draft-07/schema", jsonschema.Draft7Validator.META_SCHEMA),
    )
)
DOCUMENT = msgspec.json.decode(msgspec.json.encode(openrpc.document()))
METHOD_OF = {method["name"]: method for method in DOCUMENT["methods"]}


def faults(document: dict) -> list[str]:
    validator = jsonschema.Draft7Validator(META_SCHEMA, registry=REGISTRY)
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(document)]


def agrees(value: object, schema: dict) -> bool:
    whole = {**schema, "components": DOCUMENT["components"]}
    if "$ref" in schema:
        # In draft 7 nothing counts that stands beside a reference.
        whole = {"allOf": [schema], "components": DOCUMENT["components"]}
    return jsonschema.Draft7Validator(whole).is_valid(value)


def params_schema(method: str) -> dict:
    params = METHOD_OF[method]["params"]
    return {
        "type": "object",
        "properties": {one["name"]: one["schema"] for one in params},
        "required": [one["name"] for one in params if one["required"]],
        "additionalProperties": False,
    }


def golden(method: str, part: str) -> object:
    document = json.loads(golden_path(f"{method}.{part}").read_bytes())
    return document["params"] if "request" in part else document["result"]


def test_the_document_agrees_with_openrpc_s_meta_schema():
    assert faults(DOCUMENT) == []


@pytest.mark.parametrize(
    "broken",
    [
        {**DOCUMENT, "openrpc": "0.1"},
        {**DOCUMENT, "surplus": 1},
        {**DOCUMENT, "methods": [{"name": "a"}]},
        {**DOCUMENT, "methods": [{"name": "a", "params": [{"name": "b", "schema": {"type": "thing"}}]}]},
        {**DOCUMENT, "components": {"errors": {"a": {"code": "1", "message": "m"}}}},
    ],
)
def test_the_meta_schema_finds_what_is_wrong(broken):
    assert faults(broken)


def test_every_method_is_described():
    assert list(METHOD_OF) == list(METHODS)
    for name, method in METHOD_OF.items():
        assert method["summary"], name
        assert "``" not in method["summary"].partition(" ")[0], f"{name}: its docstring does not say what it does"
        assert method["x-writes"] == METHODS[name].writes


def test_every_error_is_described():
    errors = DOCUMENT["components"]["errors"]
    assert {(kind, error["code"], error["data"]["retryable"]) for kind, error in errors.items()} == {
        (row.kind, row.code, row.retryable) for row in BY_KIND.values()
    }


def test_every_reference_leads_somewhere():
    for reference in references(DOCUMENT):
        place = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]


@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_golden_files_agree_with_the_document(method):
    for least in ("", ".least"):
        assert agrees(golden(method, f"request{least}"), params_schema(method))
        assert agrees(golden(method, f"reply{least}"), METHOD_OF[method]["result"]["schema"])


@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_document_refuses_what_the_daemon_refuses(method):
    params = golden(method, "request")
    assert not agrees({**params, "from_the_future": 1}, params_schema(method))
    for name in params_schema(method)["required"]:
        assert not agrees({key: params[key] for key in params if key != name}, params_schema(method))
    if "token" in params:
        assert not agrees({**params, "token": "A" * 32}, params_schema(method))


def test_the_notifications_agree_with_the_document():
    described = {one["name"]: one["params"] for one in DOCUMENT["info"]["x-notifications"]}
    for file in ("notice.event", "notice.progress"):
        said = json.loads(golden_path(file).read_bytes())
        assert agrees(said["params"], described[said["method"]])
        assert not agrees({}, described[said["method"]])
    assert agrees({"id": 7}, described["$/cancel"])
    assert not agrees({"id": 7, "why": "late"}, described["$/cancel"])


def test_schemas_of_one_name_are_told_apart():
    names = DOCUMENT["components"]["schemas"]
    assert {"DaemonStatusResult", "WorktreeStatusResult"} <= set(names)
    assert not [name for name in names if not name.isalnum()]


def references(value: object) -> list[str]:
    if isinstance(value, dict):
        here = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return here + [found for member in value.values() for found in references(member)]
    return [found for member in value for found in references(member)] if isinstance(value, list) else []
