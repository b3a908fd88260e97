"""What a tool takes and gives, as Structs that are made from those of the protocol."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from ckpt_protocol.structs import Part, Result

__all__ = ["Field", "arguments_of", "result_of"]


class Field(NamedTuple):
    """A field that the protocol does not have. ``default`` NODEFAULT: it has to be given; UNSET: it may be missing."""

    name: str
    type: Any
    text: str
    default: Any = msgspec.UNSET


def arguments_of(
    name: str, params: type[msgspec.Struct], fields: Mapping[str, str], more: Iterable[Field] = ()
) -> type[Part]:
    """Make the Struct of a tool's arguments: ``fields`` of a method's params, each with words for a model, and more.

    Types, limits and defaults are the protocol's; an argument that is not described is refused.
    """
    known = {field.name: field for field in msgspec.structs.fields(params)}
    taken = [_like(known[field], text) for field, text in fields.items()]
    made = msgspec.defstruct(
        name, [*taken, *map(_own, more)], bases=(Part,), frozen=True, kw_only=True, forbid_unknown_fields=True
    )
    assert issubclass(made, Part)
    return made


def result_of(
    name: str, result: type[msgspec.Struct], without: Iterable[str], more: Iterable[Field] = ()
) -> type[Result]:
    """Make the Struct of a tool's result: that of a method but for some fields, and more."""
    left = [field for field in msgspec.structs.fields(result) if field.name not in set(without)]
    fields = [*(_like(field, None) for field in left), *map(_own, more)]
    made = msgspec.defstruct(name, fields, bases=(Result,), frozen=True, kw_only=True)
    assert issubclass(made, Result)
    return made


def _like(field: msgspec.structs.FieldInfo, text: str | None) -> tuple[str, Any, Any]:
    kind = field.type if text is None else Annotated[field.type, msgspec.Meta(description=text)]
    if field.required:
        return field.encode_name, kind, msgspec.NODEFAULT
    if field.default_factory is not msgspec.NODEFAULT:
        return field.encode_name, kind, msgspec.field(default_factory=field.default_factory)
    return field.encode_name, kind, field.default


def _own(field: Field) -> tuple[str, Any, Any]:
    kind = field.type if field.default is not msgspec.UNSET else field.type | msgspec.UnsetType
    return field.name, Annotated[kind, msgspec.Meta(description=field.text)], field.default
