"""Valid requests of every API from what a session knows, and what a fuzzer makes of them.

Requests are built from their declarations: a field gets what the session knows under its name
(`Class.field` goes before `field`), else its default, else something plausible of its type.
"""

import random
import struct
from typing import Any

from ottla.wire.errors import EncodeError
from ottla.wire.frames import encode_request
from ottla.wire.schema import (
    Array,
    FieldSpec,
    Primitive,
    StructSpec,
    WireType,
    spec_of,
)

Facts = dict[str, Any]
"""What a session knows, by field name."""

INTEGERS = (0, 1, -1, 2, 7, 127, -128, 255, 256, 32_767, -32_768, 2**31 - 1, -(2**31), 2**63 - 1)
TEXTS = (
    "",
    "a",
    ".",
    "..",
    "x" * 300,
    "y" * 5_000,
    "é\u0000\U0001f600",
    "__consumer_offsets",
    "a b",
)
COPIES_MAX = 60


def valid(cls: type, version: int, facts: Facts) -> Any:
    """Return an instance of a declared class with all fields that the version has."""
    spec = spec_of(cls)
    values = {
        each.name: _value(spec, each, each.type, version, facts)
        for each in spec.fields
        if version in each.versions
    }
    for each in spec.fields:
        values.setdefault(each.name, each.default)
    return cls(**values)


def _value(spec: StructSpec, each: FieldSpec, type_: WireType, version: int, facts: Facts) -> Any:
    for name in (f"{spec.cls.__name__}.{each.name}", each.name):
        if name in facts and not (isinstance(type_, Array) and isinstance(type_.element, type)):
            known = facts[name]
            if isinstance(type_, Array):
                return known if isinstance(known, tuple) else (known,)
            return known
    if isinstance(type_, Array):
        if not isinstance(type_.element, type):
            return (type_.element.zero,)
        return (valid(type_.element, version, facts),)
    if isinstance(type_, type):
        return None if version in each.nullable else valid(type_, version, facts)
    return each.default if each.default is not None or version in each.nullable else type_.zero


class Mutator:
    """Damages requests, as its dice fall."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def frame(self, request: Any, version: int) -> bytes:
        """Return a frame of a request, damaged in its fields, its bytes, in both or not at all."""
        kind = self._dice.random()
        data = self._encoded(request, version, fields=kind < 0.75)
        return self.bytes_changed(data) if 0.5 < kind < 0.93 else data

    def _encoded(self, request: Any, version: int, *, fields: bool) -> bytes:
        for _ in range(10 if fields else 0):
            changed = request
            for _ in range(self._dice.randint(1, 3)):
                changed = self.changed(changed, version)
            try:
                return bytes(encode_request(changed, version, 1, "fuzz"))
            except (EncodeError, OverflowError, struct.error, ValueError):
                continue  # No version can say it: not a frame.
        return bytes(encode_request(request, version, 1, "fuzz"))

    # -- fields --------------------------------------------------------------------------------

    def changed(self, message: Any, version: int) -> Any:
        """Return a message with another value in one of its fields, or further inside."""
        spec = spec_of(type(message))
        fields = [each for each in spec.fields if version in each.versions]
        if not fields:
            return message
        chosen = self._dice.choice(fields)
        values = {each.name: getattr(message, each.name) for each in spec.fields}
        values[chosen.name] = self._other(chosen, chosen.type, values[chosen.name], version)
        return type(message)(**values)

    def _other(self, each: FieldSpec, type_: WireType, value: Any, version: int) -> Any:
        dice = self._dice
        if version in each.nullable and dice.random() < 0.2:
            return None
        if isinstance(type_, Array):
            return self._other_array(each, type_, value or (), version)
        if isinstance(type_, type):
            return value if value is None else self.changed(value, version)
        return self._other_primitive(type_, value)

    def _other_array(self, each: FieldSpec, type_: Array, items: Any, version: int) -> Any:
        dice = self._dice
        items = list(items)
        what = dice.random()
        if items and what < 0.6:
            at = dice.randrange(len(items))
            if isinstance(type_.element, type):
                items[at] = self.changed(items[at], version)
            else:
                items[at] = self._other_primitive(type_.element, items[at])
        elif items and what < 0.85:
            items *= dice.randint(2, COPIES_MAX)
        else:
            items = []
        return tuple(items)

    def _other_primitive(self, type_: Primitive, value: Any) -> Any:
        dice = self._dice
        match type_.name:
            case "string":
                return dice.choice(TEXTS)
            case "bytes" | "records":
                data = bytearray(value or b"")
                return bytes(self._spoiled(data)) if data else dice.randbytes(20)
            case "uuid":
                return type(value)(dice.randbytes(16))
            case "bool":
                return not value
            case "float64":
                return dice.choice((0.0, -1.5, float("inf"), float("nan")))
        if dice.random() < 0.3:
            return int(value) + dice.choice((-1, 1))
        return dice.choice(INTEGERS)

    # -- bytes ---------------------------------------------------------------------------------

    def bytes_changed(self, frame: bytes) -> bytes:
        """Return a frame with damage to its bytes, its length or its header."""
        dice, body = self._dice, bytearray(frame[4:])
        match dice.randrange(8):
            case 0:
                return _framed(self._spoiled(body))
            case 1:
                return _framed(body[: dice.randrange(len(body))])
            case 2:
                return frame + frame
            case 3:
                at = dice.randrange(len(body))
                return _framed(body[:at] + dice.randbytes(dice.randint(1, 40)) + body[at:])
            case 4:
                wrong = dice.choice((0, 1, len(body) - 1, len(body) + 5, 2**31 - 1, -1, 50 << 20))
                return struct.pack(">i", wrong) + body
            case 5:
                return _framed(struct.pack(">h", dice.randint(-1, 20)).join((body[:2], body[4:])))
            case 6:
                # Where arrays have their lengths: anywhere.
                at = dice.randrange(8, len(body)) if len(body) > 8 else 0
                count = dice.choice((0x7FFFFFFF, -1, 50_000, 3))
                return _framed(body[:at] + struct.pack(">i", count) + body[at + 4 :])
            case _:
                return frame[: dice.randrange(1, len(frame))]

    def _spoiled(self, data: bytearray) -> bytearray:
        for _ in range(self._dice.randint(1, 4)):
            data[self._dice.randrange(len(data))] = self._dice.choice((0, 1, 127, 128, 255))
        return data


def _framed(body: bytes | bytearray) -> bytes:
    return struct.pack(">i", len(body)) + bytes(body)
