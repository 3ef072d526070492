"""A log against a plain list, through everything that can happen to it.

Method: Hypothesis draws appends, rolls, flushes, reads, lookups, truncations, record deletions,
retention, clean restarts, kills and power losses that keep any part of what was not synced. After
each step the log must hold what the model says: after a power loss, some prefix that contains all
that was flushed.
"""

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.base.errors import ApiError, Error
from ottla.log.config import LogConfig
from ottla.log.names import SNAPSHOT, parse_segment_name
from tests.drawn import examples
from tests.unit.log.support import Environment, append, batch, offset_for_timestamp, retain, values

CONFIG = LogConfig(
    segment_bytes=900,
    index_interval_bytes=150,
    segment_index_bytes=64,
    retention_ms=1_000,
    timestamp_after_max_ms=2**62,
)
PRODUCERS = st.integers(0, 2)


@dataclass
class Entry:
    """A record of the model: one record is one offset."""

    offset: int
    value: bytes
    timestamp: int
    epoch: int
    batch_start: int


class LogModel(RuleBasedStateMachine):
    """See the module."""

    @initialize()
    def begin(self) -> None:
        self.env = Environment()
        self.log = self.env.open(CONFIG)
        self.entries: list[Entry] = []
        self.start = 0
        self.end = 0
        self.high_watermark = 0
        self.flushed_to = 0
        self.checkpoint = 0
        self.checkpoint_start = 0
        self.epoch = 0
        self.number = 0
        self.sequences: dict[int, int] = {}

    # --- rules -------------------------------------------------------------------------

    @rule(count=st.integers(1, 4), size=st.integers(1, 120), later=st.integers(-50, 400))
    def append(self, count: int, size: int, later: int) -> None:
        bodies = [b"%d:" % (self.number + index) + bytes(size) for index in range(count)]
        self.number += count
        timestamp = self.env.clock.ms + later
        first = append(self.log, batch(bodies, timestamp=timestamp), epoch=self.epoch)
        assert first == self.end
        self._note(bodies, timestamp)

    @rule(producer=PRODUCERS, count=st.integers(1, 3), again=st.booleans())
    def append_idempotent(self, producer: int, count: int, again: bool) -> None:
        sequence = self.sequences.get(producer, 0)
        bodies = [b"p%d-%d" % (producer, sequence + index) for index in range(count)]
        data = batch(bodies, producer_id=producer, producer_epoch=0, base_sequence=sequence)
        timestamp = 1_000_000
        info = self.log.append_as_leader(
            bytes(data), leader_epoch=self.epoch, now_ms=self.env.clock.ms
        )
        assert not info.duplicate
        assert info.first_offset == self.end
        self._note(bodies, timestamp)
        self.sequences[producer] = sequence + count
        if again:
            repeated = self.log.append_as_leader(
                bytes(data), leader_epoch=self.epoch, now_ms=self.env.clock.ms
            )
            assert repeated.duplicate
            assert repeated.first_offset == info.first_offset
            assert repeated.last_offset == info.last_offset

    @rule(producer=PRODUCERS)
    def a_gap_in_the_sequence_is_refused(self, producer: int) -> None:
        if producer not in self.log.producers.entries:
            return
        data = batch(
            1, producer_id=producer, producer_epoch=0, base_sequence=self.sequences[producer] + 1
        )
        with pytest.raises(ApiError) as caught:
            append(self.log, data)
        assert caught.value.error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule()
    def roll(self) -> None:
        self.log.roll(self.env.clock.ms)
        self.flushed_to = max(self.flushed_to, self.log.segments.active.base_offset)

    @rule()
    def flush(self) -> None:
        assert self.log.flush().value is None
        assert self.log.recovery_point == self.end
        self.flushed_to = self.end

    @rule()
    def write_checkpoints(self) -> None:
        self.checkpoint = self.log.recovery_point
        self.checkpoint_start = self.log.log_start_offset

    @rule(share=st.floats(0, 1))
    def advance_high_watermark(self, share: float) -> None:
        """To the end of some batch, as followers' fetches have it."""
        target = self.start + round((self.end - self.start) * share)
        target = min(
            entry.batch_start
            for entry in [*self.entries, self._next()]
            if (entry.batch_start >= target)
        )
        self.log.advance_high_watermark(target)
        self.high_watermark = max(self.high_watermark, target)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        target = round(self.high_watermark * share)
        assert self.log.delete_records(target) == max(target, self.start)
        self._start_at(max(target, self.start))

    @rule(ms=st.integers(0, 2_000))
    def let_time_pass_and_retain(self, ms: int) -> None:
        self.env.pass_ms(ms)
        now_ms = self.env.clock.ms
        before = self.log.log_start_offset
        deleted = retain(self.log, now_ms)
        start = self.log.log_start_offset
        assert start >= before
        assert start <= max(self.high_watermark, before)
        if not any(gone.reason.name == "LOG_START" for gone in deleted):
            kept = [entry for entry in self.entries if entry.offset >= start]
            gone = [entry for entry in self.entries if entry.offset < start]
            assert all(now_ms - entry.timestamp > CONFIG.retention_ms for entry in gone)
            assert len(kept) + len(gone) == len(self.entries)
        self._start_at(start)

    @precondition(lambda self: self.end > self.high_watermark)
    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """As a follower does: never below the high watermark, here at a batch's start."""
        target = self.high_watermark + round((self.end - self.high_watermark) * share)
        starts = [entry.batch_start for entry in self.entries if entry.offset >= target]
        target = max([min([target, *starts]), self.start])
        self.log.truncate_to(target)
        # Before a flush a power loss may undo the truncation, which the model does not follow.
        assert self.log.flush().value is None
        self._end_at(target)

    @rule()
    def begin_another_epoch(self) -> None:
        self.epoch += 1
        self.log.assign_epoch(self.epoch)

    @rule()
    def restart_cleanly(self) -> None:
        job = self.log.prepare_close()
        job.run()
        job.release(failed=False)
        self.log.flushed(job)
        self.log.close()
        self.flushed_to = self.end
        self.checkpoint, self.checkpoint_start = self.end, self.log.log_start_offset
        self._reopen(clean=True)
        assert self.log.log_end_offset == self.end

    @rule()
    def kill_the_process(self) -> None:
        self.env.disk.kill()
        self._reopen(clean=False)
        assert self.log.log_end_offset == self.end

    @rule(keep=st.lists(st.floats(0, 1), min_size=1, max_size=3))
    def lose_power(self, keep: list[float]) -> None:
        turn = iter(range(10**9))
        self.env.disk.crash(lambda path, count: round(count * keep[next(turn) % len(keep)]))
        self._reopen(clean=False)
        end = self.log.log_end_offset
        assert self.flushed_to <= end <= self.end
        self._end_at(end)

    # --- what must hold ----------------------------------------------------------------

    @invariant()
    def records_are_the_models(self) -> None:
        assert self.log.log_start_offset == self.start
        assert self.log.log_end_offset == self.end
        assert values(self.log) == [(entry.offset, entry.value) for entry in self.entries]
        assert self.env.failures == []

    @invariant()
    def sizes_are_those_of_the_files(self) -> None:
        partition_dir = self.log.directory
        sizes = [
            self.env.disk.size(f"{partition_dir}/{name}")
            for name in self.env.names()
            if name.endswith(".log")
        ]
        assert self.log.size_bytes == sum(sizes)

    @invariant()
    def epochs_are_the_models(self) -> None:
        assert [self.log.epoch_of(entry.offset) for entry in self.entries] == [
            entry.epoch for entry in self.entries
        ]

    @invariant()
    def timestamps_lead_to_the_first_record(self) -> None:
        for timestamp in {entry.timestamp for entry in self.entries[::3]}:
            expected = next(entry for entry in self.entries if entry.timestamp >= timestamp)
            found = offset_for_timestamp(self.log, timestamp)
            assert found is not None
            assert (found.offset, found.timestamp) == (expected.offset, expected.timestamp)

    @invariant()
    def producers_are_those_of_the_records(self) -> None:
        for producer, entry in self.log.producers.entries.items():
            assert entry.last_sequence == self.sequences[producer] - 1

    @invariant()
    def no_snapshot_lies_beyond_the_end(self) -> None:
        for name in self.env.names():
            parsed = parse_segment_name(name)
            if parsed is not None and parsed[1] == SNAPSHOT:
                assert parsed[0] <= self.end

    # --- within ------------------------------------------------------------------------

    def _note(self, bodies: list[bytes], timestamp: int) -> None:
        start = self.end
        for index, body in enumerate(bodies):
            self.entries.append(Entry(start + index, body, timestamp, self.epoch, start))
        self.end += len(bodies)
        # A full segment was flushed on its way.
        self.flushed_to = max(self.flushed_to, self.log.segments.active.base_offset)

    def _next(self) -> Entry:
        return Entry(self.end, b"", 0, self.epoch, self.end)

    def _start_at(self, start: int) -> None:
        self.start = start
        self.entries = [entry for entry in self.entries if entry.offset >= start]

    def _end_at(self, end: int) -> None:
        self.entries = [entry for entry in self.entries if entry.offset < end]
        self.end = end
        self.flushed_to = min(self.flushed_to, end)
        self.checkpoint = min(self.checkpoint, end)
        self.high_watermark = min(self.high_watermark, end)
        self.sequences = {
            producer: entry.last_sequence + 1
            for producer, entry in self.log.producers.entries.items()
        }

    def _reopen(self, *, clean: bool) -> None:
        before = self.log.log_start_offset
        self.log = self.env.open(
            CONFIG,
            clean=clean,
            recovery_point=self.checkpoint,
            log_start_offset=self.checkpoint_start,
            high_watermark=self.high_watermark,
        )
        # The log start's checkpoint may be behind; then deleted records whose segment is still
        # there are back, as in Kafka. The model forgets them as the log does not.
        assert self.log.log_start_offset <= before
        self.log.advance_high_watermark(before)
        self.log.delete_records(min(before, self.log.high_watermark))
        self.high_watermark = self.log.high_watermark
        self._start_at(self.log.log_start_offset)


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
