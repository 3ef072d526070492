"""A log whose first records are in remote storage only keeps both starts, and drops no record.

Law: at any time, and after any restart, each offset from the log start on is in the local log from
the local log start on, with its own record, or in remote storage below; a read gets its record, or
OFFSET_MOVED_TO_TIERED_STORAGE, or OFFSET_OUT_OF_RANGE below the log start; the log start is never
below one that was durable, the log's end never below what was flushed; the leader epochs of all
these offsets are known.
Method: hypothesis plays histories of appends, rolls, copies, both retentions, DeleteRecords,
truncations, new beginnings, clean stops, kills and power losses against a broker's log directory on
the simulator's disk, whose power losses keep any part of what was not synced. Remote storage is a
table of records; those below the log start are deleted once it is durable. While a truncation is
not durable, a power loss may leave the log as it was before.
"""

from dataclasses import dataclass, replace
from random import Random

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.timers import Timers
from ottla.log.config import LogConfig
from ottla.log.dirs.dir_loading import Verdict
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.dirs.meta_properties import MetaProperties, encode_meta_properties
from ottla.log.epoch_cache import EpochCache, EpochEntry
from ottla.log.partition_log import PartitionLog
from ottla.log.remote_prefix import RemotePrefix
from ottla.log.results import NOTHING
from ottla.records.batch import parse_header
from ottla.testing.sim.disk import SimDisk
from tests.drawn import examples
from tests.unit.log.support import TOPIC_ID, Environment, QueuedWorkers, append, batch, values

TIERED = LogConfig(
    segment_bytes=300,
    index_interval_bytes=100,
    retention_ms=-1,
    remote_storage=True,
    local_retention_ms=1_000,
    timestamp_after_max_ms=2**62,
)
NOT_TIERED = replace(TIERED, remote_storage=False, local_retention_ms=-1)


@dataclass(frozen=True)
class State:
    """What the partition is: its records and their epochs, and which are in remote storage."""

    start: int
    records: tuple[tuple[bytes, int], ...]
    """Value and epoch of each offset from 0 on."""
    remote: frozenset[int]

    @property
    def end(self) -> int:
        return len(self.records)

    def cut(self, end: int) -> "State":
        remote = frozenset(offset for offset in self.remote if offset < end)
        return State(min(self.start, end), self.records[:end], remote)


