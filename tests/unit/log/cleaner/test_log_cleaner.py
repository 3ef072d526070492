"""The cleaner chooses, swaps and gives up as it should; readers and lookups never notice.

Method: a broker's storage on a disk in memory; the heavy work runs inline, or result by result
while the test does something to the log in between.
"""

import errno
from dataclasses import replace

import pytest

from ottla.base.ids import Uuid
from ottla.log.cleaner.cleaner_job import CleanedSegment, CleanerDied
from ottla.log.cleaner.log_cleaner import CleanerSettings
from ottla.log.dirs.checkpoints import read_offsets
from ottla.log.epoch_cache import EpochEntry
from ottla.log.indexes.time_index import NO_TIMESTAMP
from ottla.log.partition_log import PartitionLog
from ottla.log.remote_prefix import RemotePrefix
from ottla.records.control import build_marker
from tests.unit.log.cleaner_storage import COMPACT, DELETE_RETENTION_MS, SETTINGS, Storage
from tests.unit.log.support import batch, max_timestamp_offset, offset_for_timestamp, produced

CHECKPOINT = "/d1/cleaner-offset-checkpoint"


@pytest.fixture
def storage() -> Storage:
    return Storage()


def fill(storage: Storage, count: int = 30, keys: int = 3, **fields: object) -> None:
    for number in range(count):
        storage.append(batch([b"%d" % number], key=b"k%d" % (number % keys), **fields))  # type: ignore[arg-type]


def test_the_newest_record_of_each_key_stays_at_its_offset(storage: Storage) -> None:
    fill(storage)
    storage.roll()
    before = storage.log.size_bytes
    storage.clean()
    assert storage.rows() == [(27, b"k0", b"27"), (28, b"k1", b"28"), (29, b"k2", b"29")]
    assert storage.log.size_bytes < before / 4
    assert storage.log.size_bytes == sum(each.size for each in storage.log.segments)
    assert storage.log.clean_offset == 30
    assert read_offsets(storage.disk, CHECKPOINT) == {("t", 0): 30}


def test_only_sealed_durable_and_replicated_segments_are_cleaned(storage: Storage) -> None:
    fill(storage)
    active = storage.log.segments.active.base_offset
    storage.cleaner.start_cleanings()
    assert {offset for offset, _, _ in storage.rows()} >= set(range(active, 30))
    assert storage.log.clean_offset == active


def test_nothing_above_the_last_stable_offset_is_cleaned(storage: Storage) -> None:
    fill(storage, 6)
    storage.append(batch(1, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True))
    fill(storage)
    storage.clean()
    assert storage.log.last_stable_offset == 6
    assert [offset for offset, _, _ in storage.rows()][-31:] == list(range(6, 37))


@pytest.mark.parametrize("timestamp", [1_000_000, NO_TIMESTAMP])
def test_min_compaction_lag_keeps_what_is_young(timestamp: int) -> None:
    """A record without a timestamp is as old as its segment's file."""
    storage = Storage(replace(COMPACT, min_compaction_lag_ms=1_000))
    fill(storage, timestamp=timestamp)
    storage.clean()
    assert len(storage.rows()) == 30
    storage.env.pass_ms(1_000)
    assert len(storage.rows()) == 3


def test_max_compaction_lag_cleans_what_is_old() -> None:
    storage = Storage(replace(COMPACT, min_cleanable_ratio=1.0, max_compaction_lag_ms=5_000))
    assert storage.config.segment_ms == 5_000
    fill(storage)
    storage.clean()
    assert len(storage.rows()) == 30
    storage.env.pass_ms(5_001)
    assert len(storage.rows()) == 3


def test_the_dirty_ratio_is_awaited() -> None:
    storage = Storage(replace(COMPACT, min_cleanable_ratio=0.6))
    fill(storage, 30, keys=30)
    storage.clean()
    fill(storage, 10, keys=5)
    storage.clean()
    assert len(storage.rows()) == 40
    fill(storage, 40, keys=5)
    storage.clean()
    assert len(storage.rows()) == 30


def test_a_disabled_cleaner_cleans_nothing() -> None:
    storage = Storage(settings=CleanerSettings(enabled=False))
    fill(storage)
    storage.clean()
    assert len(storage.rows()) == 30


