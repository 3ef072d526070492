"""How a Kafka message is declared: one class for all versions, a wire type for each field.

    @message(key=43, versions="0-2", flexible="2+")
    class ElectLeadersRequest:
        election_type: int = field(INT8, versions="1+", default=0)

The declarations hold facts only; `compile_encode` and `compile_decode` turn them into code, a
pair of functions for each class and version, on first use. The classes are frozen, slotted,
keyword-only dataclasses to their users and to type checkers.

Version ranges are written as in Kafka's JSON: "3", "1-4", "2+", "none". A nested struct's ranges
are those of the message that holds it. Source: Kafka's message README; KIP-482 (tagged fields).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar, dataclass_transform

from ottla.base.ids import NO_UUID
from ottla.wire.values import REQUIRED, Column, build

T = TypeVar("T")

VERSION_MAX: Final = 32_767


class Slice(Protocol):
    """A chunk that this package does not read: a slice of a file, sent by the host."""

    @property
    def length(self) -> int:
        """Bytes that the host will send for it."""


Chunk = bytes | bytearray | memoryview | Slice
Records = bytes | bytearray | memoryview | Sequence[Chunk]
"""A RECORDS value. Decoding always gives a memoryview of the received buffer."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A wire type without parts: `code` is its `struct` letter, "" for a variable size."""

    name: str
    code: str
    zero: object


BOOL = Primitive("bool", "?", False)
INT8 = Primitive("int8", "b", 0)
INT16 = Primitive("int16", "h", 0)
INT32 = Primitive("int32", "i", 0)
INT64 = Primitive("int64", "q", 0)
UINT16 = Primitive("uint16", "H", 0)
UINT32 = Primitive("uint32", "I", 0)
FLOAT64 = Primitive("float64", "d", 0.0)
UUID = Primitive("uuid", "16s", NO_UUID)
STRING = Primitive("string", "", "")
BYTES = Primitive("bytes", "", b"")
RECORDS = Primitive("records", "", None)


@dataclass(frozen=True, slots=True)
class Array:
    """Elements of one type, a tuple in Python."""

    element: "Primitive | type"


WireType = Primitive | Array | type
"""A class here is a struct made by `struct_of`."""


def array(element: Primitive | type) -> Array:
    """Return the wire type "array of `element`"."""
    return Array(element)


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; empty when `first` is past `last`."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


NEVER = Versions(1, 0)


def parse_versions(text: str) -> Versions:
    """Return the range that `text` writes: "3", "1-4", "2+" or "none"."""
    if text == "none":
        return NEVER
    if text.endswith("+"):
        return Versions(int(text[:-1]), VERSION_MAX)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """A field's facts; `name` and `default` are filled in when its class is made."""

    type: WireType
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    ignorable: bool
    name: str = ""
    default: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StructSpec:
    """What a declared class is on the wire. `key` is None for structs and plain data."""

    cls: type
    fields: tuple[FieldSpec, ...]
    shell: type
    """Same slots without the guards; decoders fill one, then turn it into `cls`."""
    key: int | None = None
    versions: Versions = NEVER
    flexible: Versions = NEVER


def field(
    type: WireType,
    *,
    versions: str = "0+",
    nullable: str = "none",
    tag: int | None = None,
    tagged: str = "",
    default: Any = REQUIRED,
    ignorable: bool = False,
) -> Any:
    """Declare a field.

    versions:  versions that have it.
    nullable:  versions in which None is allowed.
    tag:       its number where it is a tagged field, in the versions `tagged` (all of `versions`
               unless given).
    default:   the value when a version lacks it or its tag is absent, and when the caller does not
               pass it; without a default the caller must.
    ignorable: a version that lacks it drops its value silently; otherwise that is an EncodeError.
    """
    assert tag is not None or not tagged
    spec = FieldSpec(
        type=type,
        versions=parse_versions(versions),
        nullable=parse_versions(nullable),
        tag=tag,
        tagged=NEVER if tag is None else parse_versions(tagged or versions),
        ignorable=ignorable,
    )
    return Column(spec=spec, default=default)


_SPECS: dict[type, StructSpec] = {}


def spec_of(cls: type) -> StructSpec:
    """Return the declaration of a class made by `message`, `record` or `struct_of`."""
    return _SPECS[cls]


def versions_of(cls: type) -> range:
    """Return the versions of a message class."""
    versions = _SPECS[cls].versions
    return range(versions.first, versions.last + 1)


def is_flexible(cls: type, version: int) -> bool:
    """Return whether that version has compact lengths and tagged fields (KIP-482)."""
    return version in _SPECS[cls].flexible


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def message(
    *, key: int | None = None, versions: str, flexible: str = "none"
) -> Callable[[type[T]], type[T]]:
    """Declare a request, a response or, without a key, versioned data such as a log's record."""

    def declare(cls: type[T]) -> type[T]:
        return _declare(cls, key, parse_versions(versions), parse_versions(flexible))

    return declare


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def record(*, type: int, versions: str, flexible: str = "0+") -> Callable[[type[T]], type[T]]:
    """Declare a record of a metadata or coordinator log; its type id is kept as the key."""
    return message(key=type, versions=versions, flexible=flexible)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def struct_of(cls: type[T]) -> type[T]:
    """Declare a struct nested in messages; its versions are those of its message."""
    return _declare(cls, None, NEVER, NEVER)


def _declare(cls: type[T], key: int | None, versions: Versions, flexible: Versions) -> type[T]:
    columns = {name: cls.__dict__[name] for name in cls.__annotations__}
    made, shell = build(cls, columns)
    fields = tuple(
        replace(column.spec, name=name, default=_default(column))
        for name, column in columns.items()
    )
    _SPECS[made] = StructSpec(
        cls=made, fields=fields, shell=shell, key=key, versions=versions, flexible=flexible
    )
    return made


def _default(column: Column) -> Any:
    """The value where a version lacks the field: the declared default, else its type's zero."""
    if column.default is not REQUIRED:
        return column.default
    type_ = column.spec.type
    if isinstance(type_, Array):
        return ()
    return type_.zero if isinstance(type_, Primitive) else None
