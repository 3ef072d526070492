"""A log whose first records are in remote storage only: reads, starts, truncations, checkpoints.

Method: one log, or a broker's log directories, on a disk in memory that loses what was not synced;
queued work stands between two steps. `test_remote_prefix_model` plays histories of all of it.
"""

import errno
import logging
from dataclasses import replace

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.timers import Timers
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.dirs.checkpoint_limits import limits_number
from ottla.log.dirs.checkpoints import MalformedFile, read_offsets
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.epoch_cache import EpochCache, EpochEntry
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.producer_snapshot import encode_snapshot
from ottla.log.producers.producer_state import ProducerEntry
from ottla.log.remote_prefix import RemotePrefix
from ottla.log.retention import Reason
from tests.unit.log.node import Node, create
from tests.unit.log.support import (
    DIRECTORY,
    Environment,
    QueuedWorkers,
    append,
    batch,
    make_complete,
    offset_for_timestamp,
    produced,
    retain,
    values,
)

CONFIG = LogConfig(
    segment_bytes=300,
    index_interval_bytes=100,
    retention_ms=-1,
    remote_storage=True,
    local_retention_ms=0,
    timestamp_after_max_ms=2**62,
)
NOW = 2_000_000
EPOCHS = (EpochEntry(0, 0), EpochEntry(2, 30))
PREFIX = RemotePrefix(log_start_offset=10, epochs=EPOCHS)


def filled(log: PartitionLog, count: int = 12, *, epoch: int = 0) -> PartitionLog:
    """Append records, two to a segment."""
    first = log.log_end_offset
    for number in range(first, first + count):
        append(log, batch([b"%060d" % number], timestamp=1_000_000 + number), epoch=epoch)
    log.advance_high_watermark(log.log_end_offset)
    return log


def tiered(env: Environment) -> PartitionLog:
    """Return a log of offsets [0, 12) in two epochs, of which [0, 4) is in remote storage only."""
    log = filled(filled(env.open(CONFIG), 6), 6, epoch=3)
    log.flush_now()
    log.remote_copied_to(3)
    retain(log, NOW)
    assert bases(log) == [4, 6, 8, 10, 12]
    return log


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def starts(log: PartitionLog) -> tuple[int, int, int]:
    return log.log_start_offset, log.local_log_start_offset, log.log_end_offset


def refusal(log: PartitionLog, offset: int) -> Error | None:
    try:
        found = log.read(offset, max_bytes=1000, upper_bound=log.log_end_offset)
    except ApiError as error:
        return error.error
    for piece in found.slices:
        piece.release()
    return None


# --- reads ------------------------------------------------------------------------------------


def test_a_read_below_the_local_log_start_never_gets_the_next_local_record() -> None:
    log = tiered(Environment())
    log.advance_log_start(1)
    assert starts(log) == (1, 4, 12)
    assert [refusal(log, offset) for offset in (0, 1, 3, 4, 12, 13)] == [
        Error.OFFSET_OUT_OF_RANGE,
        Error.OFFSET_MOVED_TO_TIERED_STORAGE,
        Error.OFFSET_MOVED_TO_TIERED_STORAGE,
        None,
        None,
        Error.OFFSET_OUT_OF_RANGE,
    ]


def test_a_timestamp_is_searched_in_the_local_log_only() -> None:
    log = tiered(Environment())
    found = offset_for_timestamp(log, 0)
    assert found is not None
    assert found.offset == 4


def test_the_leader_epochs_are_kept_from_the_log_start() -> None:
    log = tiered(Environment())
    assert log.epochs.entries == ((0, 0), (3, 6))
    assert log.epoch_end_offset(0).end_offset == 6
    log.advance_log_start(2)
    assert log.epochs.entries == ((0, 2), (3, 6))


def test_producer_snapshots_below_the_local_log_start_are_removed() -> None:
    log = tiered(Environment())
    assert log.producer_manager.snapshots[0] == 4


# --- local retention --------------------------------------------------------------------------


