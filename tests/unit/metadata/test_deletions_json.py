"""A deletion survives its way through a ZooKeeper node, and the largest one fits into it.

Method: hypothesis round trips; one golden text; texts that somebody spoiled.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.deletions import (
    BROKER_DOWN,
    STARTED,
    SUCCESSFUL,
    DeletionImage,
    Policy,
)
from ottla.metadata.deletions_json import (
    decode_deletion,
    decode_ranges,
    encode_deletion,
    encode_ranges,
)

from .images import ID, one_deletion

ENTRY = DeletionImage(topic_id=ID, name="events", policy=Policy.CLASSIC, asked_ms=1_700)
GOLDEN = (
    b'{"version":1,"topic":"events","topic_id":"AAECAwQFBgcICQoLDA0ODw","policy":"classic",'
    b'"asked_ms":1700,"halted":"none","remote":"none","finished_ms":-1,"replicas":['
    b'{"broker":1,"state":"started","reason":"none","error":0,"partitions":"0-2,5"},'
    b'{"broker":2,"state":"ineligible","reason":"broker down","error":0,"partitions":"1"}]}'
)


@given(one_deletion())
def test_what_is_written_is_read_again(deletion: DeletionImage) -> None:
    assert decode_deletion(encode_deletion(deletion)) == deletion


def test_text_is_for_people_too() -> None:
    entry = ENTRY.with_standing(1, STARTED, [0, 1, 2, 5]).with_standing(2, BROKER_DOWN, [1])
    assert encode_deletion(entry) == GOLDEN
    assert decode_deletion(GOLDEN) == entry


@given(st.frozensets(st.integers(0, 60)))
def test_ranges_are_read_as_they_were_written(numbers: frozenset[int]) -> None:
    assert decode_ranges(encode_ranges(numbers)) == tuple(sorted(numbers))


def test_the_largest_topic_fits_into_one_node() -> None:
    """10,000 partitions, three replicas each, striped over 30 brokers, none next to another."""
    entry = ENTRY
    for broker_id in range(30):
        held = [n for n in range(10_000) if (n + broker_id) % 10 == 0]
        entry = entry.with_standing(broker_id, SUCCESSFUL, held)
    assert len(encode_deletion(entry)) < 500_000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        GOLDEN.replace(b"classic", b"sudden"),
        GOLDEN.replace(b"0-2,5", b"2-0"),
        GOLDEN.replace(b"0-2,5", b"0-2,2"),
        GOLDEN.replace(b"0-2,5", b"0-9999999999"),
        GOLDEN.replace(b"0-2,5", b"x"),
        GOLDEN.replace(b'"AAECAwQFBgcICQoLDA0ODw"', b'"short"'),
        GOLDEN.replace(b'"started"', b'"lost"'),
        GOLDEN.replace(b'"topic":"events"', b'"topic":7'),
        GOLDEN.replace(b'"version":1', b'"version":0'),
    ],
)
def test_spoiled_text_says_so(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_deletion(data)
