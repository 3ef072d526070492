"""Two independent codecs that ours must agree with, byte for byte: kio and kafka-python.

Both are given the same values, converted to what they take: kio wants `timedelta`, `datetime`
and `UUID` objects and drops `_ms` from names; kafka-python wants `UUID` too, and None for a
tagged struct that is not said.
"""

import dataclasses
import datetime
import io
import uuid
from importlib import import_module, util
from typing import Any

from kafka.protocol import admin, api_header, consumer, metadata, producer, sasl
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from ottla.base.ids import NO_UUID
from ottla.wire.registry import snake_case
from ottla.wire.schema import Array, FieldSpec, spec_of
from ottla.wire.source import fields_in

_KAFKA_MODULES = (admin, api_header, consumer, metadata, producer, sasl)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def kio_class(name: str, version: int) -> type | None:
    """Return kio's class for a message of ours ("FetchRequest"), None where it has none."""
    api, kind = name, "data"
    for suffix in ("Request", "Response"):
        if name.endswith(suffix):
            api, kind = name.removesuffix(suffix), suffix.lower()
    api = snake_case(api)
    path = f"kio.schema.{api}.v{version}.{kind}"
    if (
        util.find_spec(f"kio.schema.{api}") is None
        or util.find_spec(path.rpartition(".")[0]) is None
    ):
        return None
    found: type = getattr(import_module(path), name)
    return found


def kio_encode(message: Any, version: int) -> bytes:
    """Encode one of our messages with kio."""
    cls = kio_class(type(message).__name__, version)
    assert cls is not None
    buffer = io.BytesIO()
    entity_writer(cls)(buffer, _to_kio(message, cls, version))
    return buffer.getvalue()


def _to_kio(message: Any, cls: Any, version: int) -> Any:
    values = {}
    names = {each.name: each for each in spec_of(type(message)).fields}
    for each in dataclasses.fields(cls):
        name = each.name.rstrip("_")
        ours = names[name if name in names else f"{name}_ms"]
        values[each.name] = _kio_value(getattr(message, ours.name), ours, each, version)
    return cls(**values)


def _kio_value(value: Any, ours: FieldSpec, theirs: Any, version: int) -> Any:
    kind = theirs.metadata.get("kafka_type")
    if value is None:
        return None
    if isinstance(ours.type, Array):
        inner = _struct_class(theirs.type)
        return tuple(_kio_item(each, kind, inner, version) for each in value)
    return _kio_item(value, kind, _struct_class(theirs.type), version)


def _struct_class(annotation: Any) -> Any:
    """Find the dataclass inside `tuple[X, ...] | None` and the like."""
    if dataclasses.is_dataclass(annotation):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _struct_class(inner)
        if found is not None:
            return found
    return None


def _kio_item(value: Any, kind: str | None, cls: Any, version: int) -> Any:
    if cls is not None:
        return _to_kio(value, cls, version)
    match kind:
        case "uuid":
            return None if value == NO_UUID else uuid.UUID(bytes=value)
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else _EPOCH + datetime.timedelta(milliseconds=value)
    return value


def kafka_python_class(name: str) -> Any:
    """Return kafka-python's class for a message of ours, None where it has none."""
    for module in _KAFKA_MODULES:
        found = getattr(module, name, None)
        if found is not None:
            return found
    return None


def kafka_python_encode(message: Any, version: int) -> bytes:
    """Encode one of our messages with kafka-python."""
    cls = kafka_python_class(type(message).__name__)
    encoded: bytes = _to_kafka_python(message, cls, version).encode(version=version)
    return bytes(encoded)


def _to_kafka_python(message: Any, cls: Any, version: int) -> Any:
    values = {}
    plain, tagged, _ = fields_in(spec_of(type(message)), version)
    for each in plain:
        name = each.name
        if name not in cls._struct.fields:
            name = name.removeprefix("cluster_").removeprefix("topic_")  # Of operations.
        theirs = cls._struct.fields[name]
        values[name] = _kafka_python_value(getattr(message, each.name), each, theirs, version)
    for each in tagged:
        value = getattr(message, each.name)
        if value != each.default:
            theirs = cls._struct.fields[each.name]
            values[each.name] = _kafka_python_value(value, each, theirs, version)
    return cls(version=version, **values)


def _kafka_python_value(value: Any, each: FieldSpec, theirs: Any, version: int) -> Any:
    if value is None:
        return None
    type_ = each.type.element if isinstance(each.type, Array) else each.type
    items = value if isinstance(each.type, Array) else (value,)
    if isinstance(type_, type):
        converted = [_to_kafka_python(item, theirs.data_class, version) for item in items]
    elif type_.name == "uuid":
        converted = [None if item == NO_UUID else uuid.UUID(bytes=item) for item in items]
    elif getattr(theirs, "_type_str", "") == "bitfield":
        converted = [_bits(item) for item in items]
    else:
        converted = list(items)
    return converted if isinstance(each.type, Array) else converted[0]


def _bits(value: int) -> set[int]:
    """kafka-python's form of an int32 of flags."""
    return {bit for bit in range(32) if value >> bit & 1}
