"""What a coordinator appends to its offsets partition is bounded before it is in memory.

Method: broker 1 with real logs; records that are counted as they are made.
"""

from collections.abc import Iterator

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import OFFSETS_TOPIC
from ottla.broker.groups.group_journal import GroupJournal
from ottla.coordinator.records import RecordPair
from ottla.records.compression import Codec
from tests.unit.broker.group_harness import GroupHarness

KEY = bytes(1_000)


class Records:
    """As many as are wanted, of 1,000 bytes each. `made`: so far."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.made = 0

    def __iter__(self) -> Iterator[RecordPair]:
        for _ in range(self._count):
            self.made += 1
            yield KEY, None


def begun(codec: Codec = Codec.NONE) -> tuple[GroupHarness, GroupJournal]:
    harness = GroupHarness()
    harness.add_offsets_topic()
    return harness, GroupJournal(harness.broker.replicas, 0, clock=harness.clock, codec=codec)


def log_end(harness: GroupHarness) -> int:
    end: int = harness.broker.replicas.partition(OFFSETS_TOPIC, 0).leader_log().log_end_offset
    return end


def test_no_more_is_made_than_the_log_allows_in_a_batch() -> None:
    harness, journal = begun()
    records = Records(1_000_000)
    with pytest.raises(ApiError) as caught:
        journal.append(records)
    assert caught.value.error is Error.MESSAGE_TOO_LARGE
    assert records.made == 1_048_588 // len(KEY) + 1
    assert log_end(harness) == 0


def test_what_compresses_into_a_batch_is_appended() -> None:
    harness, journal = begun(Codec.GZIP)
    written = journal.append(Records(10_000))
    assert (written.first_offset, written.committed.value, log_end(harness)) == (0, 0, 10_000)


def test_what_decompresses_to_more_than_a_log_allows_is_refused() -> None:
    harness, journal = begun(Codec.GZIP)
    records = Records(1_000_000)
    with pytest.raises(ApiError) as caught:
        journal.append(records)
    assert caught.value.error is Error.MESSAGE_TOO_LARGE
    assert records.made == (32 << 20) // len(KEY) + 1
    assert log_end(harness) == 0
