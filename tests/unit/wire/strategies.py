"""Hypothesis strategies that make any message of any version from its declaration.

Values are small, but at the borders where encodings change: lengths around 127 need a second
varint byte, integers at both ends of their range, characters of two to four UTF-8 bytes.
"""

import os
from itertools import count
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ottla.base.ids import NO_UUID
from ottla.wire.schema import Array, Primitive, StructSpec, WireType, spec_of
from ottla.wire.source import fields_in

EXAMPLES = int(os.environ.get("OTTLA_WIRE_EXAMPLES", "4"))
"""How many examples each message gets; raise it for a longer search."""

many = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

_TEXTS = st.sampled_from(("", "a", "topic-1", "é", "日本", "𝄞", "x" * 126, "y" * 127, "z" * 300))
_BLOBS = st.sampled_from((b"", b"\x00", b"key", bytes(range(126)), b"v" * 127, b"w" * 70_000))
_UUIDS = st.sampled_from((NO_UUID, bytes(range(16)), b"\xff" * 16))
_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_INTEGERS = {
    name: st.sampled_from((0, 1, -1, 127, -128, (1 << bits) - 1, -(1 << bits)))
    for name, bits in _BITS.items()
} | {
    "uint16": st.sampled_from((0, 1, 9092, (1 << 16) - 1)),
    "uint32": st.sampled_from((0, 1, (1 << 32) - 1)),
}
_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    **_INTEGERS,
    "bool": st.booleans(),
    "float64": st.sampled_from((0.0, 1.5, -2.25e100)),
    "string": _TEXTS,
    "bytes": _BLOBS,
    "records": _BLOBS,
    "uuid": _UUIDS,
}
OWN_TAGS = 10_000
"""Tags from here on are Ottla's own."""

_ERROR_CODES = st.sampled_from((-1, 0, 1, 42, 87))
_TIMES_MS = st.sampled_from((0, 1, 1_700_000_000_123))


def _primitive(type_: Primitive, name: str) -> st.SearchStrategy[Any]:
    """Values of a primitive; kio only takes known error codes and real times."""
    if type_.name == "int16" and name.endswith("error_code"):
        return _ERROR_CODES
    if type_.name == "int64" and ("time" in name or "period" in name):
        return _TIMES_MS
    return _PRIMITIVES[type_.name]


@st.composite
def messages(draw: st.DrawFn, cls: type, version: int, *, own: bool = True) -> Any:
    """Draw a message of `cls` that only says what `version` can say.

    `own`: also in the fields that only Ottla has.
    """
    return _struct(draw, spec_of(cls), version, 0, own)


def _struct(draw: st.DrawFn, spec: StructSpec, version: int, depth: int, own: bool) -> Any:
    plain, tagged, absent = fields_in(spec, version)
    values = {each.name: each.default for each in absent}
    for each in plain:
        null = version in each.nullable and draw(st.integers(0, 3)) == 0
        values[each.name] = (
            None if null else _value(draw, each.type, each.name, version, depth, own)
        )
    for each in tagged:
        is_own = each.tag is not None and each.tag >= OWN_TAGS
        if (is_own and not own) or draw(st.booleans()):
            values[each.name] = each.default
        else:
            values[each.name] = _value(draw, each.type, each.name, version, depth, own)
    return spec.cls(**values)


def _value(draw: st.DrawFn, type_: WireType, name: str, version: int, depth: int, own: bool) -> Any:
    if isinstance(type_, Array):
        size = draw(st.integers(0, 2 if depth < 2 else 1))
        inner = type_.element
        return tuple(_value(draw, inner, name, version, depth + 1, own) for _ in range(size))
    if isinstance(type_, Primitive):
        return draw(_primitive(type_, name))
    return _struct(draw, spec_of(type_), version, depth + 1, own)


def filled(cls: type, version: int) -> Any:
    """Return the one message of `cls` with every field of `version` said, values counting up.

    Fields that only Ottla has are not said: what others write is compared with it.
    """
    return _filled(spec_of(cls), version, count(1))


def _filled(spec: StructSpec, version: int, numbers: "count[int]") -> Any:
    plain, tagged, absent = fields_in(spec, version)
    values = {each.name: each.default for each in absent}
    for each in (*plain, *tagged):
        if each.tag is not None and each.tag >= OWN_TAGS:
            values[each.name] = each.default
        elif isinstance(each.type, Array):
            inner = each.type.element
            values[each.name] = tuple(_filler(inner, version, numbers) for _ in range(2))
        else:
            values[each.name] = _filler(each.type, version, numbers)
    return spec.cls(**values)


def _filler(type_: WireType, version: int, numbers: "count[int]") -> Any:
    assert not isinstance(type_, Array)
    if not isinstance(type_, Primitive):
        return _filled(spec_of(type_), version, numbers)
    number = next(numbers)
    match type_.name:
        case "bool":
            return True
        case "string":
            return f"text-{number}"
        case "bytes" | "records":
            return b"blob-%d" % number
        case "uuid":
            return bytes(range(number % 200, number % 200 + 16))
        case "float64":
            return number + 0.5
    return number % 80  # Below 80 every number is also a known error code.
