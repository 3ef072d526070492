"""Messages as JSON, as Kafka's generated converters write them.

Names are camel case, UUIDs text, bytes base64; a tagged field with its default value is left out.
Source: the JsonConverterGenerator of Kafka's message generator.
"""

from base64 import b64encode
from typing import Any

from ottla.base.ids import Uuid, uuid_text
from ottla.wire.schema import BYTES, RECORDS, UUID, Array, Primitive, WireType, spec_of


def to_json(message: object, version: int) -> dict[str, Any]:
    """Return a message or struct as a value for `json.dumps`."""
    out: dict[str, Any] = {}
    for field in spec_of(type(message)).fields:
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        if field.tag is not None and version in field.tagged and value == field.default:
            continue
        out[camel_case(field.name)] = _value(field.type, value, version)
    return out


def camel_case(name: str) -> str:
    """Return a field's name in Kafka's JSON."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _value(kind: WireType, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(kind, Array):
        return [_value(kind.element, each, version) for each in value]
    if not isinstance(kind, Primitive):
        return to_json(value, version)
    if kind is UUID:
        return uuid_text(Uuid(bytes(value)))
    if kind is BYTES or kind is RECORDS:
        return b64encode(bytes(value)).decode("ascii")
    return value