def test_a_tombstone_goes_after_delete_retention_and_not_before(storage: Storage) -> None:
    fill(storage, 12)
    storage.append(batch([None], key=b"k0"))  # type: ignore[list-item]
    storage.clean()
    assert (12, b"k0", None) in storage.rows()
    storage.env.pass_ms(DELETE_RETENTION_MS - 1)
    fill(storage, 1, keys=1, timestamp=1)
    storage.append(batch([None], key=b"k0"))  # type: ignore[list-item]
    storage.clean()
    assert [row for row in storage.rows() if row[1] == b"k0"] == [(14, b"k0", None)]
    storage.env.pass_ms(DELETE_RETENTION_MS)
    storage.append(batch([b"x"], key=b"other"))
    storage.clean()
    assert not [row for row in storage.rows() if row[1] == b"k0"]


@pytest.mark.parametrize(
    ("retention_ms", "timestamp"), [(2**63 - 1, 1_000), (DELETE_RETENTION_MS, -(2**63))]
)
def test_a_tombstone_whose_horizon_no_batch_can_hold_stays(
    retention_ms: int, timestamp: int
) -> None:
    storage = Storage(replace(COMPACT, delete_retention_ms=retention_ms))
    fill(storage, 3, keys=1)
    values = [b"old", None]
    tombstone = batch(values, key=b"k0", timestamps=[0, timestamp], base_offset=3)  # type: ignore[arg-type]
    storage.log.append_as_follower(tombstone, now_ms=1)
    for _ in range(3):
        storage.append(batch([b"x"], key=b"other"))
        storage.clean()
        storage.env.pass_ms(DELETE_RETENTION_MS + 1)
    assert storage.log.clean_offset == storage.log.log_end_offset
    assert [row for row in storage.rows() if row[1] == b"k0"] == [(4, b"k0", None)]


def test_a_log_that_lacks_earlier_records_is_not_cleaned_before_it_has_them(
    storage: Storage,
) -> None:
    """A follower whose remote segments were given up has yet to copy these from its leader: they
    may have a value whose tombstone would be gone by then."""
    epochs = (EpochEntry(0, 0),)
    prefix = RemotePrefix(log_start_offset=0, epochs=epochs)
    storage.log.truncate_fully_and_start_at(10, prefix)
    storage.env.pass_ms(1)
    assert not storage.log.is_incomplete
    storage.append(batch([None], key=b"gone"))  # type: ignore[list-item]
    for _ in range(3):
        fill(storage)
        storage.clean()
        storage.env.pass_ms(DELETE_RETENTION_MS + 1)
    log = storage.log
    earlier = log.retention.earlier_segments()
    assert earlier is not None
    for number in range(10):
        value = batch([b"old"], key=b"gone", base_offset=number, leader_epoch=0)
        earlier.write(bytes(value))
    log.retention.prepend_segments(earlier.finish())
    assert log.retention.lower_local_start(log.truncation_count)
    log.retention.local_start_stored()
    for _ in range(3):
        fill(storage)
        storage.clean()
        storage.env.pass_ms(DELETE_RETENTION_MS + 1)
    assert {key for _, key, _ in storage.rows()} == {b"k0", b"k1", b"k2"}
    assert log.clean_offset == log.log_end_offset


def test_lookups_work_in_a_log_with_holes(storage: Storage) -> None:
    for number in range(40):
        key = b"k%d" % (number % 4 if number % 5 else number)
        storage.append(batch([b"v" * 50], key=key, timestamp=1_000_000 + number))
    storage.clean()
    kept = storage.records()
    for again in (False, True):
        if again:
            storage.stop()
            storage.start()
        for number in range(40):
            match = offset_for_timestamp(storage.log, 1_000_000 + number)
            expected = [each for each in kept if each.timestamp >= 1_000_000 + number]
            assert (match.offset if match else None) == (expected[0].offset if expected else None)
            found = storage.log.read(number, max_bytes=1 << 20, upper_bound=40, at_least_one=True)
            assert found.size > 0
            found.slices[0].release()
        largest = max_timestamp_offset(storage.log)
        assert largest is not None
        assert largest.offset == 39


def test_a_reader_of_an_old_segment_goes_on_reading(storage: Storage) -> None:
    fill(storage)
    found = storage.log.read(0, max_bytes=1 << 20, upper_bound=30)
    before = found.slices[0].read()
    storage.clean()
    storage.env.pass_ms(10_000)
    assert found.slices[0].read() == before
    found.slices[0].release()
    assert not [name for name in storage.names() if name.endswith(".deleted")]


