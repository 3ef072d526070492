"""Reads of the remote tier return the log's own bytes, or an error that consumers retry.

Method: a real log in small segments is copied to the store's model, with and without faults, in
virtual time; chunks are tiny, so that batches cross them. What is read is compared with the files.
"""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH
from ottla.base.pending import Pending
from ottla.broker.fetch.remote_port import RemoteData
from ottla.broker.remote.reads import remote_transactions
from ottla.broker.remote.reads.reads import KEPT_MS, RemoteReadLimits
from ottla.log.config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import iter_headers
from ottla.records.compression import Codec
from ottla.records.record import read_records
from ottla.testing.sim.object_store import ObjectStoreFaults
from ottla.tiered.object_names import ObjectKind, object_name
from tests.drawn import examples
from tests.unit.broker.remote.support import Bench, tiered
from tests.unit.log.support import Environment, append, batch, offset_for_timestamp
from tests.unit.log.test_partition_log import marker

NOW_MS = 1_000_000
CONFIG = LogConfig(
    segment_bytes=1_000,
    segment_index_bytes=1 << 16,
    index_interval_bytes=150,
    timestamp_after_max_ms=2**62,
)
SMALL = RemoteReadLimits(chunk_bytes=256, chunk_cache_bytes_max=64 * 1024)


