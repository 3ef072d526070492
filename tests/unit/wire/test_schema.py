"""Declarations: version ranges as Kafka writes them, and annotations that match wire types.

The annotations are what handlers are type-checked against, so every message of the protocol is
walked and compared with what its wire types produce.
"""

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.registry import APIS, REQUESTS, RESPONSES
from ottla.wire.schema import (
    BOOL,
    INT32,
    NEVER,
    STRING,
    UUID,
    VERSION_MAX,
    Array,
    FieldSpec,
    Primitive,
    Records,
    StructSpec,
    Versions,
    array,
    field,
    is_flexible,
    message,
    parse_versions,
    record,
    spec_of,
    struct_of,
    versions_of,
)

PYTHON: dict[str, Any] = {
    "bool": bool,
    "float64": float,
    "string": str,
    "bytes": bytes,
    "uuid": Uuid,
    "records": Records,
}


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("3", Versions(3, 3)),
        ("1-4", Versions(1, 4)),
        ("2+", Versions(2, VERSION_MAX)),
        ("none", NEVER),
    ],
)
def test_parse_versions(text: str, versions: Versions) -> None:
    assert parse_versions(text) == versions


def test_membership() -> None:
    assert [v for v in range(6) if v in Versions(2, 4)] == [2, 3, 4]
    assert not any(v in NEVER for v in range(6))


def test_message_spec() -> None:
    @message(key=7, versions="1-3", flexible="2+")
    class Example:
        name: str = field(STRING)
        topic_id: Uuid = field(UUID, versions="2+", default=NO_UUID, ignorable=True)

    spec = spec_of(Example)
    assert (spec.key, versions_of(Example)) == (7, range(1, 4))
    assert [is_flexible(Example, v) for v in (1, 2, 3)] == [False, True, True]
    name, topic_id = spec.fields
    assert (name.name, name.type, name.default, name.ignorable) == ("name", STRING, "", False)
    assert (topic_id.versions.first, topic_id.ignorable) == (2, True)


def test_record_keeps_its_type_id_as_key() -> None:
    @record(type=5001, versions="0")
    class ExampleRecord:
        alive: bool = field(BOOL)

    assert spec_of(ExampleRecord).key == 5001
    assert is_flexible(ExampleRecord, 0)


def test_tagged_in_part_of_the_versions() -> None:
    @struct_of
    class Part:
        size: int = field(INT32, versions="1+", tag=0, tagged="3+", default=0)

    (size,) = spec_of(Part).fields
    assert (size.versions.first, size.tagged.first) == (1, 3)


def structs_of(spec: StructSpec) -> list[StructSpec]:
    """A struct and all inside it."""
    found = [spec]
    for each in spec.fields:
        inner = each.type.element if isinstance(each.type, Array) else each.type
        if isinstance(inner, type):
            found += structs_of(spec_of(inner))
    return found


def default_of(owner: Any, each: FieldSpec) -> Any:
    """The default that constructing the class uses; MISSING where the caller must say it."""
    return {field.name: field.default for field in fields(owner)}[each.name]


def annotation_of(owner: Any, each: FieldSpec, known: Versions) -> Any:
    """The annotation that a field's wire type calls for."""
    inner = each.type.element if isinstance(each.type, Array) else each.type
    kind: Any = PYTHON.get(inner.name, int) if isinstance(inner, Primitive) else inner
    if isinstance(each.type, Array):
        kind = tuple.__class_getitem__((kind, ...))
    null = any(version in each.nullable for version in range(known.first, known.last + 1))
    return kind | None if null or default_of(owner, each) is None else kind


@pytest.mark.parametrize("key", APIS)
def test_annotations_match_wire_types(key: int) -> None:
    for cls in (REQUESTS[key], RESPONSES[key]):
        for spec in structs_of(spec_of(cls)):
            hints = get_type_hints(spec.cls)
            for each in spec.fields:
                wanted = annotation_of(spec.cls, each, spec_of(cls).versions)
                assert hints[each.name] == wanted, (spec.cls, each.name)


@pytest.mark.parametrize("key", APIS)
def test_fields_that_some_version_lacks_have_defaults(key: int) -> None:
    """Else a handler for another version would have to say them."""
    for cls in (REQUESTS[key], RESPONSES[key]):
        first, last = spec_of(cls).versions.first, spec_of(cls).versions.last
        for each in spec_of(cls).fields:
            missing = [v for v in range(first, last + 1) if v not in each.versions]
            if missing:
                assert default_of(cls, each) == each.default


def test_a_tag_must_be_numbered() -> None:
    with pytest.raises(AssertionError):
        field(INT32, tagged="1+")


def test_array() -> None:
    assert array(INT32) == Array(INT32)
