"""Structs as JSON schemas in the form that MCP wants: an object at the root. Pure."""

from typing import Any

import msgspec

from ckpt_protocol.structs import END

__all__ = ["Schema", "input_schema", "output_schema"]

Schema = dict[str, Any]

_DEFINITIONS = "#/$defs/"


def input_schema(arguments: type[msgspec.Struct]) -> Schema:
    """Give the schema of a tool's arguments, written out: not every model's provider follows references."""
    root, definitions = _components(arguments)
    schema: Schema = _plain(_written_out(root, definitions))
    schema["properties"] = {name: _without_null(found) for name, found in schema["properties"].items()}
    return schema


def output_schema(result: type[msgspec.Struct]) -> Schema:
    """Give the schema of a tool's structured result."""
    root, definitions = _components(result)
    schema: Schema = _plain({**root, "$defs": definitions} if definitions else root)
    return schema


def _components(kind: type[msgspec.Struct]) -> tuple[Schema, dict[str, Schema]]:
    (reference,), found = msgspec.json.schema_components((kind,), ref_template=_DEFINITIONS + "{name}")
    definitions = dict(found)
    root = definitions.pop(reference["$ref"].removeprefix(_DEFINITIONS))
    # The name and the docstring of a Struct that nobody wrote say nothing.
    return {key: value for key, value in root.items() if key not in ("title", "description")}, definitions


def _written_out(value: Any, definitions: dict[str, Schema]) -> Any:  # noqa: ANN401 - a JSON schema holds any JSON
    if isinstance(value, list):
        return [_written_out(member, definitions) for member in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        meant = definitions[value["$ref"].removeprefix(_DEFINITIONS)]
        # The docstring of a part speaks to readers of the protocol, and would be carried along many times.
        named = {key: found for key, found in meant.items() if key != "description"}
        value = {**named, **{key: found for key, found in value.items() if key != "$ref"}}
    return {key: _written_out(found, definitions) for key, found in value.items()}


def _without_null(argument: Schema) -> Schema:
    """Describe an argument that may be null as one that may be left out, which is shorter and means the same."""
    if argument.get("default", ...) is not None:
        return argument
    kinds = [kind for kind in argument.get("anyOf", ()) if kind != {"type": "null"}]
    left = {key: found for key, found in argument.items() if key not in ("default", "anyOf")}
    if len(kinds) == 1:
        return {**left, **kinds[0], **left}
    return {**left, "anyOf": kinds} if kinds else left


def _plain(value: Any) -> Any:  # noqa: ANN401 - a JSON schema holds any JSON
    """Spell the end of a pattern as every dialect of regular expressions can read it, and leave titles away."""
    if isinstance(value, list):
        return [_plain(member) for member in value]
    if not isinstance(value, dict):
        return value
    return {
        key: found.replace(END, "$") if key == "pattern" and isinstance(found, str) else _plain(found)
        for key, found in value.items()
        if key != "title" or not isinstance(found, str)
    }
