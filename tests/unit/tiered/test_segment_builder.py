"""A granted segment is built of its leader's batches alone; its indexes are those of a log.

Method: batches are given in pieces of any size, as fetches return them; then each is damaged.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import Uuid
from ottla.log.indexes.offset_index import OffsetIndex
from ottla.log.indexes.time_index import TimeIndex
from ottla.records.batch import iter_headers, restamp
from ottla.records.errors import CorruptBatch
from ottla.tiered.segment_builder import INDEX_INTERVAL_BYTES, SegmentBuilder
from ottla.wire.messages.grant_segment_copies import GrantedEpoch, GrantedSegment
from tests.unit.spark.jobs.support import log_bytes

EPOCHS = ((1, 20), (3, 60))
LOG = log_bytes(20, 99, EPOCHS, value=b"v" * 400)
NEXT = log_bytes(100, 120, EPOCHS)


def granted(size_bytes: int = len(LOG)) -> GrantedSegment:
    return GrantedSegment(
        segment_id=Uuid(b"s" * 16),
        start_offset=20,
        end_offset=99,
        size_bytes=size_bytes,
        max_timestamp_ms=900,
        lease_ms=1,
        epochs=tuple(GrantedEpoch(epoch=epoch, start_offset=start) for epoch, start in EPOCHS),
        leader_epochs=b"",
        producer_snapshot=b"",
    )


def built(log: bytes, piece: int, builder: SegmentBuilder) -> bytes:
    """Give a log in pieces, each from where batches lack."""
    found = b""
    while not builder.is_complete:
        position = next(
            at for at, header in iter_headers(log) if header.last_offset >= builder.next_offset
        )
        some = log[position : position + piece]
        taken = builder.add(some)
        if not taken:
            raise CorruptBatch("no batch")
        found += some[:taken]
    return found


@given(st.integers(2_400, 60_000))
def test_the_bytes_are_those_of_the_segment(piece: int) -> None:
    builder = SegmentBuilder(granted())
    assert built(LOG + NEXT, piece, builder) == LOG
    offsets, times = builder.indexes()
    positions = {header.last_offset: at for at, header in iter_headers(LOG)}
    entries = OffsetIndex.load(offsets, 20, len(offsets)).entries()
    assert len(entries) >= len(LOG) // (2 * INDEX_INTERVAL_BYTES)
    assert all(positions[20 + offset] == at for offset, at in entries)
    assert TimeIndex.load(times, 20, len(times)).last.timestamp == 900


def restamped(at: int, **fields: int) -> bytes:
    data = bytearray(LOG)
    position = [position for position, _ in iter_headers(LOG)][at]
    header = dict(iter_headers(LOG))[position]
    values = {"base_offset": header.base_offset, "leader_epoch": header.partition_leader_epoch}
    restamp(data, position, **(values | fields))
    return bytes(data)


def flipped(at: int) -> bytes:
    return LOG[:at] + bytes([LOG[at] ^ 1]) + LOG[at + 1 :]


@pytest.mark.parametrize(
    "log",
    [
        restamped(1, leader_epoch=2),
        restamped(9, leader_epoch=1),
        restamped(2, base_offset=23),
        restamped(15, base_offset=96),
        flipped(200),
        flipped(len(LOG) - 1),
    ],
    ids=["epoch", "next epoch", "again", "behind", "crc", "last crc"],
)
def test_other_batches_are_refused(log: bytes) -> None:
    with pytest.raises(CorruptBatch):
        built(log, len(LOG), SegmentBuilder(granted()))


@pytest.mark.parametrize("difference", [-1, 1])
def test_another_size_is_refused(difference: int) -> None:
    builder = SegmentBuilder(granted(len(LOG) + difference))
    with pytest.raises(CorruptBatch):
        built(LOG + NEXT, len(LOG), builder)
    with pytest.raises(CorruptBatch):
        builder.indexes()
