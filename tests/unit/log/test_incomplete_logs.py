"""A log that begins behind records in remote storage, killed at any step: it is complete, or empty.

Method: a broker's log directory on the simulator's disk. A run without a crash counts the disk's
operations; then one run for each ends before it, by a kill or by a power loss, and another start
follows. It finds the old log as it was, an empty log at offset 0, or the whole new one: log start,
local log start, leader epochs and producers. Then the replica begins again, and gets there.
"""

import pytest

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.epoch_cache import EpochEntry
from ottla.log.producers.producer_snapshot import encode_snapshot
from ottla.log.producers.producer_state import ProducerEntry
from ottla.log.remote_prefix import RemotePrefix
from tests.unit.log.killed_log_dir import KilledLogDir
from tests.unit.log.support import TOPIC_ID, append, batch, produced

CONFIG = LogConfig(
    segment_bytes=300,
    index_interval_bytes=100,
    retention_ms=-1,
    remote_storage=True,
    local_retention_ms=0,
    timestamp_after_max_ms=2**62,
)
OFFSET = 40
PREFIX = RemotePrefix(
    log_start_offset=10,
    epochs=(EpochEntry(0, 0), EpochEntry(2, 30)),
    producers=encode_snapshot([ProducerEntry(producer_id=7, epoch=1, last_timestamp=5)]),
)
NEW = (10, OFFSET, OFFSET)