def test_only_what_is_copied_is_deleted_here() -> None:
    log = filled(Environment().open(CONFIG))
    assert retain(log, NOW) == []
    assert starts(log) == (0, 0, 12)
    log.remote_copied_to(4)  # The segment of 4 and 5 is not copied whole.
    expired = retain(log, NOW)
    assert [each.reason for each in expired] == [Reason.LOCAL_TIME] * 2
    assert starts(log) == (0, 4, 12)
    log.reset_remote()
    assert retain(log, NOW) == []


def test_an_expired_active_segment_is_sealed_so_that_it_can_be_copied() -> None:
    """KAFKA-15047."""
    log = filled(Environment().open(CONFIG), 3)
    assert bases(log) == [0, 2]
    retain(log, NOW)
    assert bases(log) == [0, 2, 3]
    retain(log, NOW)
    assert bases(log) == [0, 2, 3]


def test_a_segment_of_the_future_ages_by_its_file() -> None:
    """KAFKA-20609."""
    env = Environment()
    log = env.open(replace(CONFIG, local_retention_ms=1_000))
    for _ in range(4):
        append(log, batch([bytes(60)], timestamp=2**50))
    log.advance_high_watermark(4)
    log.flush_now()
    log.remote_copied_to(1)
    assert retain(log, env.clock.ms + 900) == []
    assert len(retain(log, env.clock.ms + 1_100)) == 1


def test_retention_of_the_whole_log_is_not_the_logs() -> None:
    log = filled(Environment().open(replace(CONFIG, retention_ms=0, local_retention_ms=-1)))
    log.remote_copied_to(9)
    assert retain(log, NOW) == []


def test_nothing_follows_records_in_remote_storage_into_deletion() -> None:
    """Else the log would have a hole: copying was turned off, with records kept there."""
    log = tiered(Environment())
    log.reconfigure(replace(CONFIG, remote_storage=False, retention_ms=0))
    log.remote_copied_to(9)
    assert retain(log, NOW) == []
    log.advance_log_start(4)  # The last remote record expired.
    assert retain(log, NOW)
    assert starts(log) == (12, 12, 12)


def test_what_is_deleted_here_has_its_epochs_in_their_file() -> None:
    env = Environment()
    log = filled(env.open(CONFIG), 6)
    log.flush_now()
    log = env.open(CONFIG, recovery_point=1, high_watermark=6)
    log.remote_copied_to(5)
    assert log.recovery_point == 1
    assert [each.base_offset for each in retain(log, NOW)] == []
    assert log.local_log_start_offset == 0, "the flush comes first"
    assert retain(log, NOW)
    assert log.local_log_start_offset == 6


def test_what_comes_after_a_truncation_is_not_copied_yet() -> None:
    """KAFKA-15241."""
    log = filled(Environment().open(CONFIG))
    log.remote_copied_to(9)
    log.truncate_to(7)
    assert log.highest_remote_offset == 6
    log.remote_copied_to(20)
    assert log.highest_remote_offset == 6


# --- the log start ----------------------------------------------------------------------------


def test_delete_records_moves_the_log_start_over_both_tiers() -> None:
    log = tiered(Environment())
    assert log.delete_records(2) == 2
    assert starts(log) == (2, 4, 12)
    assert log.has_remote_prefix
    assert log.advance_log_start(7)
    assert starts(log) == (7, 7, 12)
    assert not log.advance_log_start(6)
    with pytest.raises(ApiError):
        log.advance_log_start(13)
    assert [each.reason for each in retain(log, 0)] == [Reason.LOG_START]


# --- truncations ------------------------------------------------------------------------------


def test_a_truncation_below_all_local_records_keeps_the_prefix_before() -> None:
    env = Environment()
    log = tiered(env)
    assert log.truncate_to(2)
    assert starts(log) == (0, 2, 2)
    assert log.epochs.entries == ((0, 0),)
    filled(log, 2, epoch=5)
    log.flush_now()
    env.disk.crash()
    log = env.open(CONFIG, recovery_point=0, log_start_offset=0, local_log_start_offset=4)
    assert starts(log) == (0, 2, 4)
    assert log.epochs.entries == ((0, 0), (5, 2))


def test_a_truncation_below_the_log_start_leaves_nothing() -> None:
    log = tiered(Environment())
    log.advance_log_start(3)
    log.truncate_to(1)
    assert starts(log) == (1, 1, 1)


