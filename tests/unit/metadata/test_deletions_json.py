"""A deletion survives its way through a ZooKeeper node, and the largest one fits into it.

Method: hypothesis round trips; one golden text; texts that somebody spoiled.
"""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.api.k1003_describe_deletions import described
from ottla.controller.deletion.purge_reports import PurgeReports
from ottla.metadata.deletions import (
    BROKER_DOWN,
    STARTED,
    SUCCESSFUL,
    DeletionImage,
    DeletionState,
    Policy,
    Reason,
    Remote,
    ReplicaStatus,
)
from ottla.metadata.deletions_json import (
    PARTITIONS_MAX,
    decode_deletion,
    decode_ranges,
    decode_steps,
    encode_deletion,
    encode_ranges,
    encode_steps,
)
from ottla.metadata.znodes.topic import Assignment, encode_topic
from ottla.wire.codec import decode, encode
from ottla.wire.messages.describe_deletions import DescribeDeletionsResponse

from .images import ID, one_deletion

ENTRY = DeletionImage(
    topic_id=ID, name="events", policy=Policy.CLASSIC, asked_ms=1_700, leader_epoch=4
)
GOLDEN = (
    b'{"version":1,"topic":"events","topic_id":"AAECAwQFBgcICQoLDA0ODw","policy":"classic",'
    b'"asked_ms":1700,"halted":"none","remote":"none","finished_ms":-1,'
    b'"leader_epoch":4,"replicas":['
    b'{"broker":1,"state":"started","reason":"none","error":0,"partitions":"0-2,5"},'
    b'{"broker":2,"state":"ineligible","reason":"broker down","error":0,"partitions":"1"}]}'
)

STEPS = GOLDEN.replace(b'"partitions":"0-2,5"', b'"steps":"5,3"')


@given(one_deletion())
def test_what_is_written_is_read_again(deletion: DeletionImage) -> None:
    assert decode_deletion(encode_deletion(deletion)) == deletion


def test_text_is_for_people_too() -> None:
    entry = ENTRY.with_status(1, STARTED, [0, 1, 2, 5]).with_status(2, BROKER_DOWN, [1])
    assert encode_deletion(entry) == GOLDEN
    assert decode_deletion(GOLDEN) == entry
    assert decode_deletion(STEPS).partitions_at(1, STARTED) == {5, 8}


def test_what_an_abandoned_purge_has_left_is_written_where_it_is_known() -> None:
    entry = replace(ENTRY, remote=Remote.ABANDONED)
    assert b'"remote":"abandoned","finished_ms":-1,"leader_epoch":4,"replicas"' in (
        encode_deletion(entry)
    )
    known = replace(entry, segments_left=3, bytes_left=40)
    data = encode_deletion(known)
    assert b'"leader_epoch":4,"segments_left":3,"bytes_left":40,"replicas":[]}' in data
    assert decode_deletion(data) == known
    with pytest.raises(ValueError, match="not a deletion"):
        decode_deletion(data.replace(b":40,", b":true,"))


@given(st.frozensets(st.integers(0, 60)))
def test_numbers_are_read_as_they_were_written(numbers: frozenset[int]) -> None:
    assert decode_ranges(encode_ranges(numbers)) == tuple(sorted(numbers))
    assert decode_steps(encode_steps(numbers)) == tuple(sorted(numbers))


def test_steps_are_relative_to_the_one_before() -> None:
    assert encode_steps([5, 7, 8, 9, 20]) == "5,2+2,11"
    assert encode_steps([0, 1]) == "0+1"


