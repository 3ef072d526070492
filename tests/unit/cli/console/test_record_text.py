"""Records are printed as kafka-console-consumer.sh prints them."""

import struct
import uuid

import pytest

from ottla.cli.console.record_text import Shown, record_text
from ottla.cli.errors import UsageError

PACKAGE = "org.apache.kafka.common.serialization."


def shown(**facts: object) -> Shown:
    usual: dict[str, object] = {
        "partition": 3,
        "offset": 42,
        "timestamp": ("CreateTime", 7),
        "leader_epoch": 5,
        "key": b"k",
        "value": b"v",
        "headers": (("h", b"1"), ("g", None)),
    }
    return Shown(**(usual | facts))  # type: ignore[arg-type]


ALL = {
    f"print.{name}": "true"
    for name in ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
}


@pytest.mark.parametrize(
    ("properties", "record", "line"),
    [
        ({}, shown(), b"v\n"),
        ({}, shown(value=None), b"null\n"),
        ({"print.key": "true"}, shown(), b"k\tv\n"),
        ({"print.key": "true", "key.separator": "="}, shown(key=None), b"null=v\n"),
        ({"print.key": "true", "print.value": "false"}, shown(), b"k\n"),
        ({"print.value": "false"}, shown(), b""),
        ({"null.literal": "-", "line.separator": "|"}, shown(value=None), b"-|"),
        ({"print.headers": "true"}, shown(headers=()), b"NO_HEADERS\tv\n"),
        ({"print.headers": "true", "headers.separator": ";"}, shown(), b"h:1;g:null\tv\n"),
        ({"print.timestamp": "true"}, shown(timestamp=None), b"NO_TIMESTAMP\tv\n"),
        (
            {"print.timestamp": "true"},
            shown(timestamp=("LogAppendTime", 9)),
            b"LogAppendTime:9\tv\n",
        ),
        ({"print.epoch": "true"}, shown(leader_epoch=None), b"Epoch:NOT_PRESENT\tv\n"),
        (
            ALL,
            shown(),
            b"CreateTime:7\tPartition:3\tOffset:42\tDelivery:NOT_PRESENT\tEpoch:5\t"
            b"h:1,g:null\tk\tv\n",
        ),
        ({}, shown(value=b"\xff\x00"), b"\xff\x00\n"),
    ],
)
def test_lines(properties: dict[str, str], record: Shown, line: bytes) -> None:
    assert record_text(properties).line(record) == line


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("StringDeserializer", b"s", b"s"),
        ("IntegerDeserializer", struct.pack(">i", -5), b"-5"),
        ("LongDeserializer", struct.pack(">q", 1 << 40), b"1099511627776"),
        ("ShortDeserializer", struct.pack(">h", 7), b"7"),
        ("DoubleDeserializer", struct.pack(">d", 1.5), b"1.5"),
        ("FloatDeserializer", struct.pack(">f", 0.5), b"0.5"),
        ("UUIDDeserializer", str(uuid.UUID(int=1)).encode(), str(uuid.UUID(int=1)).encode()),
    ],
)
def test_deserializers(name: str, data: bytes, text: bytes) -> None:
    printer = record_text({"value.deserializer": PACKAGE + name})
    assert printer.line(shown(value=data)) == text + b"\n"


def test_undecodable_values() -> None:
    printer = record_text({"value.deserializer": PACKAGE + "IntegerDeserializer"})
    with pytest.raises(ValueError, match=r"value.deserializer: 1 bytes: expected 4"):
        printer.line(shown())


def test_unknown_properties_and_classes() -> None:
    with pytest.raises(UsageError, match=r"--property print.keys: expected one of"):
        record_text({"print.keys": "true"})
    with pytest.raises(UsageError, match=r"--property key.deserializer=a.B: expected one of"):
        record_text({"key.deserializer": "a.B"})