def written(batches: int = 40, size: int = 20, epochs: int = 3) -> PartitionLog:
    log = Environment().open(CONFIG)
    for number in range(batches):
        data = batch(1 + number % 3, size=size + 7 * (number % 5), timestamp=NOW_MS + number * 10)
        append(log, data, epoch=number * epochs // batches)
    log.advance_high_watermark(log.log_end_offset)
    return log


def bench_of(log: PartitionLog, faults: ObjectStoreFaults | None = None) -> Bench:
    bench = Bench(log, SMALL, faults)
    bench.tier()
    return bench


# -- Bytes -----------------------------------------------------------------------------------------


def test_each_offset_returns_the_log_s_bytes_at_all_sizes() -> None:
    log = written()
    bench = bench_of(log)
    sizes = sorted(
        {1, 60, 61, 90, 250, 256, 700, 1_000, 5_000} | {len(b.data) for b in bench.batches}
    )
    until = log.local_log_start_offset
    assert until > 60
    for offset, size, at_least_one in product(range(until), sizes, (True, False)):
        found = bench.read(offset, size, at_least_one=at_least_one)
        assert found.data == bench.expected(offset, size, at_least_one), (offset, size)
        assert (found.aborted, found.local_offset) == (None, -1)
    bench.run()
    bench.assert_idle()


def test_a_reader_that_reads_on_gets_the_whole_log() -> None:
    log = written()
    bench = bench_of(log)
    offset, data = 0, b""
    while offset < log.local_log_start_offset:
        found = bench.read(offset, 300).data
        data += found
        offset = [header.next_offset for _, header in iter_headers(found)][-1]
    assert bench.whole.startswith(data)
    assert bench.reader.chunks.read_ahead_count > 0


def test_nothing_is_returned_from_the_upper_bound_on() -> None:
    log = written()
    bench = bench_of(log)
    wanted = bench.wanted(0)._replace(upper_bound=4)
    found = bench.ask(wanted)
    assert isinstance(found, RemoteData)
    assert [header.last_offset < 4 for _, header in iter_headers(found.data)] == [True] * 2
    assert bench.ask(wanted._replace(offset=4)) == RemoteData(b"")


def test_offsets_that_compaction_removed_lead_to_the_next_segment_or_the_local_log() -> None:
    log = written()
    bench = bench_of(log)
    first, *_, last = bench.remote.known
    for segment in (first, last):
        # Its last batch is gone: an object that ends before the segment's last offset.
        own = [each for each in bench.batches if each.segment == segment.start_offset]
        name = object_name(segment, ObjectKind.LOG)
        cut = segment.size_bytes - len(own[-1].data)
        bench.put(name, bench.model.objects[name][:cut])
        shorter = replace(segment, size_bytes=cut)
        bench.remote.known[bench.remote.known.index(segment)] = shorter
    second = bench.remote.known[1]
    found = bench.read(first.end_offset)
    assert found.data == bench.expected(second.start_offset, 1 << 20, True)
    assert bench.read(last.end_offset) == RemoteData(b"", None, log.local_log_start_offset)


def test_records_of_another_history_are_not_returned() -> None:
    # The remote segment goes on in epoch 1; the log, after an unclean election, in epoch 2.
    log = Environment().open(CONFIG)
    for number in range(6):
        append(log, batch(1, size=20), epoch=0 if number < 3 else 1)
    log.roll(NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    bench = Bench(log, SMALL)
    bench.tier()
    ours = bench.batches[:3]
    log.epochs.truncate_from_end(3)
    log.epochs.assign(2, 3)
    assert bench.read(0).data == b"".join(each.data for each in ours)
    assert bench.ask(bench.wanted(3)) is Error.REPLICA_NOT_AVAILABLE


# -- Errors ----------------------------------------------------------------------------------------


def test_a_store_that_is_down_is_an_error_that_consumers_retry() -> None:
    bench = bench_of(written())
    bench.model.faults.is_down = True
    assert bench.ask(bench.wanted(5)) is Error.KAFKA_STORAGE_ERROR
    assert bench.reader.ranges.attempts == 4
    bench.model.faults.is_down = False
    assert bench.read(5).data
    bench.assert_idle()


def test_a_store_that_hangs_is_given_up_and_asked_again() -> None:
    bench = bench_of(written())
    bench.model.faults.hanging = 1.0
    began_ms = bench.clock.monotonic_ms()
    assert bench.ask(bench.wanted(5)) is Error.KAFKA_STORAGE_ERROR
    assert 40_000 <= bench.clock.monotonic_ms() - began_ms < 45_000
    bench.model.faults.hanging = 0.0
    assert bench.read(5).data
    bench.assert_idle()


@pytest.mark.parametrize("seed", range(5))
def test_a_bad_store_delays_reads_and_changes_none(seed: int) -> None:
    faults = ObjectStoreFaults(slow=0.1, refused=0.2, hanging=0.05, lost_answers=0.1)
    log = written()
    bench = Bench(log, SMALL, faults, seed=seed)
    bench.tier()
    succeeded = 0
    for offset in range(0, log.local_log_start_offset, 5):
        found = bench.ask(bench.wanted(offset, 500))
        if isinstance(found, Error):
            assert found is Error.KAFKA_STORAGE_ERROR
            continue
        succeeded += 1
        assert found.data == bench.expected(offset, 500, True)
    assert succeeded > 5
    bench.closed.complete(None)
    bench.run(60_000)
    bench.assert_idle()


def test_metadata_that_are_not_read_yet_are_waited_for() -> None:
    bench = bench_of(written())
    bench.is_ready = False
    assert bench.ask(bench.wanted(5)) is Error.REPLICA_NOT_AVAILABLE
    assert bench.reader.read(bench.wanted(5), bench.closed, lambda: None) is None
    bench.run(100)
    bench.is_ready = True
    assert bench.read(5).data


def test_a_segment_that_was_deleted_is_out_of_range_once_the_log_start_has_moved() -> None:
    log = written()
    bench = bench_of(log)
    gone = bench.remote.known.pop(0)
    for kind in (ObjectKind.LOG, ObjectKind.OFFSET_INDEX):
        bench.model.delete(object_name(gone, kind))
    assert bench.ask(bench.wanted(0)) is Error.REPLICA_NOT_AVAILABLE  # A follower's start lags.
    assert bench.reader.read(bench.wanted(0), bench.closed, lambda: None) is None
    log.delete_records(gone.end_offset + 1)
    bench.run_until(lambda: bench.reader.under_way == 0)
    assert (
        bench.reader.read(bench.wanted(0), bench.closed, lambda: None) is Error.OFFSET_OUT_OF_RANGE
    )


def test_a_segment_that_vanished_is_looked_for_again() -> None:
    bench = bench_of(written())
    gone = bench.remote.known[0]
    again = replace(gone, segment_id=bench.remote.known[1].segment_id)
    for kind in (ObjectKind.LOG, ObjectKind.OFFSET_INDEX):
        bench.put(object_name(again, kind), bench.model.objects[object_name(gone, kind)])
        bench.model.delete(object_name(gone, kind))
    assert bench.reader.read(bench.wanted(0), bench.closed, lambda: None) is None
    bench.run(60)
    bench.remote.known[0] = again
    assert bench.read(0).data == bench.expected(0, 1 << 20, True)


@pytest.mark.parametrize("kind", ["log", "index", "size"])
def test_a_damaged_segment_is_never_returned(kind: str) -> None:
    bench = bench_of(written())
    segment = bench.remote.known[0]
    name = object_name(segment, ObjectKind("log" if kind == "size" else kind))
    data = bytearray(bench.model.objects[name])
    if kind == "log":
        data[100] ^= 1
    elif kind == "index":
        data[4:8] = (segment.size_bytes - len(bench.batches[0].data)).to_bytes(4, "big")
        data[:4] = bytes(4)
    else:
        del data[-40:]
    bench.put(name, bytes(data))
    own = [each for each in bench.batches if each.segment == segment.start_offset]
    for each in own:
        found = bench.ask(bench.wanted(each.base))
        if isinstance(found, Error):
            assert found is Error.CORRUPT_MESSAGE
        else:
            assert found.data == bench.expected(each.base, 1 << 20, True)
    assert bench.reader.errors > 0
    assert bench.ask(bench.wanted(bench.remote.known[1].start_offset)) not in set(Error)


def test_a_damaged_answer_is_read_again() -> None:
    bench = bench_of(written())
    name = object_name(bench.remote.known[0], ObjectKind.LOG)
    sound = bench.model.objects[name]
    bench.put(name, sound[:100] + bytes(20) + sound[120:])
    assert bench.reader.read(bench.wanted(0), bench.closed, lambda: None) is None
    bench.run_until(lambda: (name, 0) in bench.reader.chunks.kept)
    bench.put(name, sound)
    assert bench.read(0).data == bench.expected(0, 1 << 20, True)


# -- Limits, promises and cancellation ------------------------------------------------------------


def test_a_closed_connection_frees_everything() -> None:
    for ms in range(0, 120, 7):
        bench = bench_of(written())
        bench.model.faults.refused = 0.5
        assert bench.reader.read(bench.wanted(0), bench.closed, lambda: None) is None
        bench.run(ms)
        bench.closed.complete(None)
        bench.assert_idle()
        assert not bench.reader.is_reading(bench.closed)
    assert bench.reader.read(bench.wanted(0), bench.closed, lambda: None) is None
    bench.assert_idle()  # A request that is handled after its connection has closed.


def test_a_shutdown_frees_everything() -> None:
    bench = bench_of(written())
    assert bench.reader.read(bench.wanted(0), bench.closed, lambda: None) is None
    bench.run(10)
    bench.reader.close()
    bench.assert_idle()
    assert bench.closed._listeners == []


def test_a_read_is_kept_until_it_is_asked_for_and_not_for_ever() -> None:
    bench = bench_of(written())
    assert bench.reader.read(bench.wanted(0), bench.closed, lambda: None) is None
    bench.run(1_000)
    attempts = bench.reader.ranges.attempts
    assert bench.read(0).data == bench.expected(0, 1 << 20, True)
    assert bench.reader.ranges.attempts == attempts
    assert bench.reader.read(bench.wanted(40), bench.closed, lambda: None) is None
    bench.run(KEPT_MS + 1_000)
    bench.assert_idle()


def test_another_offset_of_the_partition_cancels_the_read() -> None:
    bench = bench_of(written())
    assert bench.reader.read(bench.wanted(0), bench.closed, lambda: None) is None
    assert bench.read(40).data == bench.expected(40, 1 << 20, True)
    bench.assert_idle()


def test_reads_fail_with_the_tier() -> None:
    log = written()
    bench = bench_of(log)
    ended: list[None] = []
    assert bench.reader.read(bench.wanted(0), bench.closed, lambda: ended.append(None)) is None
    bench.reader.fail(log.topic_id, 1, Error.UNKNOWN_TOPIC_OR_PARTITION)
    assert not ended
    bench.reader.fail(log.topic_id, 0, Error.NOT_LEADER_OR_FOLLOWER)
    assert len(ended) == 1
    found = bench.reader.read(bench.wanted(0), bench.closed, lambda: None)
    assert found is Error.NOT_LEADER_OR_FOLLOWER
    bench.assert_idle()


def test_reads_beyond_the_limits_wait_for_another_attempt() -> None:
    limits = RemoteReadLimits(reads_max=2, bytes_max=1_000, chunk_bytes=256)
    bench = Bench(written(), limits)
    bench.tier()
    owners: list[Pending[None]] = [Pending() for _ in range(4)]
    for owner in owners[:3]:
        assert bench.reader.read(bench.wanted(0, 300), owner, lambda: None) is None
    assert (bench.reader.under_way, bench.reader.refused) == (2, 1)
    bench.run_until(lambda: bench.reader.under_way == 0)
    assert bench.reader.read(bench.wanted(40, 300), owners[2], lambda: None) is None
    assert (bench.reader.under_way, bench.reader.refused) == (1, 1)
    assert bench.reader.read(bench.wanted(40, 300), owners[3], lambda: None) is None
    assert (bench.reader.under_way, bench.reader.refused) == (1, 2)  # The bytes of three are kept.
    for owner in owners:
        owner.complete(None)
    bench.assert_idle()


def test_reads_beyond_the_quota_return_nothing_until_it_is_paid() -> None:
    bench = Bench(
        written(), RemoteReadLimits(chunk_bytes=256, bytes_per_second=1_000, window_seconds=1)
    )
    bench.tier()
    assert bench.read(0, 5_000).data  # Charged with what came, not with all that it might be.
    size = bench.reader.bytes_read
    assert 500 < size < 1_000
    assert bench.read(0, 5_000).data
    assert bench.reader.read(bench.wanted(0), bench.closed, lambda: None) is None
    assert (bench.reader.under_way, bench.reader.throttled, bench.reader.errors) == (0, 1, 0)
    assert not bench.reader.is_reading(bench.closed)
    bench.run(2 * size - 1_000)
    assert bench.read(0, 5_000).data
    other: Pending[None] = Pending()
    bench.run(2_000)
    assert bench.reader.read(bench.wanted(40, 5_000), other, lambda: None) is None
    assert bench.reader.quota.wait_ms() > 0
    other.complete(None)  # Nothing was returned.
    assert bench.reader.quota.wait_ms() == 0
    times = bench.reader.metrics.fetch_throttle_time
    assert (times.count, bench.reader.throttled) == (1, 1)
    bench.reader.change_limits(replace(bench.reader.limits, bytes_per_second=1 << 40))
    for _ in range(5):
        bench.run()
        assert bench.read(0, 5_000).data
    assert bench.reader.throttled == 1


def test_other_limits_apply_to_what_begins_from_then_on() -> None:
    bench = Bench(written(), RemoteReadLimits(reads_max=9, calls_max=1, chunk_bytes=256))
    bench.tier()
    owners: list[Pending[None]] = [Pending() for _ in range(3)]
    for number, owner in enumerate(owners):
        assert bench.reader.read(bench.wanted(25 * number), owner, lambda: None) is None
    assert (bench.reader.ranges.calls, bench.reader.ranges.queued) == (1, 2)
    bench.reader.change_limits(replace(bench.reader.limits, calls_max=3, reads_max=3))
    assert (bench.reader.ranges.calls, bench.reader.ranges.queued) == (3, 0)
    assert bench.reader.read(bench.wanted(0), bench.closed, lambda: None) is None
    assert bench.reader.refused == 1
    bench.run_until(lambda: bench.reader.under_way == 0)
    assert bench.reader.chunks.kept.bytes > 2_000
    limits = replace(
        bench.reader.limits,
        chunk_cache_bytes_max=1_000,
        index_cache_bytes_max=0,
        fetch_max_wait_ms=7,
        list_offsets_timeout_ms=8,
    )
    bench.reader.change_limits(limits)
    assert 0 < bench.reader.chunks.kept.bytes <= 1_000
    assert bench.reader.indexes.kept.bytes == 0
    assert (bench.reader.max_wait_ms, bench.reader.list_offsets_timeout_ms) == (7, 8)


def test_without_a_cache_everything_is_read_all_the_same() -> None:
    bench = Bench(
        written(),
        RemoteReadLimits(chunk_bytes=256, chunk_cache_bytes_max=0, index_cache_bytes_max=0),
    )
    bench.tier()
    for offset in range(0, 40, 3):
        assert bench.read(offset, 700).data == bench.expected(offset, 700, True)
    assert (bench.reader.chunks.kept.bytes, bench.reader.indexes.kept.bytes) == (0, 0)


def test_an_oversized_batch_is_returned_where_it_is_alone() -> None:
    log = Environment().open(CONFIG)
    for _ in range(4):
        append(log, batch(1, size=900))
    log.advance_high_watermark(log.log_end_offset)
    bench = Bench(log, RemoteReadLimits(bytes_max=1_000, read_bytes_max=100, chunk_bytes=256))
    bench.tier()
    assert bench.read(0, 10).data == bench.batches[0].data
    other: Pending[None] = Pending()
    assert bench.reader.read(bench.wanted(1, 10), other, lambda: None) is None
    bench.run_until(lambda: bench.reader.under_way == 0)
    assert bench.reader.reserved_bytes > 900
    assert bench.read(2, 10).data == b""  # Refused while the other one is kept.
    other.complete(None)
    assert bench.read(2, 10).data == bench.batches[2].data
    bench.assert_idle()


def test_caches_stay_within_their_limits() -> None:
    log = written(200)
    limits = RemoteReadLimits(
        chunk_bytes=256, chunk_cache_bytes_max=4_096, index_cache_bytes_max=2_048
    )
    bench = Bench(log, limits)
    bench.tier()
    for offset in range(log.local_log_start_offset):
        assert bench.read(offset, 400).data == bench.expected(offset, 400, True)
        assert 0 < bench.reader.chunks.kept.bytes <= 4_096
        assert 0 < bench.reader.indexes.kept.bytes <= 2_048


def test_readers_of_one_chunk_share_one_call() -> None:
    bench = bench_of(written())
    owners: list[Pending[None]] = [Pending() for _ in range(5)]
    for owner in owners:
        assert bench.reader.read(bench.wanted(0, 100), owner, lambda: None) is None
    bench.run_until(lambda: bench.reader.under_way == 0)
    assert bench.reader.ranges.attempts == 2  # The index and the chunk.
    owners[0].complete(None)
    found = bench.reader.read(bench.wanted(0, 100), owners[1], lambda: None)
    assert isinstance(found, RemoteData)
    assert found.data


def test_a_reader_that_leaves_does_not_cancel_the_call_of_another() -> None:
    bench = bench_of(written())
    other: Pending[None] = Pending()
    assert bench.reader.read(bench.wanted(0), other, lambda: None) is None
    assert bench.reader.read(bench.wanted(0), bench.closed, lambda: None) is None
    other.complete(None)
    assert bench.read(0).data
    assert bench.reader.ranges.failures == 0


# -- Transactions ----------------------------------------------------------------------------------


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["write", "write", "abort", "commit"])),
        min_size=10,
        max_size=60,
    ),
    remote=st.integers(1, 8),
)
@settings(max_examples=examples(40), deadline=None)
def test_read_committed_shows_what_the_whole_log_would(
    steps: list[tuple[int, str]], remote: int
) -> None:
    log = transactions(steps)
    if len(log.segments) < 2:
        return
    expected = committed_values(log, {})
    bench = Bench(log, SMALL)
    bench.tier(min(remote, len(log.segments) - 1))
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    until = min(log.local_log_start_offset, log.last_stable_offset)
    while offset < until:
        part = bench.read(offset, 200, committed=True)
        assert part.aborted is not None
        found.update(visible(part.data, list(part.aborted)))
        offset = [header.next_offset for _, header in iter_headers(part.data)][-1]
    assert found == {at: value for at, value in expected.items() if at < offset}