@pytest.mark.parametrize("offset", [2, 0, 40])
def test_limits_of_a_truncation_that_does_not_happen_forget_no_prefix(offset: int) -> None:
    env = Environment()
    log = tiered(env)
    if offset < 12:
        log.truncate_in_background(offset, lambda: False)
    else:
        log.truncate_fully_in_background(offset, lambda: False)
    assert log.limits
    log = env.open(CONFIG, recovery_point=12, local_log_start_offset=4)
    assert starts(log) == (0, 4, 12)
    assert log.epochs.entries == ((0, 0), (3, 6))


def test_a_new_beginning_forgets_the_prefix() -> None:
    env = Environment()
    log = tiered(env)
    log.truncate_fully_and_start_at(40)
    assert starts(log) == (40, 40, 40)
    log.flush_now()
    env.disk.crash()
    log = env.open(CONFIG, recovery_point=0, local_log_start_offset=4)
    assert starts(log) == (40, 40, 40), "the checkpoints are older"


# --- recovery ---------------------------------------------------------------------------------


@pytest.mark.parametrize("recovery_point", [0, 4, 5, 12])
def test_a_start_keeps_both_starts_and_the_epochs(recovery_point: int) -> None:
    env = Environment()
    tiered(env)
    env.disk.crash()  # The renames were not durable: all old segments are there again.
    assert f"{0:020d}.log" in env.names()
    log = env.open(CONFIG, recovery_point=recovery_point, local_log_start_offset=4)
    assert starts(log) == (0, 4, 12)
    assert log.epochs.entries == ((0, 0), (3, 6))
    assert bases(log)[0] == 4
    assert log.high_watermark == 4, "the checkpointed one may be older"
    assert [offset for offset, _ in values(log)] == list(range(4, 12))


def test_without_an_entry_there_is_no_prefix() -> None:
    env = Environment()
    tiered(env).flush_now()
    log = env.open(CONFIG, recovery_point=12)
    assert starts(log) == (4, 4, 12)


def test_an_entry_at_or_below_the_log_start_is_none() -> None:
    env = Environment()
    tiered(env).flush_now()
    log = env.open(CONFIG, recovery_point=12, log_start_offset=5, local_log_start_offset=4)
    assert starts(log) == (5, 5, 12)


def test_a_log_that_lost_its_local_records_keeps_its_prefix() -> None:
    env = Environment()
    tiered(env).flush_now()
    for name in env.names():
        if name.endswith(".log"):
            env.disk.remove(f"{DIRECTORY}/{name}")
    log = env.open(CONFIG, recovery_point=12, log_start_offset=1, local_log_start_offset=4)
    assert starts(log) == (1, 4, 4)
    assert log.epochs.entries == ((0, 1),)


def test_missing_first_segments_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    env = Environment()
    tiered(env).flush_now()
    env.disk.remove(f"{DIRECTORY}/{4:020d}.log")
    with caplog.at_level(logging.WARNING):
        log = env.open(CONFIG, recovery_point=12, local_log_start_offset=4)
    assert starts(log) == (0, 6, 12)
    assert "from the local log start offset 4 to 6 are missing" in caplog.text


