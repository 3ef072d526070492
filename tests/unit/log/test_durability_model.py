"""A follower's log under losses of power at any moment, against all that it may hold then.

Method: a seed draws appends, rolls, truncations, new beginnings, flushes that end late, checkpoints
that are written late, kills, and losses of power between two operations or in the midst of one, in
recovery, too. Of what was not synced any part stays: pages of 512 bytes, four batches each, and
names, each for itself. What is found then must be a piece of the log as it is, or, while a
truncation was not durable, as it was: no old record behind a new one, no hole, and all that was
flushed. The producer state has the batches of this log only: each batch has a producer of its own.
"""

import os
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

from ottla.base.ids import NO_EPOCH
from ottla.log.config import LogConfig
from ottla.log.dirs.checkpoint_limits import CheckpointLimits
from ottla.log.flushing import Flushed
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import restamp
from ottla.testing.sim.disk import SimDisk
from tests.unit.log.support import Environment, QueuedWorkers, batch, values

HISTORIES = int(os.environ.get("OTTLA_DURABILITY_HISTORIES", "120"))
STEPS = 40
CONFIG = LogConfig(segment_bytes=1_024, index_interval_bytes=200, timestamp_after_max_ms=2**62)
BATCH_BYTES = 128
CHANGES = frozenset({"append", "write_at", "truncate", "sync", "rename", "remove", "sync_dir"}) | {
    "write_atomic"
}


class PowerLost(BaseException):
    """In the midst of an operation."""


class Entry(NamedTuple):
    """A record, which is a batch here."""

    offset: int
    value: bytes
    epoch: int


class State(NamedTuple):
    """What the log holds. `began`: it began again, so any piece of an older one may be left."""

    start: int
    end: int
    entries: tuple[Entry, ...]
    began: bool = False


class Checkpoint(NamedTuple):
    """What the checkpoints of the log directory say of the log, and what they make superfluous."""

    recovery_point: int
    log_start_offset: int
    numbers: tuple[int, ...]
    truncation_count: int


def sized(number: int, offset: int, epoch: int) -> tuple[bytes, bytes]:
    """Return a batch of one record, as a leader sends it, and the record's value."""
    producer = {"producer_id": number, "producer_epoch": 0, "base_sequence": 0}
    value = b"%08d" % number
    data = batch([value], key=None, **producer)
    value += bytes(BATCH_BYTES - len(data))
    data = batch([value], key=None, **producer)
    assert len(data) in (BATCH_BYTES, BATCH_BYTES + 1)
    if len(data) > BATCH_BYTES:
        value = value[:-1]
        data = batch([value], key=None, **producer)
    assert len(data) == BATCH_BYTES
    restamp(data, 0, base_offset=offset, leader_epoch=epoch)
    return bytes(data), value