def transactions(steps: list[tuple[int, str]]) -> PartitionLog:
    log = Environment().open(CONFIG)
    sequences = dict.fromkeys(range(4), 0)
    open_now: set[int] = set()
    for number, (producer, step) in enumerate(steps):
        if step == "write" and producer == 0:
            append(log, batch([b"plain %d" % number], size=0))
        elif step == "write":
            append(
                log,
                batch(
                    [b"value %d" % number],
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=sequences[producer],
                    transactional=True,
                ),
            )
            sequences[producer] += 1
            open_now.add(producer)
        elif producer in open_now:
            append(log, marker(producer, committed=step == "commit"), origin="coordinator")
            open_now.remove(producer)
        log.advance_high_watermark(log.log_end_offset)
        if number % 4 == 3:
            log.roll(NOW_MS)
    for producer in sorted(open_now):
        append(log, marker(producer), origin="coordinator")
    log.advance_high_watermark(log.log_end_offset)
    return log


def committed_values(log: PartitionLog, _: dict[int, bytes]) -> dict[int, bytes]:
    end = log.log_end_offset
    aborted = [
        (entry.producer_id, entry.first_offset) for entry in log.aborted_transactions(0, end)
    ]
    data = b"".join(
        segment.log.file().read_at(0, segment.size) for segment in log.segments if segment.size
    )
    return visible(data, aborted)


