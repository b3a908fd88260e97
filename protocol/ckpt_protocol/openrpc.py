"""The OpenRPC document of the wire, made from the table of methods, their Structs and the table of errors."""

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from ckpt_protocol import events
from ckpt_protocol.discover import DiscoverResult
from ckpt_protocol.envelope import ErrorData
from ckpt_protocol.errors import BY_KIND, ErrorKind
from ckpt_protocol.methods import METHODS, Method
from ckpt_protocol.version import BUILD

__all__ = ["OPENRPC_VERSION", "document"]

OPENRPC_VERSION: Final = "1.3.2"

_SCHEMAS: Final = "#/components/schemas/"
_ERRORS: Final = "#/components/errors/"
_ABOUT: Final = (
    "Undo for worktrees that AI agents edit. JSON-RPC 2.0 over a local stream, one message a line (UTF-8, ended by a "
    "line feed). Params are objects, never arrays, and a field that is not described is refused. Results may get new "
    'fields at any time. A path is a string, or {"b64": "..."} where it is not UTF-8. Any method may answer with any '
    "of the errors; `data.kind` tells them apart. protocol/WIRE.md is the page for people."
)

# Name, params, and who sends it.
_NOTIFICATIONS: Final[tuple[tuple[str, type[msgspec.Struct], str], ...]] = (
    (events.EVENT, events.Event, "daemon"),
    (events.PROGRESS, events.Progress, "daemon"),
    (events.CANCEL, events.CancelParams, "client"),
)

Schema = dict[str, Any]


@cache
def document() -> DiscoverResult:
    """Give the document, which is the same for the whole life of a process."""
    schemas = _Schemas()
    return DiscoverResult(
        openrpc=OPENRPC_VERSION,
        info={
            "title": "ckptd",
            "version": BUILD,
            "description": _ABOUT,
            "license": {"name": "MIT"},
            # OpenRPC has no place of its own for what is said without a question.
            "x-notifications": [_notification(*row, schemas) for row in _NOTIFICATIONS],
        },
        methods=[_method(row, schemas) for row in METHODS.values()],
        components={"schemas": schemas.shared(), "errors": {kind: _error(row) for kind, row in BY_KIND.items()}},
    )


class _Schemas:
    """The JSON schemas of all Structs, each by a name of its own."""

    def __init__(self) -> None:
        kinds: list[type[msgspec.Struct]] = [ErrorData, *(kind for _, kind, _ in _NOTIFICATIONS)]
        for row in METHODS.values():
            kinds += [row.params, row.result]
        references, components = msgspec.json.schema_components(kinds, ref_template=_SCHEMAS + "{name}")
        self._components: dict[str, Schema] = {_plain(name): _renamed(schema) for name, schema in components.items()}
        self._references: dict[type[msgspec.Struct], Schema] = {
            kind: _renamed(found) for kind, found in zip(kinds, references, strict=True)
        }

    def reference(self, kind: type[msgspec.Struct]) -> Schema:
        """The schema that refers to a Struct's."""
        return self._references[kind]

    def fields(self, kind: type[msgspec.Struct]) -> Iterator[tuple[str, Schema, bool]]:
        """Name and schema of each field of a Struct, and whether it has to be given."""
        whole = self._components[_name(self._references[kind])]
        required = whole.get("required", ())
        for name, schema in whole["properties"].items():
            yield name, schema, name in required

    def shared(self) -> dict[str, Schema]:
        """What others may refer to: all but params, which are described field by field where they belong."""
        params = {_name(self._references[row.params]) for row in METHODS.values()}
        return {name: schema for name, schema in self._components.items() if name not in params}


def _method(row: Method, schemas: _Schemas) -> dict[str, Any]:
    summary, description = _told(row.params, row.name)
    return {
        "name": row.name,
        "summary": summary,
        "description": description,
        "paramStructure": "by-name",
        "params": [
            {"name": name, "schema": schema, "required": required}
            for name, schema, required in schemas.fields(row.params)
        ],
        "result": {
            "name": row.result.__name__,
            "description": inspect.getdoc(row.result) or "",
            "schema": schemas.reference(row.result),
        },
        "errors": [{"$ref": _ERRORS + kind} for kind in BY_KIND],
        "x-writes": row.writes,
    }


def _notification(name: str, params: type[msgspec.Struct], sender: str, schemas: _Schemas) -> dict[str, Any]:
    return {
        "name": name,
        "sender": sender,
        "description": inspect.getdoc(params) or "",
        "params": schemas.reference(params),
    }


def _told(params: type[msgspec.Struct], name: str) -> tuple[str, str]:
    """Summary and description: a docstring begins with the names of the methods it speaks of."""
    text = inspect.getdoc(params) or ""
    head, colon, rest = text.partition(": ")
    told = rest if colon and f"``{name}``" in head else text
    told = told[:1].upper() + told[1:]
    return told.partition("\n")[0].partition(". ")[0].rstrip("."), told


def _error(row: ErrorKind) -> dict[str, Any]:
    data = {"kind": row.kind, "retryable": row.retryable}
    return {"code": row.code, "message": f"{row.family}: {row.kind.replace('_', ' ')}", "data": data}


def _renamed(value: Any) -> Any:  # noqa: ANN401 - a JSON schema holds any JSON
    """Copy a schema, with plain names in its references."""
    if isinstance(value, Mapping):
        return {key: _link(found) if key == "$ref" else _renamed(found) for key, found in value.items()}
    return [_renamed(member) for member in value] if isinstance(value, list) else value


def _link(reference: str) -> str:
    return _SCHEMAS + _plain(reference.removeprefix(_SCHEMAS))


def _plain(name: str) -> str:
    """Of two Structs of one name msgspec gives the whole dotted names: ``ckpt_protocol.daemon.StatusResult``."""
    module, _, last = name.rpartition(".")
    return module.rpartition(".")[2].capitalize() + last


def _name(reference: Schema) -> str:
    return str(reference["$ref"]).removeprefix(_SCHEMAS)