class Story:
    """A broker's log over several restarts, and what must be in it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.workers = QueuedWorkers()
        self.env = Environment(workers=self.workers)
        self.disk = self.env.disk = SimDisk(now_ms=self.env.clock.now_ms)
        self.disk.mkdir("/d1")
        properties = MetaProperties(cluster_id="c", node_id=1, directory_id=Uuid(bytes([9] * 16)))
        self.disk.write_atomic("/d1/meta.properties", encode_meta_properties(properties))
        self.disk.settle()
        self.now = State(0, (), frozenset())
        self.older: list[State] = []
        """What the log was before truncations that are not durable."""
        self.durable_start = 0
        self.deleted_to = 0
        """Below, records are deleted, though a power loss may take the log start back."""
        self.flushed = 0
        self.epoch = 0
        self.config = TIERED
        self.prefixed = 0
        """How many starts found a remote prefix."""
        self.start()
        self.dirs.get_or_create("t", TOPIC_ID, 0, self.config).flush()
        self.finish()

    @property
    def log(self) -> PartitionLog:
        log = self.dirs.get("t", 0)
        assert log is not None
        return log

    # --- restarts ---

    def start(self) -> None:
        self.dirs = LogDirs(
            self.disk,
            self.workers,
            self.env.clock,
            self.env.timers,
            ["/d1"],
            delete_delay_ms=1_000,
        )
        self.dirs.acquire(node_id=1, cluster_id="c")
        self.dirs.load(lambda *_: Verdict.KEEP, lambda _: self.config)
        self.workers.run()

    def restart(self, *, power: bool) -> None:
        self.workers.queue.clear()
        self.env.timers = Timers()
        if power:
            self.disk.lose_power(self.random)
        else:
            self.disk.kill()
            self.flushed = self.now.end
        self.start()
        self.take_over(power=power)

    def kill(self) -> None:
        self.restart(power=False)

    def lose_power(self) -> None:
        self.restart(power=True)

    def stop(self) -> None:
        self.finish()
        start, local = self.log.log_start_offset, self.log.local_log_start_offset
        stopped = self.dirs.shutdown(5)
        self.finish()
        assert stopped.done
        self.workers.queue.clear()
        self.env.timers = Timers()
        self.disk.kill()
        self.start()
        assert (self.log.log_start_offset, self.log.local_log_start_offset) == (start, local)
        self.flushed = self.now.end
        self.take_over(power=False)

    def take_over(self, *, power: bool) -> None:
        """Check what a start has found, and go on with it."""
        log = self.log
        self.prefixed += log.has_remote_prefix
        states = [self.now, *self.older] if power or self.older else [self.now]
        details = (log, log.local_log_start_offset, self.now, self.older)
        assert any(self.is_state(state) for state in states), details
        assert log.log_end_offset >= self.flushed, details
        assert log.log_start_offset >= min(self.durable_start, log.log_end_offset), details
        state = next(state for state in states if self.is_state(state))
        self.now = replace(state.cut(log.log_end_offset), start=log.log_start_offset)
        self.older.clear()
        self.flushed = log.log_end_offset
        self.dirs.checkpoint()
        self.finish()

    def is_state(self, state: State) -> bool:
        """Tell whether the log may be what it is, if it was to be in this state."""
        log = self.log
        start, local, end = log.log_start_offset, log.local_log_start_offset, log.log_end_offset
        # The log start may also be between one that was durable and one that was not.
        if end > state.end or start > max(state.start, self.deleted_to):
            return False
        there = dict(values(log))
        for offset in range(start, end):
            value, epoch = state.records[offset]
            if offset >= max(local, state.start) and there.get(offset) != value:
                return False
            # Also where a log start that was not durable went back, in remote storage, too.
            if log.epoch_of(offset) != epoch:
                return False
        return state.remote >= set(range(max(start, self.deleted_to), local))

    def finish(self) -> None:
        """Let all background work end."""
        while self.workers.queue or self.env.timers.next_ms() is not None:
            self.workers.run()
            self.env.pass_ms(1_000)
        self.settle()

    def settle(self) -> None:
        if not self.log.flusher.truncation_unflushed:
            self.older.clear()

    # --- what happens ---

    def append(self) -> None:
        self.workers.run()  # As a fetcher waits for the flush of a truncation.
        if self.log.flusher.truncation_unflushed:
            return
        self.settle()
        self.epoch += self.random.random() < 0.2
        for _ in range(self.random.randint(1, 6)):
            value = b"%040d" % self.random.randrange(10**9)
            append(self.log, batch([value], timestamp=self.env.clock.ms), epoch=self.epoch)
            self.now = replace(self.now, records=(*self.now.records, (value, self.epoch)))
        self.log.advance_high_watermark(self.random.randint(self.now.start, self.now.end))

    def commit(self) -> None:
        self.log.advance_high_watermark(self.now.end)

    def flush(self) -> None:
        end, generation = self.now.end, self.log.truncation_count
        log = self.log

        def flushed(error: OSError | None) -> None:
            assert error is None
            if log.truncation_count == generation:
                self.flushed = max(self.flushed, end)

        log.flush().then(flushed)

    def work(self) -> None:
        self.workers.run(self.random.randint(1, 3))
        self.settle()

    def pass_time(self) -> None:
        self.env.pass_ms(self.random.choice((1, 700, 5_000)))

    def copy(self) -> None:
        """Copy sealed, committed segments to remote storage, the oldest first."""
        log = self.log
        copied = log.highest_remote_offset
        if copied < 0:  # As after a restart: what is known there is found again.
            there = [o for o in self.now.remote if o < self.now.end]
            copied = max(there, default=-1)
            log.remote_copied_to(copied)
        for segment in log.local_segments():
            if segment.is_active or segment.end_offset > log.high_watermark:
                break
            if segment.end_offset <= max(copied + 1, log.log_start_offset):
                continue
            files = log.segment_files(segment.base_offset)
            assert files is not None
            assert files.is_intact()
            # An object is durable when it is written, whatever the disk here forgets.
            added = range(segment.base_offset, segment.end_offset)
            self.now = replace(self.now, remote=self.now.remote | set(added))
            log.remote_copied_to(segment.end_offset - 1)
            if self.random.random() < 0.5:
                break

    def retain(self) -> None:
        self.log.expire_segments(self.env.clock.ms)
        self.dirs.delete_expired_segments()

    def expire_remote(self) -> None:
        """The log start moves first, durably; then remote segments are deleted."""
        log = self.log
        target = self.random.randint(log.log_start_offset, log.high_watermark)
        log.advance_log_start(target)
        self.now = replace(self.now, start=log.log_start_offset)
        target, generation = log.log_start_offset, log.truncation_count

        def durable(error: OSError | None) -> None:
            assert error is None
            if log.truncation_count == generation and not log.limits:
                self.durable_start = max(self.durable_start, target)
                self.now = replace(
                    self.now, remote=frozenset(o for o in self.now.remote if o >= target)
                )

        self.dirs.checkpoint_log_start(log).then(durable)

    def delete_records(self) -> None:
        log = self.log
        log.delete_records(self.random.randint(log.log_start_offset, log.high_watermark))
        self.now = replace(self.now, start=log.log_start_offset)

    def truncate(self) -> None:
        log = self.log
        offset = self.random.randint(log.log_start_offset, self.now.end)
        if offset < self.now.end:
            self.older.append(self.now)
            self.flushed = min(self.flushed, offset)
        if offset == log.log_start_offset:
            self.flushed = 0  # Nothing is left: it begins again, where the next start finds it.
        if self.random.random() < 0.5:
            log.truncate_to(offset)
            self.now = self.now.cut(offset)
        else:
            wanted = self.random.random() < 0.8
            log.truncate_in_background(offset, lambda: wanted)
            if self.random.random() < 0.2:
                self.delete_records()
            self.workers.run(self.random.randint(1, 3))
            self.flushed = min(self.flushed, offset)  # A flush may have ended meanwhile.
            if offset <= log.log_start_offset:
                self.flushed = 0
            if log.log_end_offset <= offset:
                self.now = self.now.cut(offset)
            else:
                self.workers.queue.clear()
                self.restart(power=True)
                return
        self.epoch += 1
        self.settle()

    def begin_with_prefix(self) -> None:
        """As a new follower does: only what is in remote storage is there, for the leader's log."""
        offset = self.now.start
        while offset in self.now.remote and offset < self.log.high_watermark:
            offset += 1
        if offset == self.now.start:
            return
        cache = EpochCache()
        for each in range(self.now.start, offset):
            cache.assign(self.now.records[each][1], each)
        epochs = tuple(EpochEntry(*entry) for entry in cache.entries)
        prefix = RemotePrefix(log_start_offset=self.now.start, epochs=epochs)
        done = self.log.truncate_fully_in_background(offset, lambda: True, prefix)
        before = self.now
        self.flushed = 0
        # Until it is done, any piece of the old log may be left, or the new one without its prefix.
        if self.random.random() < 0.3:
            self.workers.run(self.random.randint(0, 4))
            self.workers.queue.clear()
            self.env.timers = Timers()
            if self.random.random() < 0.5:
                self.disk.lose_power(self.random)
            else:
                self.disk.kill()
            self.start()
            log = self.log
            prefix_found = range(log.log_start_offset, log.local_log_start_offset)
            assert before.remote >= {each for each in prefix_found if each >= self.deleted_to}
            # The follower begins again, or goes on; here it begins again.
            done = log.truncate_fully_in_background(offset, lambda: True, prefix)
        self.finish()
        assert done.done
        assert done.value is None
        self.now = before.cut(offset)
        self.older.clear()
        log = self.log
        assert (log.log_start_offset, log.local_log_start_offset) == (before.start, offset)
        self.flushed = offset
        log.advance_high_watermark(offset)
        if self.random.random() < 0.5:
            self.restart(power=True)
            assert (self.log.log_start_offset, self.log.local_log_start_offset) == (
                before.start,
                offset,
            )

    def start_anew(self) -> None:
        """As a follower does whose leader's log start is beyond its log's end."""
        offset = self.now.end + self.random.randint(1, 4)
        self.log.truncate_fully_in_background(offset, lambda: True)
        before, self.flushed = self.now, 0
        if self.random.random() < 0.5:
            self.workers.run(self.random.randint(0, 4))
            self.workers.queue.clear()
            self.env.timers = Timers()
            self.disk.lose_power(self.random)
            self.start()
            log = self.log
            found = range(log.log_start_offset, log.local_log_start_offset)
            assert before.remote >= {each for each in found if each >= self.deleted_to}
            log.truncate_fully_in_background(offset, lambda: True)
        self.finish()
        self.older.clear()
        padding = ((b"", -1),) * (offset - before.end)
        self.now = State(offset, before.records + padding, frozenset())
        self.epoch += 1
        if self.random.random() < 0.5:
            self.lose_power()

    def reconfigure(self) -> None:
        self.config = self.random.choice((TIERED, TIERED, NOT_TIERED))
        self.log.reconfigure(self.config)

    def checkpoint(self) -> None:
        self.dirs.checkpoint()

    # --- what must hold ---

    def check(self) -> None:
        log = self.log
        start, local, end = log.log_start_offset, log.local_log_start_offset, log.log_end_offset
        assert start == self.now.start
        assert start <= local <= log.high_watermark <= end == self.now.end
        assert log.segments.first.base_offset <= local
        self.deleted_to = max(start, min(self.deleted_to, end))
        assert self.now.remote >= set(range(self.deleted_to, local))
        for offset in (self.random.randint(0, end + 1), start, local, end):
            self.check_read(offset)

    def check_read(self, offset: int) -> None:
        log = self.log
        try:
            found = log.read(offset, max_bytes=1, upper_bound=log.log_end_offset, at_least_one=True)
        except ApiError as error:
            found, refusal = NOTHING, error.error
        else:
            refusal = Error.NONE
        data = b"".join(piece.read() for piece in found.slices)
        for piece in found.slices:
            piece.release()
        if not log.log_start_offset <= offset <= log.log_end_offset:
            assert refusal is Error.OFFSET_OUT_OF_RANGE
        elif offset < log.local_log_start_offset:
            assert refusal is Error.OFFSET_MOVED_TO_TIERED_STORAGE
        elif offset < log.log_end_offset:
            assert parse_header(data).base_offset == offset
        else:
            assert not data