def visible(data: bytes, aborted: list[tuple[int, int]]) -> dict[int, bytes]:
    """Return what a read_committed consumer shows of a response."""
    filter_ = AbortedTransactions(aborted)
    found: dict[int, bytes] = {}
    for at, header in iter_headers(data):
        if filter_.drops(data, at, header) or header.is_control:
            continue
        for record in read_records(data, at, header):
            assert record.value is not None
            found[record.offset] = bytes(record.value)
    return found


@pytest.mark.parametrize("remote", [1, 2, 3, 4])
def test_an_abort_marker_in_a_later_segment_or_the_local_log_is_found(remote: int) -> None:
    plain = [(0, "write")] * 3
    log = transactions([(1, "write"), *plain, *plain, *plain, *plain, (1, "abort"), *plain, *plain])
    assert [entry.first_offset for entry in log.aborted_transactions(0, 99)] == [0]
    bench = Bench(log, SMALL)
    bench.tier(remote)
    assert bench.read(0, committed=True).aborted == ((1, 0),)
    assert bench.read(1, 10, committed=True).aborted == ()  # No record of a transaction in it.


def test_without_the_transaction_index_no_aborted_record_is_returned() -> None:
    plain = [(0, "write")] * 3
    bench = Bench(transactions([(1, "write"), *plain, (1, "abort"), *plain, *plain]), SMALL)
    bench.tier(2)
    (lost,) = [name for name in bench.model.objects if name.endswith(".txnindex")]
    content = bench.model.objects[lost]
    bench.model.delete(lost)
    for _ in range(2):
        assert bench.ask(bench.wanted(0, committed=True)) is Error.KAFKA_STORAGE_ERROR
    assert bench.read(0).data
    bench.put(lost, content)
    assert bench.read(0, committed=True).aborted == ((1, 0),)


