"""A swap of cleaned segments under losses of power that keep any of the names that were not synced.

Method: a log with all kinds of work for a cleaning, on the simulator's disk. Power goes before
each single operation of the cleaning; or the log is truncated between two steps of a swap, with
workers that wait, and power goes a little later.
"""

from functools import partial
from random import Random
from typing import Any

import pytest

from ottla.log import names
from ottla.log.cleaner.cleaner_swap import Swap
from ottla.log.earlier_segments import EarlierSegments
from ottla.log.epoch_cache import EpochEntry
from ottla.log.indexes.time_index import NO_TIMESTAMP
from ottla.testing.sim.disk import SimDisk
from tests.unit.log.cleaner.test_cleaner_model import check, history
from tests.unit.log.cleaner_storage import Storage, dies
from tests.unit.log.support import Environment, QueuedWorkers, batch


class Workers(QueuedWorkers):
    """Work that waits, once `holds` is set."""

    holds = False

    def submit(self, work: Any, done: Any = None) -> None:
        super().submit(work, done)
        if not self.holds:
            self.run()


def new_storage(workers: Workers | None = None) -> Storage:
    env = Environment() if workers is None else Environment(workers=workers)
    env.disk = SimDisk(now_ms=env.clock.now_ms)
    return Storage(env=env)


def clean_and_wait(storage: Storage) -> None:
    storage.cleaner.start_cleanings()
    storage.env.pass_ms(2_000)


@pytest.mark.drawn(8, of="every step")
@pytest.mark.forms(1)
@pytest.mark.parametrize("seed", range(4))
def test_a_loss_of_power_at_any_operation_loses_nothing(seed: int) -> None:
    random = Random(seed)
    operation, died = 0, True
    while died:
        storage = new_storage()
        written = history(storage)
        storage.log.flush()
        storage.die_at(operation)
        died = dies(partial(clean_and_wait, storage))
        for again in range(3):
            # Power may go during recovery, too.
            storage.disk.on_operation = None
            storage.disk.lose_power(random)
            if again < 2:
                storage.die_at(random.randrange(60))
            if not dies(storage.start):
                break
        storage.disk.on_operation = None
        check(storage, written)
        operation += 1
    assert operation > 60, "else the cleaning did not do what this test is about"


class Swapping:
    """A cleaning whose first swap waits for its syncs one by one."""

    def __init__(self, start: int = 0, *, timestamp: int = 1_000_000) -> None:
        self.workers = Workers()
        self.storage = new_storage(self.workers)
        if start:
            self.storage.log.truncate_fully_and_start_at(start)
            self.storage.append(batch([b"only"], key=b"only"))
        for number in range(20):
            key = b"k%d" % (number % 3)
            value = b"%d" % number + bytes(80)
            self.storage.append(batch([value], key=key, timestamp=timestamp))
        self.storage.roll()
        for number in range(20, 26):
            self.storage.append(batch([b"%d" % number + bytes(80)], key=b"k%d" % (number % 3)))
        self.storage.log.flush()
        self.workers.holds = True
        self.storage.cleaner.start_cleanings()
        assert self.storage.log.local.swap is not None

    def run_until_replaced(self) -> None:
        """Go on until the new segment has the place of the old ones."""
        swap = self.storage.log.local.swap
        while not (isinstance(swap, Swap) and swap.is_replaced):
            self.workers.run(1)


STEPS = range(5)


@pytest.mark.forms(5)
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("offset", [23, 12, 7])
def test_a_truncation_settles_it(steps: int, offset: int) -> None:
    for seed in range(10):
        swapping = Swapping()
        storage, workers = swapping.storage, swapping.workers
        workers.run(steps)
        storage.log.truncate_to(offset)
        assert storage.log.local.swap is None
        end = storage.log.log_end_offset
        assert end <= offset
        for number in range(6):
            storage.append(batch([b"new%d" % number + bytes(80)], key=b"n%d" % number))
        storage.log.flush()
        workers.run()
        before = storage.rows()
        assert [value for _, _, value in before][-6:] == [
            b"new%d" % number + bytes(80) for number in range(6)
        ]
        storage.disk.lose_power(Random(seed))
        workers.queue.clear()
        workers.holds = False
        storage.start()
        assert storage.rows() == before


@pytest.mark.parametrize("steps", STEPS)
def test_a_log_that_is_deleted_meanwhile_is_left_alone(steps: int) -> None:
    swapping = Swapping()
    swapping.workers.run(steps)
    swapping.storage.dirs.delete("t", 0)
    swapping.workers.run()
    assert not swapping.storage.dirs.offline_dirs


@pytest.mark.parametrize("steps", STEPS)
def test_a_stopped_broker_goes_on_where_it_was(steps: int) -> None:
    swapping = Swapping()
    storage, workers = swapping.storage, swapping.workers
    workers.run(steps)
    before = {key: (offset, value) for offset, key, value in storage.rows()}
    storage.cleaner.stop()
    workers.holds = False
    workers.run()
    assert storage.dirs.shutdown(5).done
    storage.start()
    assert {key: (offset, value) for offset, key, value in storage.rows()} == before