ACTS = [
    (10, Story.append),
    (5, Story.commit),
    (4, Story.flush),
    (6, Story.work),
    (4, Story.pass_time),
    (6, Story.copy),
    (6, Story.retain),
    (2, Story.expire_remote),
    (1, Story.delete_records),
    (2, Story.truncate),
    (1, Story.begin_with_prefix),
    (0.5, Story.start_anew),
    (1, Story.reconfigure),
    (2, Story.checkpoint),
]


def play(seed: int) -> Story:
    random = Random(seed)
    story = Story(random)
    weights, choices = zip(*ACTS, strict=True)
    for _ in range(60):
        act = random.choices(choices, weights)[0]
        act(story)
        story.check()
        if random.random() < 0.08:
            end = random.choice((Story.stop, Story.kill, Story.lose_power, Story.lose_power))
            end(story)
            story.check()
    return story


@given(seed=st.integers(0, 2**32))
@example(seed=20044097)  # A truncation finds a damaged snapshot.
@example(seed=902144)  # DeleteRecords, a kill that takes it back, and a truncation below it.
@example(seed=58466)  # DeleteRecords within a truncation that is not durable.
@settings(max_examples=examples(150), deadline=None)
def test_both_starts_survive_and_nothing_is_dropped(seed: int) -> None:
    story = play(seed)
    event(f"with a remote prefix at a restart: {story.prefixed > 0}")