@pytest.mark.parametrize("what", ["truncated", "deleted", "reconfigured", "stopped", "failed"])
def test_what_happens_meanwhile_ends_the_cleaning(storage: Storage, what: str) -> None:
    fill(storage, 60, keys=60)
    fill(storage, 30)
    storage.runner.hold = True
    storage.clean()
    storage.runner.step()  # One group of segments is swapped, others are to come.
    log = storage.log
    before = len(log.segments)
    if what == "truncated":
        log.truncate_to(80)
    elif what == "deleted":
        storage.dirs.delete("t", 0)
    elif what == "reconfigured":
        storage.reconfigure(compacts=False, deletes=True)
    elif what == "failed":
        log.fail()
    else:
        storage.cleaner.stop()
    while storage.runner.busy:
        storage.runner.step()
    assert storage.runner.cancelled == 1
    assert log.clean_offset == 0
    if what in ("reconfigured", "stopped"):
        assert len(log.segments) == before
    assert not [name for name in storage.disk.listdir(log.directory) if name.endswith(".tmp")]


def test_segments_that_expire_meanwhile_are_deleted_after_the_cleaning() -> None:
    """Else a log whose segments expire faster than it is cleaned would never be cleaned."""
    storage = Storage(replace(COMPACT, deletes=True))
    log = storage.log
    fill(storage, 60, keys=60)
    log.delete_records(20)
    storage.runner.hold = True
    storage.clean()
    (job,) = storage.runner.jobs
    first = job.groups[0][0].base_offset
    assert 0 < first <= 20
    assert log.delete_expired_segments(20) > 0  # Those that had expired before are not read.
    assert log.segments.first.base_offset == first
    storage.runner.step()
    log.delete_records(40)
    assert log.delete_expired_segments(40) == 0
    storage.cleaner.start_cleanings()
    while storage.runner.busy:
        storage.runner.step()
    assert (storage.runner.cancelled, log.clean_offset) == (0, 60)
    assert log.delete_expired_segments(40) > 0


def test_a_deletion_aborts_the_cleaning_before_another_log_takes_the_name(storage: Storage) -> None:
    """Its temporary files were written into the directory of the topic that took the name."""
    fill(storage, 60, keys=60)
    fill(storage, 30)
    storage.runner.hold = True
    storage.clean()
    storage.runner.step()
    storage.dirs.delete("t", 0)
    assert (storage.runner.cancelled, storage.runner.busy) == (1, False)
    log = storage.dirs.get_or_create("t", Uuid(bytes([7] * 16)), 0, COMPACT)
    assert not [name for name in storage.disk.listdir(log.directory) if "cleaned" in name]
    assert not [name for name in storage.disk.listdir(log.directory) if name.endswith(".tmp")]


def test_a_full_disk_is_tried_again_and_damage_is_not(storage: Storage) -> None:
    fill(storage)
    storage.roll()
    storage.disk.fail("append", errno.ENOSPC, path=".tmp")
    storage.cleaner.start_cleanings()
    assert len(storage.rows()) == 30
    assert not [name for name in storage.names() if name.endswith(".tmp")]
    storage.env.pass_ms(2 * SETTINGS.backoff_ms)
    assert len(storage.rows()) == 3

    fill(storage)
    storage.roll()
    victim = storage.log.segments[1]
    storage.disk.corrupt(victim.path(".log"), 80, b"\0\1\2\3")
    jobs = len(storage.runner.jobs)
    storage.cleaner.start_cleanings()
    storage.cleaner.start_cleanings()
    assert len(storage.runner.jobs) == jobs + 1
    assert not storage.log.failed


def with_another_log(storage: Storage) -> PartitionLog:
    """Fill the storage's log, and another one that is less dirty."""
    fill(storage)
    other = storage.dirs.get_or_create("other", Uuid(bytes([7] * 16)), 0, COMPACT)
    for value in (b"1", b"2"):
        other.append_as_leader(batch([value], key=b"k"), leader_epoch=0, now_ms=1)
        other.advance_high_watermark(other.log_end_offset)
    storage.roll()
    other.roll(1)
    return other


