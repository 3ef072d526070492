"""Every message at every version must be, byte for byte, what independent codecs write.

Method: Hypothesis draws messages from our declarations; each is encoded by us and by kio 0.6 and
kafka-python where they know it, and decoded back. Versions that kio 0.6 no longer has (those of
ZooKeeper mode, and those that KIP-896 retired) are compared with bytes that kio 0.5.0 wrote,
kept in `golden_kio_0_5.json`. What an oracle lacks is listed with its reason, so that losing
coverage fails here. Ottla's own messages have their golden bytes in `test_own_messages.py`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.codec import decode, encode
from ottla.wire.messages import (
    consumer_protocol,
    control_records,
    default_principal_data,
)
from ottla.wire.registry import APIS, NAMES, REQUESTS, RESPONSES
from ottla.wire.schema import versions_of

from . import oracles
from .strategies import filled, many, messages

CLASSES = [types[key] for key in APIS for types in (REQUESTS, RESPONSES)]
GOLDEN = json.loads((Path(__file__).parent / "golden_kio_0_5.json").read_text())

ALL = range(100)
RETIRED = "retired by KIP-896; kio 0.6 follows Kafka 4"
ZOOKEEPER = "of ZooKeeper mode, which Kafka 4 lacks"
OWN = "Ottla's own"
OWN_KEYS = tuple(range(1001, 1013))
KIO_LACKS: dict[int, tuple[range, str]] = {
    0: (range(3), RETIRED),
    1: (range(4), RETIRED),
    2: (range(1), RETIRED),
    4: (ALL, ZOOKEEPER),
    5: (ALL, ZOOKEEPER),
    6: (ALL, ZOOKEEPER),
    7: (ALL, ZOOKEEPER),
    8: (range(2), RETIRED),
    9: (range(1), RETIRED),
    19: (range(2), RETIRED),
    20: (range(1), RETIRED),
    23: (range(2), RETIRED),
    27: (range(1), RETIRED),
    29: (range(1), RETIRED),
    30: (range(1), RETIRED),
    31: (range(1), RETIRED),
    32: (range(1), RETIRED),
    34: (range(1), RETIRED),
    35: (range(1), RETIRED),
    38: (range(1), RETIRED),
    39: (range(1), RETIRED),
    40: (range(1), RETIRED),
    41: (range(1), RETIRED),
    56: (range(2), "retired with ZooKeeper mode"),
    1001: (ALL, OWN),
    1002: (ALL, OWN),
    1003: (ALL, OWN),
    1004: (ALL, OWN),
    1005: (ALL, OWN),
    1006: (ALL, OWN),
    1007: (ALL, OWN),
    1008: (ALL, OWN),
    1009: (ALL, OWN),
    1010: (ALL, OWN),
    1011: (ALL, OWN),
    1012: (ALL, OWN),
}
"""Versions that kio 0.6 does not have, by key."""

NO_TOKENS = "kafka-python has no delegation tokens"
NOT_FOR_CLIENTS = "between nodes; kafka-python is a client"
NOT_YET = "newer than what kafka-python speaks"
KAFKA_PYTHON_LACKS: dict[int, str] = (
    dict.fromkeys((4, 5, 6, 7), ZOOKEEPER)
    | dict.fromkeys(range(38, 42), NO_TOKENS)
    | dict.fromkeys((52, 53, 54, 56, 58, 59, 62, 63, 64, 67, 70, 73), NOT_FOR_CLIENTS)
    | dict.fromkeys((80, 81, 82), NOT_FOR_CLIENTS)
    | dict.fromkeys((68, 69, 71, 72, *range(76, 80), *range(83, 93)), NOT_YET)
    | dict.fromkeys(OWN_KEYS, OWN)
)
"""Keys that kafka-python does not have; of the others it has every version."""


DATA = [
    consumer_protocol.ConsumerProtocolSubscription,
    consumer_protocol.ConsumerProtocolAssignment,
    control_records.LeaderChangeMessage,
    control_records.SnapshotHeaderRecord,
    control_records.SnapshotFooterRecord,
    control_records.KRaftVersionRecord,
    control_records.VotersRecord,
    default_principal_data.DefaultPrincipalData,
]
"""What travels inside records and other messages; kio has all of it."""


def name_of(value: object) -> str | None:
    """Name test cases after the class."""
    return value.__name__ if isinstance(value, type) else None


def kio_knows(cls: type, version: int) -> bool:
    return oracles.kio_class(cls.__name__, version) is not None


def kafka_python_knows(cls: type, version: int) -> bool:
    theirs = oracles.kafka_python_class(cls.__name__)
    return theirs is not None and version <= theirs.max_version


@pytest.mark.parametrize("key", APIS, ids=NAMES.get)
def test_the_oracles_know_what_they_knew(key: int) -> None:
    missing, _ = KIO_LACKS.get(key, (range(0), ""))
    for cls in (REQUESTS[key], RESPONSES[key]):
        for version in versions_of(cls):
            assert kio_knows(cls, version) == (version not in missing), (cls, version)
            lacks = key in KAFKA_PYTHON_LACKS
            assert kafka_python_knows(cls, version) != lacks, (cls, version)


def test_every_version_that_kio_lacks_has_golden_bytes() -> None:
    kafkas = [types[key] for key in APIS if key not in OWN_KEYS for types in (REQUESTS, RESPONSES)]
    wanted = {(c.__name__, v) for c in kafkas for v in versions_of(c) if not kio_knows(c, v)}
    assert {(each["name"], each["version"]) for each in GOLDEN} == wanted


@pytest.mark.parametrize("each", GOLDEN, ids=lambda each: f"{each['name']}-{each['version']}")
def test_golden_bytes(each: dict[str, Any]) -> None:
    cls = next(cls for cls in CLASSES if cls.__name__ == each["name"])
    message = filled(cls, each["version"])
    assert encode(message, each["version"]).hex() == each["hex"]
    assert decode(cls, bytes.fromhex(each["hex"]), each["version"]) == message


@pytest.mark.parametrize("cls", CLASSES, ids=name_of)
def test_messages_are_what_the_oracles_write(cls: type) -> None:
    @many
    @given(st.data())
    def check(data: st.DataObject) -> None:
        for version in versions_of(cls):
            drawn = data.draw(messages(cls, version))
            assert decode(cls, encode(drawn, version), version) == drawn
            message = data.draw(messages(cls, version, own=False))
            encoded = encode(message, version)
            assert decode(cls, encoded, version) == message
            if kio_knows(cls, version):
                assert oracles.kio_encode(message, version) == encoded
            if kafka_python_knows(cls, version):
                assert oracles.kafka_python_encode(message, version) == encoded

    check()


@pytest.mark.parametrize("cls", DATA, ids=name_of)
def test_data_is_what_kio_writes(cls: type) -> None:
    @many
    @given(st.data())
    def check(data: st.DataObject) -> None:
        for version in versions_of(cls):
            message = data.draw(messages(cls, version))
            encoded = encode(message, version)
            assert decode(cls, encoded, version) == message
            assert oracles.kio_encode(message, version) == encoded

    check()


@pytest.mark.parametrize("cls", CLASSES, ids=name_of)
def test_filled_messages_are_what_the_oracles_write(cls: type) -> None:
    """Each field said once with a value of its own: swapped fields cannot cancel out."""
    for version in versions_of(cls):
        message = filled(cls, version)
        encoded = encode(message, version)
        assert decode(cls, encoded, version) == message
        if kio_knows(cls, version):
            assert oracles.kio_encode(message, version) == encoded
        if kafka_python_knows(cls, version):
            assert oracles.kafka_python_encode(message, version) == encoded