def test_a_segment_that_kafka_copied_may_have_no_transaction_index() -> None:
    bench = Bench(transactions([(1, "write"), (1, "commit")] * 5), SMALL)
    bench.tier(2)
    first = bench.remote.known[0]
    bench.remote.known[0] = replace(first, txn_index_empty=False, tiered_epoch=NO_EPOCH)
    assert bench.read(0, committed=True).aborted == ()


def test_an_abort_marker_that_leaves_the_local_log_during_the_search_is_found() -> None:
    plain = [(0, "write")] * 3
    log = transactions([(1, "write"), *plain, *plain, *plain, *plain, (1, "abort"), *plain, *plain])
    bench = Bench(log, SMALL)
    bench.tier(3)
    ended: list[None] = []
    wanted = bench.wanted(0, committed=True)
    assert bench.reader.read(wanted, bench.closed, lambda: ended.append(None)) is None
    index = f".{ObjectKind.TXN_INDEX.value}"
    bench.run_until(lambda: any(name.endswith(index) for name, _, _ in bench.reader.ranges._reads))
    tiered(log, len(log.segments) - 1)  # Local retention.
    bench.run_until(lambda: bool(ended))
    found = bench.reader.read(wanted, bench.closed, lambda: None)
    assert isinstance(found, RemoteData)
    assert found.aborted == ((1, 0),)