class History:
    """One history. Fields: `older`: what the log was before truncations that are not durable."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.workers = QueuedWorkers()
        self.env = Environment(workers=self.workers)
        self.env.disk = self.disk = SimDisk(now_ms=self.env.clock.now_ms)
        self.disk.mkdir("/data")
        self.disk.sync_dir("/")
        self.disk.on_operation = self._operation
        self.doom: int | None = None
        self.checkpoint = Checkpoint(0, 0, (), 0)
        self.unwritten: list[Checkpoint] = []
        self.now = State(0, 0, ())
        self.older: list[State] = []
        self.flushed = 0
        self.cut_to: int | None = None
        """Where the log is being cut just now: what lies behind may go."""
        self.number = 0
        self.epochs: dict[bytes, int] = {}
        self.epoch_max = 0
        self.deleted: set[int] = set()
        """The numbers of the records that were below the log start once."""
        self.losses = 0
        self.log = self._open()

    def play(self) -> None:
        acts: list[tuple[int, Callable[[], None]]] = [
            (12, self.append),
            (3, self.truncate),
            (3, self.truncate_in_background),
            (1, self.start_anew),
            (4, self.truncate_and_go_on),
            (2, self.roll),
            (4, self.flush),
            (6, self.work),
            (4, self.begin_checkpoint),
            (4, self.end_checkpoint),
            (1, self.delete_records),
            (2, self.delete_expired_segments),
            (1, self.kill),
            (2, self.lose_power),
            (3, self.lose_power_soon),
        ]
        weights, choices = zip(*acts, strict=True)
        for _ in range(STEPS):
            act = self.random.choices(choices, weights)[0]
            try:
                act()
                self._settle()
                self._check_producers()
            except PowerLost:
                self._reopen_after_power_loss()
        self.lose_power()

    # --- what happens --------------------------------------------------------------------

    def append(self) -> None:
        if self.log.flusher.truncation_unflushed and self.random.random() < 0.5:
            self.workers.run()  # Mostly one waits for the flush, as a fetcher does.
            self._settle()
        # What a leader sends is not older than what it shares with its follower.
        there = [self.epochs[entry.value] for entry in self.now.entries]
        last = max(0, self.log.latest_epoch, *there)
        epoch = self.random.randint(last, max(last, self.epoch_max))
        for _ in range(self.random.randint(1, 6)):
            self.number += 1
            data, value = sized(self.number, self.now.end, epoch)
            before = self.now
            self.epochs[value] = epoch
            entry = Entry(before.end, value, epoch)
            # After a crash within the append it may have been done.
            self.now = State(before.start, before.end + 1, (*before.entries, entry), before.began)
            if self.log.flusher.truncation_unflushed:
                self.now = before
                self.log._check_appendable()
                self._settle()
                self.now = State(before.start, before.end + 1, (*before.entries, entry))
            self.log.append_as_follower(data, now_ms=0)
        self.log.advance_high_watermark(self.random.randint(0, self.now.end))

    def truncate_and_go_on(self) -> None:
        """What directed histories found to be the worst: all of it before anything has ended."""
        random = self.random
        self.flush()
        self.workers.run(random.randint(0, 2))
        self.begin_checkpoint()
        self.end_checkpoint()
        self.append()
        if random.random() < 0.5:
            self.flush()
        self.truncate()
        self._settle()
        if random.random() < 0.3:
            self.roll()
        for _ in range(random.randint(0, 3)):
            self.append()
            self._settle()
            self.workers.run(random.randint(0, 1))
            self._settle()
        if random.random() < 0.5:
            self.begin_checkpoint()
            self.end_checkpoint()
        if random.random() < 0.5:
            self.append()
        self.lose_power()

    def roll(self) -> None:
        self.log.roll(0)

    def truncate(self) -> None:
        offset = self._cut_at()
        self._will_be_cut(offset)
        self.log.truncate_to(offset)
        self._was_cut(offset)

    def truncate_in_background(self) -> None:
        offset = self._cut_at()
        self._will_be_cut(offset)
        wanted = self.random.random() < 0.8
        self.log.truncate_in_background(offset, lambda: wanted)
        self.workers.run()
        self.cut_to = None
        if wanted:
            self._was_cut(offset)

    def start_anew(self) -> None:
        offset = self.random.randint(0, self.now.end + 6)
        self.older = [state._replace(began=True) for state in (*self.older, self.now)]
        self.cut_to = 0
        if self.random.random() < 0.5:
            self.log.truncate_fully_and_start_at(offset)
        else:
            self.log.truncate_fully_in_background(offset, lambda: True)
            self.workers.run()
        self.now = State(offset, offset, ())
        self.flushed, self.cut_to = 0, None
        self.epoch_max += 1

    def flush(self) -> None:
        covered, generation = self.now.end, self.log.truncation_count
        self._note_flush(self.log.flush(), covered, generation)

    def work(self) -> None:
        self.workers.run(self.random.randint(1, 2))

    def begin_checkpoint(self) -> None:
        log = self.log
        content = (
            log.recovery_point,
            log.log_start_offset,
            tuple(log.limits),
            log.truncation_count,
        )
        self.unwritten.append(Checkpoint(*content))

    def end_checkpoint(self) -> None:
        if not self.unwritten:
            return
        self.checkpoint = self.unwritten.pop(0)
        self.log.truncation.checkpointed(self.checkpoint.numbers, self.checkpoint.truncation_count)
        if self.random.random() < 0.5:
            self.disk.sync_dir(self.log.directory)

    def delete_records(self) -> None:
        start = self.log.delete_records(self.random.randint(0, self.log.high_watermark))
        self._note_start(start)

    def delete_expired_segments(self) -> None:
        """The log start moves far, and is durable before the segments go."""
        self.log.delete_records(self.random.randint(self.now.start, self.log.high_watermark))
        start = self.log.log_start_offset
        self._note_start(start)
        # The checkpoint is of what the log was before a truncation, too.
        self.older = [each._replace(start=max(each.start, start)) for each in self.older]
        self.unwritten.clear()
        self.begin_checkpoint()
        self.end_checkpoint()
        self.disk.sync_dir(self.log.directory)
        self.log.delete_expired_segments(self.checkpoint.log_start_offset)

    def kill(self) -> None:
        """The process dies: all that it wrote is there."""
        self.doom = None
        self.disk.kill()
        if self._open_again():
            self._check_after_power_loss()
            return
        if not self.older:
            assert self.log.log_end_offset == self.now.end
            assert self._is_piece_of(self.now), (self._found(), self.now)
        self._check_producers()
        self._take_over(durable=False)

    def lose_power(self) -> None:
        self._reopen_after_power_loss()

    def lose_power_soon(self) -> None:
        if self.doom is None:
            self.doom = self.random.randint(1, 25)

    def _note_start(self, start: int) -> None:
        self.now = self.now._replace(start=start)
        self._note_deleted(self.now, start)

    def _note_deleted(self, state: State, start: int) -> None:
        self.deleted |= {int(each.value[:8]) for each in state.entries if each.offset < start}

    # --- what must hold ------------------------------------------------------------------

    def _reopen_after_power_loss(self) -> None:
        self.losses += 1
        self.doom = None
        self.disk.lose_power(self.random)
        self._open_again()
        self._check_after_power_loss()

    def _check_after_power_loss(self) -> None:
        if self.cut_to is not None:
            self.flushed = min(self.flushed, self.cut_to)
        found, start, end = self._found(), self.log.log_start_offset, self.log.log_end_offset
        assert [entry.offset for entry in found] == list(range(start, end)), "a hole"
        notified = (found, self.now, self.older, self.flushed)
        assert any(self._is_piece_of(state) for state in [self.now, *self.older]), notified
        assert end >= self.flushed, notified
        for state in [self.now, *self.older]:
            # The first segments of an older log may be gone, which is no truncation. If it was to
            # begin again and has not, the last may be left without its records.
            left_empty = state.began and start != self.now.start
            if (found or left_empty) and self._is_piece_of(state):
                self._note_deleted(state, start)
        self._check_producers()
        self._take_over(durable=True)

    def _check_producers(self) -> None:
        log = self.log
        there = {entry.offset: int(entry.value[:8]) for entry in self._found()}
        for number, producer in log.producers.entries.items():
            offset = producer.last_offset
            if offset < log.log_start_offset:
                assert number in self.deleted, (number, offset, log)
            else:
                assert there.get(offset) == number, (number, offset, log)

    def _is_piece_of(self, state: State) -> bool:
        log, found = self.log, self._found()
        start, end = log.log_start_offset, log.log_end_offset
        if not found:
            # Nothing of it was durable, or all of it was to go.
            return end <= state.end or state.began
        if start > state.start and not state.began:
            return False
        # Deleted records may be back, as in Kafka; where they are their epochs may be forgotten.
        start = max(start, state.start)
        there = [entry for entry in found if entry.offset >= start]
        expected = [entry for entry in state.entries if start <= entry.offset < end]
        return len(there) == len(expected) and all(
            one[:2] == other[:2] and other.epoch in (one.epoch, NO_EPOCH)
            for one, other in zip(there, expected, strict=True)
        )

    def _open_again(self) -> bool:
        """Open the log, where power may go while it is recovered; tell whether it did."""
        power_went = False
        while True:
            self.workers.queue.clear()
            self.unwritten.clear()
            if self.random.random() < 0.2:
                self.doom = self.random.randint(1, 12)
            try:
                self.log = self._open()
                self.doom = None
                return power_went
            except PowerLost:
                power_went = True
                self.doom = None
                self.disk.lose_power(self.random)

    def _take_over(self, *, durable: bool) -> None:
        """Go on with what was found."""
        log, found = self.log, tuple(self._found())
        if durable or self.older:
            self.flushed = min(log.recovery_point, log.log_end_offset)
        self.now = State(log.log_start_offset, log.log_end_offset, found)
        self.cut_to = None
        self.older.clear()

    # --- within --------------------------------------------------------------------------

    def _open(self) -> PartitionLog:
        point, start = self.checkpoint.recovery_point, self.checkpoint.log_start_offset
        return self.env.open(CONFIG, recovery_point=point, log_start_offset=start)

    def _operation(self, operation: str, path: str) -> None:
        if self.doom is not None and operation in CHANGES:
            self.doom -= 1
            if self.doom <= 0:
                raise PowerLost

    def _found(self) -> list[Entry]:
        found = [
            Entry(offset, value or b"", self.log.epoch_of(offset))
            for offset, value in values(self.log)
        ]
        return [entry for entry in found if entry.offset >= self.log.log_start_offset]

    def _note_flush(self, done: Flushed, covered: int, generation: int) -> None:
        def ended(error: OSError | None) -> None:
            assert error is None
            if self.log.truncation_count == generation:
                self.flushed = max(self.flushed, covered)

        done.then(ended)

    def _settle(self) -> None:
        """Follow that truncations are durable now."""
        if not self.log.flusher.truncation_unflushed:
            self.older.clear()

    def _cut_at(self) -> int:
        # Below the log start a log begins again, which `start_anew` plays.
        return self.random.randint(self.log.segments.first.base_offset, self.now.end)

    def _will_be_cut(self, offset: int) -> None:
        if offset < self.now.end:
            # Where only deleted records would be left a log begins again.
            began = offset <= self.now.start
            self.older.append(self.now)
            if began:
                self.older = [state._replace(began=True) for state in self.older]
            self.cut_to = 0 if began else offset

    def _was_cut(self, offset: int) -> None:
        self.cut_to = None
        if offset >= self.now.end:
            return
        if offset <= self.now.start:
            self.older = [state._replace(began=True) for state in self.older]
            self.now, self.flushed, self.cut_to = State(offset, offset, ()), 0, None
            return
        self.flushed, self.cut_to = min(self.flushed, offset), None
        entries = tuple(entry for entry in self.now.entries if entry.offset < offset)
        self.now = State(min(self.now.start, offset), offset, entries)
        self.epoch_max += self.random.randint(0, 1)


@pytest.mark.drawn(8, of="every step")
@pytest.mark.forms(1)
@pytest.mark.parametrize("part", range(5))
def test_power_losses_leave_what_the_log_was(part: int) -> None:
    losses = 0
    for seed in range(part * HISTORIES, (part + 1) * HISTORIES):
        history = History(seed)
        try:
            history.play()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        losses += history.losses
    assert losses > 2 * HISTORIES


def test_the_limits_of_a_truncation_are_all_checkpoints() -> None:
    """A new checkpoint needs a rule for truncations."""
    from ottla.log.dirs.log_dir import ALL_CHECKPOINTS

    assert len(CheckpointLimits._fields) == len(ALL_CHECKPOINTS)
