"""A task must yield each offset of its split exactly once, and no hole may pass unseen.

Method: crafted batches for what is measured; whole tasks against a fake broker, compared with the
rows that went in, under faults; hypothesis over sizes and limits.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import Error
from ottla.client.cluster import ClientConfig
from ottla.records.batch import restamp
from ottla.records.builder import encode_batch
from ottla.records.errors import CorruptBatch
from ottla.spark.errors import DataLossError
from ottla.spark.options import Edge, ReadOptions, Subscribe
from ottla.spark.reading import measure, read_split
from ottla.spark.splits import Split
from ottla.wire.messages.fetch import FetchRequest
from tests.drawn import examples
from tests.unit.spark.fake_broker import DROP, ID, TOPIC, FakeBroker

COLUMNS = ("topic", "offset", "value", "partition")


def batch(offset: int, count: int, epoch: int = 0) -> bytes:
    data = bytearray(encode_batch([(None, b"v%d" % (offset + i), (), 5) for i in range(count)]))
    restamp(data, 0, base_offset=offset, leader_epoch=epoch)
    return bytes(data)


def log(*batches: bytes) -> memoryview:
    return memoryview(b"".join(batches))


def test_whole_stretches() -> None:
    records = log(batch(0, 5), batch(5, 5), batch(10, 5))
    whole = measure(records, 0, 15, epoch=-1, contiguous=True)
    assert (whole.next_offset, whole.size, whole.gaps) == (15, len(records), ())
    inner = measure(records, 2, 7, epoch=-1, contiguous=True)
    assert (inner.next_offset, inner.size) == (7, len(batch(0, 5)) * 2)
    assert measure(records[:-1], 2, 15, epoch=-1, contiguous=True).next_offset == 10
    # A batch that ends before the requested offset: brokers may send it.
    assert measure(records, 7, 15, epoch=-1, contiguous=True).gaps == ()


def test_gaps() -> None:
    records = log(batch(2, 3), batch(8, 2))
    found = measure(records, 0, 12, epoch=-1, contiguous=True)
    assert found.gaps == ((0, 2), (5, 8))
    assert found.next_offset == 10
    assert measure(records, 3, 7, epoch=-1, contiguous=True).gaps == ((5, 7),)
    assert measure(records, 0, 1, epoch=-1, contiguous=True).gaps == ((0, 1),)
    assert measure(records, 0, 1, epoch=-1, contiguous=True).next_offset == 1
    assert measure(records, 0, 12, epoch=-1, contiguous=False).gaps == ()


def test_offsets_and_epochs_must_not_go_back() -> None:
    with pytest.raises(CorruptBatch, match="leader epoch 1, the one before it 2"):
        measure(log(batch(0, 2, 2), batch(2, 2, 1)), 0, 4, epoch=-1, contiguous=False)
    with pytest.raises(CorruptBatch, match="leader epoch 1, the one before it 3"):
        measure(log(batch(0, 2, 1)), 0, 4, epoch=3, contiguous=False)
    with pytest.raises(CorruptBatch, match="offset 1 comes after 1"):
        measure(log(batch(0, 2), batch(1, 2)), 0, 4, epoch=-1, contiguous=False)
    with pytest.raises(CorruptBatch, match="fetched for offset 2, and end at 1"):
        measure(log(batch(0, 2)), 2, 4, epoch=-1, contiguous=False)
    before = measure(log(batch(0, 2)), 2, 4, epoch=-1, contiguous=True, may_precede=True)
    assert (before.next_offset, before.size, before.gaps) == (2, len(batch(0, 2)), ())


def options(cluster: ClientConfig, **changes: Any) -> ReadOptions:
    values: dict[str, Any] = {
        "cluster": cluster,
        "subscription": Subscribe((TOPIC,)),
        "starting": Edge.EARLIEST,
        "ending": Edge.LATEST,
        "latest_where_none_since": False,
        "include_headers": False,
        "min_partitions": None,
        "max_records_per_partition": None,
        "fail_on_data_loss": True,
        "poll_timeout_ms": 5000,
        "offset_retries": 0,
        "offset_retry_ms": 1,
        "read_committed": False,
        "verify_crc": True,
        "fetch_bytes": 300,
    }
    return ReadOptions(**(values | changes))


def rows(split: Split, chosen: ReadOptions) -> list[tuple[int, bytes]]:
    found = []
    for each in read_split(split, chosen, COLUMNS):
        assert each.schema.names == list(COLUMNS)
        for row in each.to_pylist():
            assert (row["topic"], row["partition"]) == (TOPIC, 0)
            found.append((row["offset"], row["value"]))
    return found


def expected(start: int, end: int) -> list[tuple[int, bytes]]:
    return [(offset, b"v%d" % offset) for offset in range(start, end)]


@settings(max_examples=examples(25), deadline=None)
@given(st.data(), st.lists(st.integers(1, 20), min_size=1, max_size=12))
def test_each_offset_once(data: st.DataObject, counts: list[int]) -> None:
    total = sum(counts)
    start = data.draw(st.integers(0, total - 1))
    end = data.draw(st.integers(start + 1, total))
    faults = data.draw(st.lists(st.sampled_from([0, DROP, Error.NOT_LEADER_OR_FOLLOWER])))
    with FakeBroker() as broker:
        for count in counts:
            broker.logs[0].append(batch(broker.logs[0].end, count))
        broker.faults[FetchRequest].extend(faults)
        split = Split(TOPIC, ID, 0, start, end, True)
        chosen = options(broker.options(), fetch_bytes=data.draw(st.integers(1, 2000)))
        assert rows(split, chosen) == expected(start, end)


def test_deleted_records() -> None:
    with FakeBroker() as broker:
        for offset in range(0, 30, 10):
            broker.logs[0].append(batch(offset, 10))
        broker.logs[0].start = 15
        split = Split(TOPIC, ID, 0, 2, 30, True)
        with pytest.raises(DataLossError, match="t-0: offsets 2 to 14 are no longer available"):
            rows(split, options(broker.options()))
        lenient = options(broker.options(), fail_on_data_loss=False)
        assert rows(split, lenient) == expected(15, 30)
        assert rows(Split(TOPIC, ID, 0, 2, 9, True), lenient) == []


def test_a_log_that_ends_too_early() -> None:
    with FakeBroker() as broker:
        broker.logs[0].append(batch(0, 10))
        split = Split(TOPIC, ID, 0, 20, 30, True)
        with pytest.raises(DataLossError, match="offsets 20 to 29 are lost; the log ends at 10"):
            rows(split, options(broker.options()))
        assert rows(split, options(broker.options(), fail_on_data_loss=False)) == []


def test_a_hole_in_the_log() -> None:
    with FakeBroker() as broker:
        broker.logs[0].append(batch(0, 10))
        broker.logs[0].end = 15
        broker.logs[0].append(batch(15, 5))
        split = Split(TOPIC, ID, 0, 0, 20, True)
        with pytest.raises(DataLossError, match="missing among offsets 10 to 14"):
            rows(split, options(broker.options()))
        both = expected(0, 10) + expected(15, 20)
        assert rows(split, options(broker.options(), fail_on_data_loss=False)) == both
        compacted = Split(TOPIC, ID, 0, 0, 20, False)
        assert rows(compacted, options(broker.options())) == both


def test_a_re_created_topic() -> None:
    with FakeBroker() as broker:
        broker.logs[0].append(batch(0, 10))
        broker.exists = False
        split = Split(TOPIC, ID, 0, 0, 10, True)
        cluster = broker.options(retry_s=0.001)
        with pytest.raises(DataLossError, match="deleted and re-created"):
            rows(split, options(cluster))
        assert rows(split, options(cluster, fail_on_data_loss=False)) == []


def test_damage_is_seen_unless_not_looked_for() -> None:
    damaged = bytearray(batch(0, 3))
    damaged[-2] ^= 1  # In the last value.
    with FakeBroker() as broker:
        broker.logs[0].append(bytes(damaged))
        split = Split(TOPIC, ID, 0, 0, 3, True)
        with pytest.raises(CorruptBatch, match="CRC"):
            rows(split, options(broker.options()))
        assert len(rows(split, options(broker.options(), verify_crc=False))) == 3


@pytest.mark.parametrize(
    ("size_bytes", "is_open", "fetched"),
    [
        (0, False, 8 << 20),
        (10, True, 8 << 20),
        (10, False, 64 << 10),
        (100_000, False, 200_000),
        (1 << 30, False, 8 << 20),
    ],
)
def test_what_is_behind_a_small_split_is_not_fetched(
    size_bytes: int, is_open: bool, fetched: int
) -> None:
    """A stream's batches are small where it is limited, however much there is to read."""
    with FakeBroker() as broker:
        broker.logs[0].append(batch(0, 5))
        split = Split(TOPIC, ID, 0, 0, 5, True, is_open, size_bytes=size_bytes)
        assert len(list(read_split(split, options(broker.options(), fetch_bytes=8 << 20), COLUMNS)))
        asked = [each for each in broker.received if isinstance(each, FetchRequest)]
        assert asked[0].topics[0].partitions[0].partition_max_bytes == fetched