def test_records_whose_abort_marker_expires_during_the_search_are_not_returned() -> None:
    plain = [(0, "write")] * 3
    log = transactions([(1, "write"), *plain, *plain, *plain, *plain, (1, "abort"), *plain, *plain])
    bench = Bench(log, SMALL)
    bench.tier()
    ended: list[None] = []
    wanted = bench.wanted(0, committed=True)
    assert bench.reader.read(wanted, bench.closed, lambda: ended.append(None)) is None
    index = f".{ObjectKind.TXN_INDEX.value}"
    bench.run_until(lambda: any(name.endswith(index) for name, _, _ in bench.reader.ranges._reads))
    log.advance_log_start(log.local_log_start_offset)
    bench.remote.known.clear()
    bench.run_until(lambda: bool(ended))
    assert bench.reader.read(wanted, bench.closed, lambda: None) is Error.OFFSET_OUT_OF_RANGE


def test_a_search_that_ends_with_its_first_segment_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A variant of the product: the simulator, which finds out others, runs no transactions."""
    plain = [(0, "write")] * 3
    log = transactions([(1, "write"), *plain, *plain, *plain, *plain, (1, "abort"), *plain, *plain])
    select = remote_transactions.select
    monkeypatch.setattr(remote_transactions, "select", lambda *given: (select(*given)[0], True))
    bench = Bench(log, SMALL)
    bench.tier(3)
    assert bench.read(0, committed=True).aborted != ((1, 0),)


# -- Timestamps ------------------------------------------------------------------------------------


@given(
    times=st.lists(st.integers(0, 60), min_size=12, max_size=60),
    remote=st.integers(1, 6),
    start=st.integers(0, 10),
    codec=st.sampled_from([Codec.NONE, Codec.GZIP]),
)
@settings(max_examples=examples(40), deadline=None)
def test_a_timestamp_is_found_as_in_the_whole_log(
    times: list[int], remote: int, start: int, codec: Codec
) -> None:
    log = Environment().open(CONFIG)
    for first in range(0, len(times), 3):
        stamps = times[first : first + 3]
        append(log, batch(len(stamps), size=60, timestamps=stamps, codec=codec))
        if first % 9 == 6:
            log.roll(NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    log.delete_records(min(start, log.log_end_offset))
    wanted = range(-1, 62)
    expected = [offset_for_timestamp(log, timestamp) for timestamp in wanted]
    if len(log.segments) < 2:
        return
    bench = Bench(log, SMALL)
    tiered = bench.tier(min(remote, len(log.segments) - 1))
    for timestamp, whole in zip(wanted, expected, strict=True):
        found = bench.find_timestamp(timestamp)
        assert found == (whole if whole and whole.offset < tiered.local_log_start_offset else None)
    bench.assert_idle()


def test_a_timestamp_lookup_ends_at_its_deadline() -> None:
    bench = bench_of(written())
    bench.model.faults.hanging = 1.0
    found = bench.find_timestamp(NOW_MS, timeout_ms=700)
    assert isinstance(found, ApiError)
    assert found.error is Error.REQUEST_TIMED_OUT
    bench.assert_idle()
    bench.is_ready = False
    found = bench.find_timestamp(NOW_MS, timeout_ms=700)
    assert isinstance(found, ApiError)
    assert found.error is Error.REQUEST_TIMED_OUT
    bench.assert_idle()


def test_a_timestamp_lookup_fails_with_the_store() -> None:
    bench = bench_of(written())
    bench.model.faults.is_down = True
    found = bench.find_timestamp(NOW_MS)
    assert isinstance(found, ApiError)
    assert found.error is Error.KAFKA_STORAGE_ERROR
    bench.assert_idle()


def test_timestamp_lookups_take_turns_and_end_with_their_connection() -> None:
    log = written()
    bench = bench_of(log)
    promises = [
        bench.reader.find_timestamp(
            log, NOW_MS + number, work=bench.work, deadline_ms=10_000, closed=bench.closed
        )
        for number in range(30)
    ]
    bench.run(5)
    assert bench.reader._lookup_slots.free == 0
    bench.closed.complete(None)
    bench.assert_idle()
    assert bench.reader._lookup_slots.free == bench.reader.limits.calls_max
    assert not any(promise.done for promise in promises)