@pytest.mark.parametrize("content", [None, b"0\n"])
def test_missing_leader_epochs_of_remote_records_are_reported(
    content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    env = Environment()
    tiered(env).flush_now()
    env.disk.remove(f"{DIRECTORY}/{names.LEADER_EPOCHS}")
    if content is not None:
        env.disk.write_atomic(f"{DIRECTORY}/{names.LEADER_EPOCHS}", content)
    with caplog.at_level(logging.WARNING):
        log = env.open(CONFIG, recovery_point=12, local_log_start_offset=4)
    assert starts(log) == (0, 4, 12)
    assert log.epochs.entries == ((0, 4), (3, 6))
    assert "the leader epochs of the offsets 0 to 4 are missing" in caplog.text


# --- a new follower ---------------------------------------------------------------------------


def test_a_log_begins_with_a_remote_prefix() -> None:
    env = Environment()
    log = filled(env.open(CONFIG))
    snapshot = encode_snapshot([ProducerEntry(producer_id=7, epoch=1, last_timestamp=5)])
    log.truncate_fully_and_start_at(40, replace(PREFIX, producers=snapshot))
    assert starts(log) == (10, 40, 40)
    assert log.epochs.entries == ((0, 10), (2, 30))
    assert [each.producer_id for each in log.producer_states()] == [7]
    assert log.high_watermark == 40
    with pytest.raises(ApiError):  # A start would remove it: the checkpoints are to come.
        append(log, produced(7, 1, 0), epoch=2)
    make_complete(log)
    append(log, produced(7, 1, 0), epoch=2)
    log.flush_now()
    env.disk.crash()
    log = env.open(CONFIG, recovery_point=0, log_start_offset=10, local_log_start_offset=40)
    assert [each.producer_id for each in log.producer_states()] == [7]


def test_a_damaged_producer_snapshot_changes_nothing() -> None:
    log = filled(Environment().open(CONFIG))
    damaged = replace(PREFIX, producers=b"\0" * 20)
    with pytest.raises(MalformedFile):
        log.truncate_fully_and_start_at(40, damaged)
    with pytest.raises(MalformedFile):
        log.truncate_fully_in_background(40, lambda: True, damaged)
    assert starts(log) == (0, 0, 12)


class Broker:
    """A log in a broker's log directory, whose work waits until a test runs it."""

    def __init__(self) -> None:
        self.workers = QueuedWorkers()
        self.node = Node(self.workers)
        self.disk = self.node.disk
        self.dirs: LogDirs = self.node.start()[0]
        self.log = create(self.dirs)
        self.log.reconfigure(CONFIG)
        self.log.flush()
        self.run()

    def run(self) -> None:
        for _ in range(4):
            self.node.pass_ms(1)

    def checkpointed(self) -> list[int | None]:
        """Return the log's entries: log start and local log start."""
        files = (names.LOG_STARTS, names.LOCAL_LOG_STARTS)
        return [read_offsets(self.disk, f"/d1/{name}").get(("t", 0)) for name in files]

    def fill(self) -> None:
        filled(self.log)
        self.log.flush()
        self.run()

    def retain(self) -> None:
        self.log.expire_segments(NOW)
        self.dirs.delete_expired_segments()

    def restart(self, *, crash: bool = True) -> PartitionLog:
        self.workers.queue.clear()
        self.node.env.timers = Timers()
        if crash:
            self.disk.crash()
        else:
            self.disk.kill()
        self.dirs = self.node.start()[0]
        log = self.dirs.get("t", 0)
        assert log is not None
        self.log = log
        return log


def test_the_log_start_is_durable_before_the_local_one_and_this_before_deletion() -> None:
    broker = Broker()
    broker.fill()
    broker.log.delete_records(1)
    broker.log.remote_copied_to(5)
    acts: list[tuple[str, str]] = []
    broker.disk.on_operation = lambda act, path: acts.append((act, path))
    broker.retain()
    broker.run()
    assert broker.checkpointed() == [1, 6]
    first = [
        ("write_atomic", f"/d1/{names.LOG_STARTS}"),
        ("write_atomic", f"/d1/{names.LOCAL_LOG_STARTS}"),
        ("rename", f"/d1/t-0/{0:020d}.log"),
    ]
    places = [acts.index(each) for each in first]
    assert places == sorted(places)
    assert starts(broker.restart()) == (1, 6, 12)


def test_each_later_checkpoint_has_the_log_start() -> None:
    """KAFKA-16146: it is below all local segments, and no record here says so."""
    broker = Broker()
    broker.fill()
    broker.log.delete_records(1)
    broker.log.remote_copied_to(5)
    broker.retain()
    broker.run()
    assert bases(broker.log)[0] == 6
    broker.dirs.checkpoint()
    broker.run()
    assert broker.checkpointed() == [1, 6]
    assert starts(broker.restart()) == (1, 6, 12)


def test_no_offset_is_out_of_range_while_local_files_are_deleted() -> None:
    """KAFKA-16073: it is in one tier or the other at every moment."""
    broker = Broker()
    broker.fill()
    broker.log.remote_copied_to(7)
    found: list[list[Error | None]] = []

    def read_all(act: str, path: str) -> None:
        if act in ("write_atomic", "rename", "remove"):
            broker.disk.on_operation = None
            found.append([refusal(broker.log, offset) for offset in range(12)])
            broker.disk.on_operation = read_all

    broker.disk.on_operation = read_all
    broker.retain()
    broker.run()
    assert bases(broker.log)[0] == 8
    moved = [Error.OFFSET_MOVED_TO_TIERED_STORAGE] * 8
    assert len(found) > 12
    assert all(each == moved + [None] * 4 for each in found)


def test_a_log_directory_without_a_remote_prefix_has_no_such_file() -> None:
    broker = Broker()
    broker.fill()
    broker.dirs.checkpoint()
    broker.run()
    assert not broker.disk.exists(f"/d1/{names.LOCAL_LOG_STARTS}")


def test_the_local_log_start_waits_for_the_own_log_start() -> None:
    """A checkpoint that was being written has an older log's, or none."""
    broker = Broker()
    broker.fill()
    broker.log.remote_copied_to(5)
    broker.retain()
    broker.run()
    broker.dirs.checkpoint_log_starts()
    broker.log.truncate_fully_and_start_at(50)
    broker.log.offsets.log_start_offset = (
        40  # As retention and a new prefix would have it, sooner or later.
    )
    while broker.workers.queue:
        broker.workers.run(1)
        start, local = broker.checkpointed()
        assert local is None or local <= 6 or start == 40
    broker.run()
    broker.dirs.checkpoint_log_starts()
    broker.run()
    assert broker.checkpointed() == [40, 50]


def test_an_entry_goes_when_the_log_start_passes_it_or_the_log_is_deleted() -> None:
    broker = Broker()
    broker.fill()
    broker.log.remote_copied_to(9)
    broker.retain()
    broker.run()
    assert broker.checkpointed() == [0, 10]
    broker.log.advance_log_start(11)
    broker.dirs.checkpoint_log_starts()
    broker.run()
    assert broker.checkpointed() == [11, None]
    filled(broker.log, 6)
    broker.log.flush()
    broker.run()
    broker.log.remote_copied_to(15)
    broker.retain()
    broker.run()
    assert broker.checkpointed() == [11, 16]
    broker.dirs.delete("t", 0)
    broker.run()
    assert broker.checkpointed() == [None, None]
    again = create(broker.dirs)
    assert starts(again) == (0, 0, 0)


def test_a_log_that_goes_offline_keeps_its_entry() -> None:
    broker = Broker()
    broker.fill()
    broker.log.remote_copied_to(9)
    broker.retain()
    broker.run()
    broker.dirs.take_log_offline(broker.log, OSError(errno.EIO, "damaged"))
    broker.dirs.checkpoint()
    broker.run()
    assert broker.checkpointed() == [0, 10]


def test_a_clean_stop_keeps_both_starts() -> None:
    broker = Broker()
    broker.fill()
    broker.log.remote_copied_to(9)
    broker.log.expire_segments(NOW)
    broker.log.advance_log_start(3)
    assert starts(broker.log) == (3, 10, 12)
    broker.node.stop(broker.dirs)
    broker.run()
    assert starts(broker.restart(crash=False)) == (3, 10, 12)


def test_the_promise_of_a_new_prefix_waits_for_its_durability() -> None:
    broker = Broker()
    broker.fill()
    done = broker.log.truncate_fully_in_background(40, lambda: True, PREFIX)
    limited = 0
    for _ in range(60):
        if done.done:
            break
        broker.workers.run(1)
        broker.node.env.pass_ms(0)
        limited += bool(broker.log.limits)
    assert done.value is None
    assert limited
    assert not [name for name in broker.disk.listdir("/d1/t-0") if limits_number(name)]
    log = broker.restart()
    assert starts(log) == (10, 40, 40)
    assert log.epochs.entries == ((0, 10), (2, 30))


def test_a_new_prefix_is_not_checkpointed_before_its_epochs_are_durable() -> None:
    broker = Broker()
    broker.fill()
    done = broker.log.truncate_fully_in_background(40, lambda: True, PREFIX)
    broker.workers.run(1)  # The limits; then the log is truncated, and its flush waits.
    assert starts(broker.log) == (10, 40, 40)
    flush = broker.workers.queue.popleft()
    broker.run()
    broker.dirs.checkpoint()
    broker.run()
    assert broker.checkpointed() == [10, None]
    assert not done.done
    broker.workers.queue.append(flush)
    broker.run()
    assert broker.checkpointed() == [10, 40]
    assert done.done


def test_a_log_that_fails_fails_the_promise() -> None:
    broker = Broker()
    broker.fill()
    done = broker.log.truncate_fully_in_background(40, lambda: True, PREFIX)
    broker.workers.run(1)
    broker.dirs.fail(broker.log, OSError(errno.EIO, "damaged"))
    assert isinstance(done.value, OSError)


def test_log_starts_become_durable_on_request() -> None:
    broker = Broker()
    broker.fill()
    broker.log.advance_log_start(5)
    stored = broker.dirs.checkpoint_log_start(broker.log)
    assert not stored.done
    broker.run()
    assert stored.value is None
    assert broker.checkpointed() == [5, None]
    broker.dirs.delete("t", 0)
    assert isinstance(broker.dirs.checkpoint_log_start(broker.log).value, OSError)


def in_two_epochs() -> Broker:
    """Return a log of offsets [0, 14), all in remote storage only, the last two in epoch 5."""
    broker = Broker()
    filled(filled(broker.log), 2, epoch=5)
    broker.log.flush()
    broker.run()
    broker.log.remote_copied_to(13)
    for _ in range(2):  # The first seals the active segment.
        broker.retain()
        broker.run()
    assert starts(broker.log) == (0, 14, 14)
    return broker


def test_a_log_start_that_a_crash_takes_back_has_its_epochs() -> None:
    broker = in_two_epochs()
    broker.log.advance_log_start(13)
    assert broker.log.epochs.entries == ((5, 13),)
    filled(broker.log, 1, epoch=6)
    broker.log.flush()
    broker.run()
    # The records of these epochs are in remote storage only.
    assert starts(broker.restart()) == (0, 14, 15)
    assert broker.log.epochs.entries == ((0, 0), (5, 12), (6, 14))


@pytest.mark.parametrize("restarts", [False, True])
def test_the_epochs_below_a_durable_log_start_are_dropped(restarts: bool) -> None:
    broker = in_two_epochs()
    broker.log.advance_log_start(13)
    broker.log.flush()
    broker.run()
    stored = f"{broker.log.directory}/{names.LEADER_EPOCHS}"
    assert EpochCache.decode(broker.disk.read_bytes(stored)).entries == ((0, 0), (5, 12))
    broker.dirs.checkpoint_log_starts()
    broker.run()
    if restarts:
        broker.restart(crash=False)
    filled(broker.log, 1, epoch=6)
    acts: list[tuple[str, str]] = []
    broker.disk.on_operation = lambda act, path: acts.append((act, path))
    broker.log.flush()
    broker.run()
    # Limits that were removed, and lower the log start, cannot come back beside the new file.
    synced, renamed = ("sync_dir", broker.log.directory), ("rename", stored + names.TEMPORARY)
    assert acts.index(synced) < acts.index(renamed)
    assert EpochCache.decode(broker.disk.read_bytes(stored)).entries == ((5, 13), (6, 14))
    assert starts(broker.restart()) == (13, 14, 15)


def test_limits_that_are_being_written_keep_the_epochs_of_their_log_start() -> None:
    broker = in_two_epochs()
    filled(broker.log, 2, epoch=5)
    broker.log.truncate_in_background(15, lambda: True)
    limits = broker.workers.queue.popleft()
    broker.log.advance_log_start(13)
    broker.dirs.checkpoint_log_starts()
    broker.run()
    broker.log.flush()
    broker.run()
    broker.workers.queue.append(limits)
    broker.workers.run(1)
    assert broker.restart().log_start_offset == 0
    assert broker.log.epochs.entries == ((0, 0), (5, 12))
