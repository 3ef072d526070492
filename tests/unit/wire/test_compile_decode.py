"""Decoding malformed bytes: only WireError, with work bounded by the bytes.

Method: hand-made lies about lengths; then random bytes, cut and mutated messages, for every
request and response at every version. Memory is watched with tracemalloc: a length that claims
gigabytes must not be believed before the bytes are there.
"""

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.codec import decode, encode
from ottla.wire.errors import WireError
from ottla.wire.primitives import encode_uvarint
from ottla.wire.registry import APIS, NAMES, REQUESTS, RESPONSES
from ottla.wire.schema import (
    BYTES,
    INT8,
    INT32,
    RECORDS,
    STRING,
    UUID,
    Records,
    array,
    field,
    message,
    struct_of,
    versions_of,
)

from .strategies import many, messages

PEAK_BYTES = 200_000
"""More than any message here takes; far less than the lengths claim."""


@struct_of
class Item:
    name: str = field(STRING)
    number: int = field(INT8, default=0)


@message(versions="0-1", flexible="1+")
class Example:
    name: str | None = field(STRING, nullable="0+")
    blob: bytes = field(BYTES)
    items: tuple[Item, ...] = field(array(Item))
    numbers: tuple[int, ...] = field(array(INT32))
    records: Records | None = field(RECORDS, nullable="0+")
    topic_id: Uuid = field(UUID, versions="1+", tag=0, default=NO_UUID)
    host: str = field(STRING, versions="1+", tag=5, default="")


GOOD = Example(name="n", blob=b"", items=(Item(name="a"),), numbers=(1, 2), records=b"r")
HEAD = "026e 01 02 02 61 00 00 03 00000001 00000002 02 72"
"""GOOD in version 1, up to its tagged fields."""


def test_the_good_one() -> None:
    assert encode(GOOD, 1) == bytes.fromhex(HEAD + "00")
    assert decode(Example, bytes.fromhex(HEAD + "00"), 1) == GOOD


@pytest.mark.parametrize(
    "tags",
    [
        "01 07 00",  # an unknown one, empty
        "01 07 03 aabbcc",
        "02 07 01 aa 85b3a0800d 00",  # two unknown ones, the second a long tag number
        "01 07 8300 aabbcc",  # a size written in more bytes than it needs
    ],
)
def test_unknown_tags_are_skipped(tags: str) -> None:
    assert decode(Example, bytes.fromhex(HEAD + tags), 1) == GOOD


def test_unknown_tags_in_structs_without_known_ones() -> None:
    encoded = HEAD.replace("02 61 00 00", "02 61 00 01 09 02 ffff") + "00"
    assert decode(Example, bytes.fromhex(encoded), 1) == GOOD


def test_known_tags_in_any_order_and_the_last_one_wins() -> None:
    ids = ["".join(f"{byte:02x}" for byte in range(start, start + 16)) for start in (0, 16)]
    tags = f"04 05 02 02 68 00 10 {ids[0]} 09 01 00 00 10 {ids[1]}"
    decoded = decode(Example, bytes.fromhex(HEAD + tags), 1)
    assert (decoded.host, decoded.topic_id) == ("h", bytes(range(16, 32)))


@pytest.mark.parametrize(
    ("what", "encoded"),
    [
        ("nothing", ""),
        ("trailing garbage", HEAD + "00 00"),
        ("name longer than all", "ff7f"),
        ("name not UTF-8", "02 ff" + HEAD[4:] + "00"),
        ("name is a lone surrogate", "04 eda080" + HEAD[4:] + "00"),
        ("null blob", HEAD.replace("01 02", "00 02", 1) + "00"),
        ("null items", "026e 01 00"),
        ("null item name", HEAD.replace("02 61", "00 61") + "00"),
        ("4 billion items", "026e 01 ffffffff0f"),
        ("4 billion numbers", "026e 01 01 ffffffff0f"),
        ("varint of six bytes", "026e 01 808080808001"),
        ("4 billion tags", HEAD + "ffffffff0f"),
        ("unknown tag too long", HEAD + "01 07 05 aa"),
        ("known tag too long", HEAD + "01 05 05 02 68"),
        ("known tag longer than its value", HEAD + "01 05 03 02 68 00"),
        ("known tag shorter than its value", HEAD + "01 05 01 02 68"),
    ],
)
def test_lies_are_refused(what: str, encoded: str) -> None:
    with pytest.raises(WireError):
        decode(Example, bytes.fromhex(encoded), 1)