@pytest.mark.parametrize(
    ("broker_count", "partition_count", "replication_factor"),
    [(100, 10_000, 5), (30, 10_000, 3), (6, 10_000, 2)],
)
def test_an_entry_fits_into_a_node_where_its_topic_does(
    broker_count: int, partition_count: int, replication_factor: int
) -> None:
    """However its replicas lie: no two of a broker's are neighbours but by chance."""
    dice, entry = Random(1), ENTRY
    assigned: dict[int, Assignment] = {}
    held: dict[int, list[int]] = {}
    for number in range(partition_count):
        replicas = tuple(dice.sample(range(broker_count), replication_factor))
        assigned[number] = Assignment(replicas)
        for broker_id in replicas:
            held.setdefault(broker_id, []).append(number)
    for broker_id, numbers in held.items():
        # How far they are in the middle of it.
        entry = entry.with_status(broker_id, STARTED, numbers)
        entry = entry.with_status(broker_id, SUCCESSFUL, numbers[::2])
    data = encode_deletion(entry)
    assert len(data) < len(encode_topic(assigned.items(), ID))
    assert decode_deletion(data) == entry


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
        STEPS.replace(b"5,3", b"5,0"),
        STEPS.replace(b"5,3", b"5,-3"),
        STEPS.replace(b"5,3", b"5+-3"),
        STEPS.replace(b"5,3", b"5,9999999999"),
        STEPS.replace(b"5,3", b"0+9999999999"),
        STEPS.replace(b'"5,3"', b"53"),
        GOLDEN.replace(b'"AAECAwQFBgcICQoLDA0ODw"', b'"short"'),
        GOLDEN.replace(b'"started"', b'"lost"'),
        GOLDEN.replace(b'"topic":"events"', b'"topic":7'),
        GOLDEN.replace(b'"version":1', b'"version":0'),
        b"[" * 100_000,
        GOLDEN.replace(b'"events"', b"[" * 100_000),
        GOLDEN.replace(b'"events"', b"[" * 900 + b"]" * 900),
        GOLDEN.replace(b"1700", b"1e400"),
        GOLDEN.replace(b"1700", b"Infinity"),
        GOLDEN.replace(b"1700", b"-Infinity"),
        GOLDEN.replace(b"1700", b"NaN"),
        GOLDEN.replace(b"1700", b"true"),
        GOLDEN.replace(b"1700", b'"1700"'),
        STEPS.replace(b'"5,3"', b'"-3"'),
    ],
)
def test_invalid_text_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_deletion(data)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"error":0', b'"error":32768'),
        (b'"broker":1', b'"broker":2147483648'),
        (b"1700", b"9223372036854775808"),
        (b'"finished_ms":-1', b'"finished_ms":9223372036854775808'),
        (b'"leader_epoch":4', b'"leader_epoch":2147483648'),
        (b'"events"', b'"\\ud800"'),
        (b'"events"', b'"%s"' % (b"e" * 32_768)),
    ],
)
def test_what_no_answer_could_hold_is_not_read(old: bytes, new: bytes) -> None:
    """It would spoil the answer to each question that it is in."""
    assert old in GOLDEN
    with pytest.raises(ValueError):
        decode_deletion(GOLDEN.replace(old, new))


def test_the_largest_numbers_that_an_answer_can_hold_are_read_and_travel() -> None:
    entry = replace(ENTRY, asked_ms=2**63 - 1, finished_ms=2**63 - 1, name="e" * 32_767)
    for error in (-(2**15), 2**15 - 1):
        refused = ReplicaStatus(DeletionState.INELIGIBLE, Reason.REFUSED, error)
        entry = entry.with_status(2**31 - 1, refused, [PARTITIONS_MAX])
        assert decode_deletion(encode_deletion(entry)) == entry
        shown = described(entry, PurgeReports())
        answer = DescribeDeletionsResponse(error_code=0, deletions=(shown,))
        assert decode(DescribeDeletionsResponse, encode(answer, 0), 0) == answer


def test_many_rows_cannot_fill_the_memory() -> None:
    row = b'{"broker":1,"state":"started","partitions":"0-600000"}'
    data = GOLDEN[: GOLDEN.index(b'"replicas":[')] + b'"replicas":[%s]}'
    assert decode_deletion(data % row).partitions_at(1, STARTED)
    with pytest.raises(ValueError):
        decode_deletion(data % b",".join([row, row.replace(b":1,", b":2,")]))