@pytest.mark.parametrize("steps", STEPS)
def test_readers_notice_nothing_between_the_steps(steps: int) -> None:
    swapping = Swapping()
    storage, workers = swapping.storage, swapping.workers
    newest = {key: (offset, value) for offset, key, value in storage.rows()}
    workers.run(steps)
    assert {key: (offset, value) for offset, key, value in storage.rows()} == newest
    workers.run()
    assert {key: (offset, value) for offset, key, value in storage.rows()} == newest
    assert storage.log.local.swap is None
    assert not [name for name in storage.names() if name.endswith((names.SWAP, names.CLEANED))]


@pytest.mark.parametrize("steps", STEPS)
def test_records_that_are_written_before_the_log_cost_it_nothing(steps: int) -> None:
    """A follower copies what its leader has before its own log (`earlier_segments`), and is killed
    within a swap. A start tells by their names which files are whole."""
    swapping = Swapping(start=40)
    storage, log = swapping.storage, swapping.storage.log
    epochs = (EpochEntry(0, 30),)
    earlier = EarlierSegments(
        storage.disk, log.directory, log.name, storage.config, start=30, end=40, epochs=epochs
    )
    earlier.write(batch([b"earlier"], base_offset=30, leader_epoch=0))
    swapping.workers.run(steps)
    newest = {key: (offset, value) for offset, key, value in storage.rows()}
    storage.disk.kill()
    swapping.workers.queue.clear()
    swapping.workers.holds = False
    storage.start()
    assert {key: (offset, value) for offset, key, value in storage.rows()} == newest
    assert not [name for name in storage.names() if name.startswith(f"{30:020d}")]


@pytest.mark.parametrize("steps", STEPS)
def test_records_without_timestamps_age_with_their_file_between_the_steps(steps: int) -> None:
    """Within a swap the file does not have its own name."""
    swapping = Swapping(timestamp=NO_TIMESTAMP)
    storage, log = swapping.storage, swapping.storage.log
    storage.reconfigure(deletes=True, retention_ms=10_000)
    swapping.workers.run(steps)
    now_ms = storage.env.clock.now_ms()
    assert log.expire_segments(now_ms + 9_000) == []
    assert log.expire_segments(now_ms + 11_000)[0].base_offset == 0


def expired_within_a_swap(steps: int) -> Swapping:
    """Return one whose new segment has expired so many steps after it took its place, which only
    that of an aborted cleaning does."""
    swapping = Swapping()
    storage = swapping.storage
    swapping.run_until_replaced()
    storage.cleaner.stop()
    swapping.workers.run(steps)
    storage.log.delete_records(20)
    storage.log.delete_expired_segments(20)
    assert storage.log.segments.first.base_offset > 0
    return swapping


REPLACED_STEPS = range(3)


@pytest.mark.parametrize("steps", REPLACED_STEPS)
def test_segments_that_expire_meanwhile_leave_nothing_behind(steps: int) -> None:
    swapping = expired_within_a_swap(steps)
    storage, workers = swapping.storage, swapping.workers
    workers.holds = False
    workers.run()
    storage.env.pass_ms(storage.config.file_delete_delay_ms)
    first = names.segment_name(storage.log.segments.first.base_offset, "")
    assert [name for name in storage.names() if name[0].isdigit() and name < first] == []
    assert not storage.dirs.offline_dirs


@pytest.mark.parametrize("steps", REPLACED_STEPS)
def test_a_truncation_after_segments_expired_meanwhile(steps: int) -> None:
    swapping = expired_within_a_swap(steps)
    storage = swapping.storage
    storage.log.truncate_to(23)
    assert storage.log.local.swap is None
    swapping.workers.run()
    assert storage.log.log_end_offset == 23
    assert not storage.dirs.offline_dirs


@pytest.mark.parametrize("steps", REPLACED_STEPS)
def test_the_log_is_cleaned_anew_once_the_swap_of_an_aborted_cleaning_is_over(steps: int) -> None:
    """The next cleaning did not find the files that were being renamed, or its own swap met the
    other one."""
    swapping = Swapping()
    storage, workers = swapping.storage, swapping.workers
    newest = {key: (offset, value) for offset, key, value in storage.rows()}
    swapping.run_until_replaced()
    workers.run(steps)
    storage.reconfigure(compacts=False, deletes=True)
    storage.cleaner.start_cleanings()
    storage.reconfigure(compacts=True)
    while storage.log.local.swap is not None:
        storage.cleaner.start_cleanings()
        assert len(storage.runner.jobs) == 1
        workers.run(1)
    workers.holds = False
    workers.run()
    storage.env.pass_ms(1)
    assert len(storage.runner.jobs) == 2
    assert {key: (offset, value) for offset, key, value in storage.rows()} == newest
    assert storage.log.clean_offset == storage.log.segments.active.base_offset
    assert not storage.dirs.offline_dirs


def test_files_are_not_copied_to_remote_storage_while_they_are_renamed() -> None:
    """The log's topic is not compacted any more, but the swap goes on."""
    swapping = Swapping()
    storage, workers = swapping.storage, swapping.workers
    swapping.run_until_replaced()
    storage.reconfigure(compacts=False, deletes=True)
    assert storage.log.local.swap is not None
    while storage.log.local.swap is not None:
        assert storage.log.segment_files(0) is None
        workers.run(1)
    files = storage.log.segment_files(0)
    assert files is not None
    assert storage.disk.size(files.log.path) == files.log.size_bytes