def test_a_cleaning_that_was_killed_is_repeated_after_a_pause_in_which_others_are_cleaned(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel ends the process that takes the most memory: the dirtiest log's, each time."""
    other = with_another_log(storage)
    storage.runner.results[storage.log.directory] = CleanerDied("killed")
    storage.cleaner.start_cleanings()
    assert (storage.log.clean_offset, other.clean_offset) == (0, 0)
    storage.cleaner.start_cleanings()
    assert (storage.log.clean_offset, other.clean_offset) == (0, 2)
    assert "Cleaning t-0 failed: killed; retrying later" in caplog.text
    storage.runner.results.clear()
    storage.cleaner.start_cleanings()
    assert storage.log.clean_offset == 0
    storage.env.pass_ms(2 * SETTINGS.backoff_ms)
    assert storage.log.clean_offset == 30


def test_the_pause_doubles_with_each_failure_until_a_cleaning_succeeds(storage: Storage) -> None:
    jobs = storage.runner.jobs
    storage.cleaner.start()
    for _ in range(2):
        fill(storage)
        storage.roll()
        storage.runner.results[storage.log.directory] = CleanerDied("killed")
        tried: list[int] = []
        for check in range(1, 33):
            count = len(jobs)
            storage.env.pass_ms(SETTINGS.backoff_ms)
            tried += [check] * (len(jobs) - count)
        assert tried == [1, 3, 7, 15, 31]
        storage.runner.results.clear()
        for _ in range(32):
            storage.env.pass_ms(SETTINGS.backoff_ms)
        assert storage.log.clean_offset == storage.log.log_end_offset


def test_a_fault_of_the_cleaner_makes_a_log_uncleanable(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    other = with_another_log(storage)
    storage.runner.results[storage.log.directory] = OverflowError("too large")
    for _ in range(3):
        storage.cleaner.start_cleanings()
    assert len(storage.runner.jobs) == 2
    assert (storage.log.clean_offset, other.clean_offset) == (0, 2)
    assert not storage.log.failed
    assert caplog.text.count("Cleaning t-0 failed: too large; the partition is uncleanable") == 1
    assert "OverflowError: too large" in caplog.text
    storage.runner.results.clear()
    storage.reconfigure(min_cleanable_ratio=0.1)
    storage.cleaner.start_cleanings()
    assert storage.log.clean_offset == 30


def test_a_bug_on_the_loop_keeps_no_thread(storage: Storage) -> None:
    other = with_another_log(storage)
    storage.runner.results[storage.log.directory] = CleanedSegment(7, 0, 0, 0, 0, ())
    with pytest.raises(IndexError):
        storage.cleaner.start_cleanings()
    storage.cleaner.start_cleanings()
    assert (storage.log.clean_offset, other.clean_offset) == (0, 2)


def test_a_broken_disk_takes_the_directory_offline(storage: Storage) -> None:
    fill(storage)
    storage.roll()
    storage.disk.fail("sync", errno.EIO, path=".tmp")
    storage.cleaner.start_cleanings()
    assert storage.log.failed
    assert not storage.dirs.online_dirs


def test_a_later_topic_of_the_same_name_starts_dirty(storage: Storage) -> None:
    fill(storage)
    storage.clean()
    storage.dirs.delete("t", 0)
    storage.env.pass_ms(1)
    assert read_offsets(storage.disk, CHECKPOINT) == {}


def test_a_checkpoint_of_a_log_that_is_gone_is_rewritten_at_load(storage: Storage) -> None:
    storage.stop()
    storage.disk.write_atomic(CHECKPOINT, b"0\n2\nt 0 99\ngone 3 5\n")
    storage.start()
    assert storage.log.clean_offset == 0
    assert read_offsets(storage.disk, CHECKPOINT) == {}


def transaction(
    storage: Storage, producer: int, key: bytes, value: bytes | None, sequence: int = 0
) -> None:
    storage.append(
        batch(
            [value],  # type: ignore[list-item]
            key=key,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
    )


def end(storage: Storage, producer: int, *, committed: bool) -> None:
    marker = build_marker(
        committed=committed,
        producer_id=producer,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=storage.env.clock.ms,
    )
    storage.append(bytearray(marker), origin="coordinator")


def test_aborted_data_goes_and_hides_nothing(storage: Storage) -> None:
    storage.append(batch([b"old"], key=b"a"))
    transaction(storage, 1, b"a", b"aborted")
    end(storage, 1, committed=False)
    transaction(storage, 2, b"b", b"committed")
    end(storage, 2, committed=True)
    storage.log.producers.clear()  # Long ago: these producers have expired.
    fill(storage, 3, keys=1)
    storage.clean()
    assert [row[:2] for row in storage.rows()] == [(0, b"a"), (3, b"b"), (7, b"k0")]
    assert storage.batch_count() == 5  # With both markers.
    assert [entry.producer_id for entry in storage.log.aborted_transactions(0, 8)] == [1]

    for _ in range(2):
        # Now nothing is left of the aborted one: its marker gets a horizon, then goes.
        fill(storage, 3, keys=1)
        storage.clean()
        storage.env.pass_ms(DELETE_RETENTION_MS)
    assert storage.batch_count() == 4
    assert storage.log.aborted_transactions(0, 8) == []


def test_an_abort_that_was_cleaned_before_hides_no_later_transaction(storage: Storage) -> None:
    storage.append(batch([b"old"], key=b"a"))
    transaction(storage, 1, b"b", b"aborted")
    end(storage, 1, committed=False)
    storage.clean()
    assert [entry.producer_id for entry in storage.log.aborted_transactions(0, 3)] == [1]

    transaction(storage, 1, b"a", None, sequence=1)
    end(storage, 1, committed=True)
    storage.clean()
    assert storage.rows() == [(3, b"a", None)]
    storage.env.pass_ms(DELETE_RETENTION_MS)
    storage.append(batch([b"x"], key=b"other"))
    storage.clean()
    assert [row[1] for row in storage.rows()] == [b"other"]


def test_an_active_producers_last_batch_stays_if_only_empty(storage: Storage) -> None:
    first = batch([b"1"], key=b"a", producer_id=9, producer_epoch=0, base_sequence=0)
    storage.append(bytearray(first))
    fill(storage, 5, keys=1)
    storage.append(batch([b"2"], key=b"a"))
    storage.clean()
    assert [row[0] for row in storage.rows()] == [5, 6]
    assert storage.batch_count() == 2  # The empty one is passed over by readers,
    log = storage.log
    found = log.read(0, max_bytes=1000, upper_bound=7, at_least_one=True, with_empty=True)
    assert found.size == log.segments[0].size  # but it is there,
    found.slices[0].release()
    storage.disk.kill()
    storage.start()
    assert storage.append(bytearray(first)) == 0  # and still detects a duplicate.


def test_small_segments_become_one(storage: Storage) -> None:
    for number in range(12):
        storage.append(batch([b"v"], key=b"%d" % number))
        storage.roll()
    assert len(storage.log.segments) == 13
    storage.clean()
    assert len(storage.log.segments) < 6
    assert [row[0] for row in storage.rows()] == list(range(12))
    assert len([name for name in storage.names() if name.endswith(".snapshot")]) <= 6


def test_snapshots_of_clean_shutdowns_do_not_stay(storage: Storage) -> None:
    """Compaction removes none: the segment that they are in is never deleted."""
    for number in range(5):
        storage.append(produced(7, 0, number))
        storage.stop()
        storage.start()
    storage.clean()
    storage.stop()
    storage.start()
    found = [int(name[:20]) for name in storage.names() if name.endswith(".snapshot")]
    assert found == [each.base_offset for each in storage.log.segments][1:]
    storage.log.truncate_to(5)
    assert [each.last_sequence for each in storage.log.producer_states()] == [4]


def test_an_emptied_segment_is_as_old_as_its_records_were() -> None:
    """Else each cleaning would make it young, and retention would end before it for ever."""
    storage = Storage(replace(COMPACT, deletes=True, retention_ms=60_000))
    clock = storage.env.clock

    def fill_a_segment(keys: bytes) -> None:
        for number in range(3):
            value, key = bytes(118), keys + b"%d" % number
            storage.append(batch([value], key=key, timestamp=clock.now_ms()))

    for keys in (b"cleaned", b"kept", b"cleaned"):
        fill_a_segment(keys)
        storage.clean()
    storage.env.pass_ms(50_000)
    fill_a_segment(b"cleaned")
    storage.clean()
    timestamps = [each.max_timestamp.timestamp for each in storage.log.segments]
    assert timestamps[0] == NO_TIMESTAMP < timestamps[1]
    storage.env.pass_ms(9_999)
    assert storage.log.expire_segments(clock.now_ms()) == []
    storage.env.pass_ms(2)
    expired = storage.log.expire_segments(clock.now_ms())
    assert [each.base_offset for each in expired] == [0, 3, 6]


def test_a_log_larger_than_the_map_takes_several_cleanings() -> None:
    storage = Storage(settings=CleanerSettings(map_bytes=24 * 40, write_bytes=1))
    fill(storage, 400, keys=200)
    storage.clean()
    assert len(storage.runner.jobs) > 5
    assert [row[0] for row in storage.rows()] == list(range(200, 400))
