"""Lookups of a record by its timestamp while the log changes between two segments.

Method: a compacted log whose searches are run one by one; the cleaner runs inline in between.
"""

from dataclasses import replace

from ottla.broker.fetch.timestamp_lookups import look_up
from ottla.broker.produce.batch_work import BatchWork
from tests.unit.log.cleaner_storage import COMPACT, Storage
from tests.unit.log.support import QueuedWorkers, batch


def filled() -> Storage:
    """Return a log with segments from 0, 2 and 3 on; the first has the latest time, at offset 0."""
    storage = Storage(replace(COMPACT, deletes=True, segment_bytes=10_000))
    for key, timestamp in ((b"a", 5_000), (b"b", 100), (b"c", 3_000), (b"d", 4_000)):
        if key > b"b":
            storage.roll()
        storage.append(batch([b"v"], key=key, timestamp=timestamp))
    storage.log.delete_records(1)
    return storage


def bases(storage: Storage) -> list[int]:
    return [segment.base_offset for segment in storage.log.segments]


def test_a_segment_that_is_merged_with_searched_ones_is_not_passed_over() -> None:
    storage, workers = filled(), QueuedWorkers()
    storage.roll()
    assert bases(storage) == [0, 2, 3, 4]
    found = look_up(BatchWork(workers), storage.log, 3_000)
    work, done = workers.queue.popleft()
    assert done is not None
    result = work()  # In the first segment nothing is found.
    storage.cleaner.start_cleanings()
    assert bases(storage) == [0, 4]
    done(result)
    workers.run()
    assert found.value == (2, 3_000, 0)


def test_a_lookup_ends_with_the_active_segment_though_records_are_appended() -> None:
    storage, workers = filled(), QueuedWorkers()
    storage.log.delete_records(4)
    storage.append(batch([b"v"], key=b"e", timestamp=100))
    found = look_up(BatchWork(workers), storage.log, 3_000)
    while not found.done:
        storage.append(batch([b"v"], key=b"f", timestamp=100))
        assert workers.run(1)
    assert found.value is None
    assert storage.log.log_end_offset == 6