class Broker(KilledLogDir):
    """A broker's one log. `old`: its starts and end before it is begun anew."""

    def __init__(self, *, tiered: bool) -> None:
        super().__init__(CONFIG)
        log = self.dirs.get_or_create("t", TOPIC_ID, 0, CONFIG)
        for number in range(12):
            append(log, batch([b"%060d" % number], timestamp=1_000_000 + number), epoch=number // 6)
        append(log, produced(3, 0, 0), epoch=1)
        log.advance_high_watermark(13)
        log.flush()
        self.finish()
        if tiered:
            log.remote_copied_to(3)
            log.expire_segments(2_000_000)
            self.dirs.delete_expired_segments()
        self.dirs.checkpoint()
        self.finish()
        self.disk.settle()
        self.old = (0, 4 if tiered else 0, 13)
        assert self.starts == self.old
        self.watch()

    @property
    def starts(self) -> tuple[int, int, int]:
        log = self.log
        return log.log_start_offset, log.local_log_start_offset, log.log_end_offset

    def finish(self) -> None:
        """Let all background work end."""
        while self.workers.queue or self.env.timers.next_ms() is not None:
            self.workers.run()
            self.env.pass_ms(1_000)

    def begin(self) -> Pending[OSError | ApiError | None]:
        """Begin the log behind remote records, to the end of all background work."""
        done = self.log.truncate_fully_in_background(OFFSET, lambda: True, PREFIX)
        self.finish()
        assert done.done
        assert done.value is None
        return done

    def begin_again(self) -> None:
        """As the replica does that finds less than the whole of it, and goes on from there."""
        if self.starts != NEW:
            self.begin()
        self.check_new()
        append(self.log, produced(7, 1, 0), epoch=2)
        self.log.flush()
        self.finish()
        self.end(power=5)
        self.start()
        assert self.starts == (10, OFFSET, OFFSET + 1)
        assert [each.last_sequence for each in self.log.producer_states()] == [0]

    def check_new(self) -> None:
        log = self.log
        assert self.starts == NEW
        assert log.high_watermark == OFFSET
        assert log.epochs.entries == ((0, 10), (2, 30))
        assert [each.producer_id for each in log.producer_states()] == [7]

    def check_any(self, *, power_lost: bool = False) -> str:
        """Check what a start has found; return which."""
        log = self.log
        # A power loss counts as an unclean shutdown in any case.
        assert power_lost or self.dirs.below_high_watermark == []
        if self.starts == NEW:
            self.check_new()
            return "new"
        if self.starts == self.old:
            assert log.epochs.entries == ((0, 0), (1, 6))
            assert [each.producer_id for each in log.producer_states()] == [3]
            return "old"
        assert self.starts == (0, 0, 0)
        assert log.epochs.entries == ()
        assert log.producer_states() == []
        assert log.producer_manager.snapshots == []
        files = [names.parse_segment_name(each) for each in self.disk.listdir("/d1/t-0")]
        assert {each[0] for each in files if each is not None} == {0}
        return "empty"


POWER = [None, 1, 2]
"""A kill, and power losses by seed."""


@pytest.mark.drawn(8, of="every step")
@pytest.mark.forms(1)
@pytest.mark.parametrize("tiered", [False, True])
def test_every_step_may_be_the_last(tiered: bool) -> None:
    found: set[str] = set()
    broker = Broker(tiered=tiered)
    count = broker.count(broker.begin)
    broker.check_new()
    assert count > 20
    for killed_at in range(1, count + 2):
        for power in POWER:
            broker = Broker(tiered=tiered)
            broker.count(broker.begin, killed_at)
            broker.end(power)
            broker.start()
            try:
                found.add(broker.check_any(power_lost=power is not None))
                broker.begin_again()
            except AssertionError as error:
                error.add_note(f"killed at operation {killed_at}, {broker.last}; power {power}")
                raise
    assert found == {"old", "empty", "new"}


@pytest.mark.drawn(8, of="every step")
def test_so_may_every_step_of_the_next_start() -> None:
    whole = Broker(tiered=True)
    for killed_at in range(1, whole.count(whole.begin) + 1, 7):
        for again_at in range(1, 60):
            broker = Broker(tiered=True)
            broker.count(broker.begin, killed_at)
            broker.end(None)
            count = broker.count(broker.start, again_at)
            if count < again_at:
                break
            power = None if again_at % 2 else again_at
            broker.end(power)
            broker.start()
            try:
                broker.check_any(power_lost=power is not None)
                broker.begin_again()
            except AssertionError as error:
                error.add_note(f"killed at {killed_at}, then at {again_at}")
                raise


def test_what_a_power_loss_finds_after_the_promise_is_the_whole() -> None:
    for power in range(20):
        broker = Broker(tiered=False)
        log = broker.log
        done = log.truncate_fully_in_background(OFFSET, lambda: True, PREFIX)
        while not done.done:
            broker.workers.run(1)
            broker.env.pass_ms(0)
        append(log, produced(7, 1, 0), epoch=2)
        broker.end(power)
        broker.start()
        start, local, end = broker.starts
        assert (start, local) == NEW[:2]
        assert end in (OFFSET, OFFSET + 1), "the record was not flushed"
        assert broker.log.epochs.entries == ((0, 10), (2, 30))


def test_nothing_is_appended_to_an_incomplete_log() -> None:
    """It would be removed by the next start, though it was acknowledged."""
    broker = Broker(tiered=False)
    log = broker.log
    done = log.truncate_fully_in_background(OFFSET, lambda: True, PREFIX)
    refused = 0
    while not done.done:
        broker.workers.run(1)
        broker.env.pass_ms(0)
        if log.log_end_offset == OFFSET and not done.done:
            with pytest.raises(ApiError, match="not durable yet"):
                append(log, produced(7, 1, 0), epoch=2)
            refused += 1
    assert refused
    append(log, produced(7, 1, 0), epoch=2)


def test_a_log_that_is_truncated_while_incomplete_becomes_complete() -> None:
    """The next leader is elected in between; its log has less, or begins later."""
    for then in (12, 20, 60):
        broker = Broker(tiered=False)
        log = broker.log
        done = log.truncate_fully_in_background(OFFSET, lambda: True, PREFIX)
        while log.log_end_offset != OFFSET:
            broker.workers.run(1)
        if then < OFFSET:
            log.truncate_in_background(then, lambda: True)
        else:
            log.truncate_fully_in_background(then, lambda: True)
        broker.finish()
        assert done.done
        assert not log.is_incomplete
        assert not broker.disk.exists(f"/d1/t-0/{names.INCOMPLETE}")
        append(log, produced(8, 0, 0), epoch=3)
        log.flush()
        broker.finish()
        broker.end(power=3)
        broker.start()
        assert broker.starts == (10 if then < OFFSET else then, then, then + 1)


@pytest.mark.parametrize("again", [False, True])
def test_a_log_that_is_not_begun_after_all_stays_as_it_was(again: bool) -> None:
    """Another leader was elected while the marker was being written."""
    broker = Broker(tiered=True)
    log = broker.log
    done = log.truncate_fully_in_background(OFFSET, lambda: False, PREFIX)
    broker.workers.run(1)
    assert done.done
    assert log.is_incomplete
    if again:
        broker.workers.run(1)
        broker.begin()
        broker.begin_again()
        return
    broker.finish()
    assert not log.is_incomplete
    append(log, produced(3, 0, 1), epoch=1)
    log.flush()
    broker.finish()
    broker.end(power=2)
    broker.start()
    assert broker.starts == (0, 4, 14)


def test_a_log_is_begun_while_the_marker_is_removed() -> None:
    """The sync of the removal must not make a new marker count as removed."""
    for steps in range(12):
        broker = Broker(tiered=False)
        log = broker.log
        log.truncate_fully_in_background(OFFSET, lambda: False, PREFIX)
        broker.workers.run(1)
        for _ in range(steps):
            broker.env.pass_ms(0)
            broker.workers.run(1)
        log.truncate_fully_in_background(OFFSET, lambda: True, PREFIX)
        for _ in range(40):
            broker.env.pass_ms(0)
            broker.workers.run(1)
            assert log.is_incomplete or log.log_end_offset == OFFSET, "it may be appended to"
            assert log.is_incomplete or not broker.disk.exists(f"/d1/t-0/{names.INCOMPLETE}")
        broker.finish()
        broker.begin_again()


def test_a_marker_that_a_worker_is_writing_is_not_removed() -> None:
    """The worker may have written it already, and the log counts on it from its callback on."""
    broker = Broker(tiered=False)
    log = broker.log
    log.truncate_fully_in_background(OFFSET, lambda: True, PREFIX)
    assert not log.truncation.checkpoints_durable(log.truncation_count)
    assert log.is_incomplete
    broker.finish()
    broker.begin_again()


def test_a_clean_stop_in_between_starts_empty() -> None:
    broker = Broker(tiered=False)
    log = broker.log
    log.truncate_fully_in_background(OFFSET, lambda: True, PREFIX)
    while log.log_end_offset != OFFSET:
        broker.workers.run(1)
    broker.workers.queue.clear()
    broker.env.timers = Timers()
    stopped = broker.dirs.shutdown(5)
    broker.workers.run()
    assert stopped.done
    broker.end(None)
    broker.start()
    assert broker.check_any() in ("empty", "new")
    broker.begin_again()
