"""Records as lines of text, as the console consumer prints them.

Source: DefaultMessageFormatter.java.
"""

import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ottla.cli.errors import UsageError

Decode = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One record to print. `timestamp` is None where it has none."""

    partition: int
    offset: int
    timestamp: tuple[str, int] | None
    leader_epoch: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def _number(code: str) -> Decode:
    layout = struct.Struct(code)

    def decode(data: bytes) -> bytes:
        try:
            return str(layout.unpack(data)[0]).encode()
        except struct.error:
            raise ValueError(f"{len(data)} bytes: expected {layout.size}") from None

    return decode


def _uuid(data: bytes) -> bytes:
    return str(uuid.UUID(data.decode())).encode()


def _as_it_is(data: bytes) -> bytes:
    return data


_PACKAGE = "org.apache.kafka.common.serialization."
DESERIALIZERS: dict[str, Decode] = {
    _PACKAGE + "StringDeserializer": _as_it_is,
    _PACKAGE + "ByteArrayDeserializer": _as_it_is,
    _PACKAGE + "DoubleDeserializer": _number(">d"),
    _PACKAGE + "FloatDeserializer": _number(">f"),
    _PACKAGE + "IntegerDeserializer": _number(">i"),
    _PACKAGE + "LongDeserializer": _number(">q"),
    _PACKAGE + "ShortDeserializer": _number(">h"),
    _PACKAGE + "UUIDDeserializer": _uuid,
}
"""Kafka's deserializers by their Java class names."""

FLAGS = (
    "print.timestamp",
    "print.partition",
    "print.offset",
    "print.delivery",
    "print.epoch",
    "print.headers",
    "print.key",
    "print.value",
)
TEXTS = {
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
}
DECODERS = ("key.deserializer", "value.deserializer", "headers.deserializer")


@dataclass(frozen=True, slots=True)
class RecordText:
    """Which parts of a record to print, and how."""

    printed: frozenset[str]
    key_separator: bytes
    line_separator: bytes
    headers_separator: bytes
    null_literal: bytes
    decoders: Mapping[str, Decode]

    def line(self, record: Shown) -> bytes:
        """Return the record's line; raise ValueError where a deserializer cannot read it."""
        columns = [_COLUMNS[flag](self, record) for flag in FLAGS if flag in self.printed]
        line = self.key_separator.join(columns)
        # As in Kafka's formatter: the line separator follows the last column.
        return line + self.line_separator if columns else b""

    def text(self, value: bytes | None, kind: str) -> bytes:
        """Return a key's, value's or header's text."""
        if value is None:
            return self.null_literal
        try:
            return self.decoders.get(kind, _as_it_is)(value)
        except ValueError as error:
            raise ValueError(f"{kind}: {error}") from None

    def headers(self, record: Shown) -> bytes:
        """Return the headers in one column."""
        if not record.headers:
            return b"NO_HEADERS"
        return self.headers_separator.join(
            name.encode() + b":" + self.text(value, "headers.deserializer")
            for name, value in record.headers
        )


def _timestamp(record: Shown) -> bytes:
    if record.timestamp is None:
        return b"NO_TIMESTAMP"
    kind, value = record.timestamp
    return f"{kind}:{value}".encode()


def _epoch(record: Shown) -> bytes:
    known = record.leader_epoch is not None and record.leader_epoch >= 0
    return f"Epoch:{record.leader_epoch if known else 'NOT_PRESENT'}".encode()


_COLUMNS: dict[str, Callable[[RecordText, Shown], bytes]] = {
    "print.timestamp": lambda _, record: _timestamp(record),
    "print.partition": lambda _, record: b"Partition:%d" % record.partition,
    "print.offset": lambda _, record: b"Offset:%d" % record.offset,
    "print.delivery": lambda _, record: b"Delivery:NOT_PRESENT",
    "print.epoch": lambda _, record: _epoch(record),
    "print.headers": lambda text, record: text.headers(record),
    "print.key": lambda text, record: text.text(record.key, "key.deserializer"),
    "print.value": lambda text, record: text.text(record.value, "value.deserializer"),
}
assert set(_COLUMNS) == set(FLAGS)


def record_text(properties: Mapping[str, str]) -> RecordText:
    """Return the formatter for these properties; raise UsageError for unknown ones."""
    known = (*FLAGS, *TEXTS, *DECODERS)
    for name in properties:
        if name not in known:
            raise UsageError(f"--property {name}: expected one of {', '.join(sorted(known))}")
    flags = {"print.value": "true", **properties}
    decoders = {}
    for kind in DECODERS:
        if kind in properties:
            decoder = DESERIALIZERS.get(properties[kind])
            if decoder is None:
                raise UsageError(
                    f"--property {kind}={properties[kind]}: "
                    f"expected one of {', '.join(sorted(DESERIALIZERS))}"
                )
            decoders[kind] = decoder
    separators = {name: properties.get(name, default).encode() for name, default in TEXTS.items()}
    return RecordText(
        printed=frozenset(name for name, value in flags.items() if value.strip().lower() == "true"),
        key_separator=separators["key.separator"],
        line_separator=separators["line.separator"],
        headers_separator=separators["headers.separator"],
        null_literal=separators["null.literal"],
        decoders=decoders,
    )