@pytest.mark.parametrize(
    ("what", "encoded"),
    [
        ("two billion items", "0000 00000000 7fffffff"),
        ("negative items", "0000 00000000 ffffffff"),
        ("negative blob", "0000 ffffffff"),
        ("blob longer than all", "0000 7fffffff"),
        ("two billion numbers", "0000 00000000 00000000 7fffffff"),
        ("records longer than all", "0000 00000000 00000000 00000000 00000001"),
    ],
)
def test_lies_in_fixed_lengths_are_refused(what: str, encoded: str) -> None:
    with pytest.raises(WireError):
        decode(Example, bytes.fromhex(encoded), 0)


def test_every_cut_of_a_message_is_refused() -> None:
    for version in (0, 1):
        encoded = encode(GOOD, version)
        for length in range(len(encoded)):
            with pytest.raises(WireError):
                decode(Example, encoded[:length], version)


def attack(key: int, payloads: list[bytes]) -> int:
    """Decode each payload as each version; return how many were refused."""
    refused = 0
    for cls in (REQUESTS[key], RESPONSES[key]):
        for version in versions_of(cls):
            for payload in payloads:
                try:
                    decode(cls, payload, version)
                except WireError:
                    refused += 1
    return refused


HUGE = [
    b"\xff" * 64,
    b"\x7f" * 64,
    b"\x00" * 64,
    b"\x7f\xff\xff\xff" * 16,
    b"\xff\xff\xff\xff\x0f" * 16,
    b"\xfe\xff\xff\xff\x07" * 16,
    b"\x80" * 64,
    b"\x01" * 64,
]


@pytest.mark.parametrize("key", APIS, ids=NAMES.get)
def test_hostile_lengths_take_no_memory(key: int) -> None:
    attack(key, HUGE)  # Compiles the decoders, which would be counted else.
    tracemalloc.start()
    try:
        assert attack(key, HUGE) > 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < PEAK_BYTES


def test_honest_lengths_take_memory_in_proportion() -> None:
    """The smallest items there are: three bytes on the wire become one object and its string."""
    count = 30_000
    encoded = bytes.fromhex("026e 01") + encode_uvarint(count + 1) + b"\x01\x05\x00" * count
    tracemalloc.start()
    try:
        with pytest.raises(WireError):  # The rest of the message is missing.
            decode(Example, encoded, 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50 * len(encoded)


@pytest.mark.parametrize("key", APIS, ids=NAMES.get)
def test_random_bytes(key: int) -> None:
    dice = random.Random(key)
    attack(key, [dice.randbytes(dice.randrange(200)) for _ in range(10)])
    # Small numbers are believable lengths, so they get deeper.
    attack(key, [bytes(dice.choices(range(4), k=dice.randrange(200))) for _ in range(10)])


@pytest.mark.parametrize("key", APIS, ids=NAMES.get)
def test_cut_and_mutated_messages(key: int) -> None:
    @many
    @given(st.data())
    def check(data: st.DataObject) -> None:
        cls = data.draw(st.sampled_from((REQUESTS[key], RESPONSES[key])))
        version = data.draw(st.sampled_from(versions_of(cls)))
        encoded = bytearray(encode(data.draw(messages(cls, version)), version)[:5000])
        dice = data.draw(st.randoms(use_true_random=False))
        for _ in range(20):
            broken = encoded[: dice.randrange(len(encoded) + 1)]
            if broken:
                broken[dice.randrange(len(broken))] ^= 1 << dice.randrange(8)
            try:
                decode(cls, broken, version)
            except WireError:
                continue

    check()


@pytest.mark.parametrize("key", APIS, ids=NAMES.get)
def test_accepted_bytes_round_trip(key: int) -> None:
    """Whatever decodes can be encoded, to bytes that decode to the same message."""
    dice = random.Random(key)
    for cls in (REQUESTS[key], RESPONSES[key]):
        for version in versions_of(cls):
            for _ in range(5):
                payload = bytes(dice.choices(range(3), k=dice.randrange(60)))
                try:
                    decoded: object = decode(cls, payload, version)
                except WireError:
                    continue
                assert decode(cls, encode(decoded, version), version) == decoded
