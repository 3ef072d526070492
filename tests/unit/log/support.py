"""Fakes and builders for the log's tests: a clock, workers, a log on a disk in memory."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ottla.base.ids import Uuid
from ottla.base.timers import Timers
from ottla.log.config import LogConfig
from ottla.log.file_cache import FileCache
from ottla.log.indexes.timestamp_search import TimestampMatch, TimestampSearch
from ottla.log.opening import open_log
from ottla.log.partition_log import LogPorts, PartitionLog
from ottla.log.retention import ExpiredSegment
from ottla.records.builder import encode_batch
from ottla.records.compression import Codec
from ottla.testing.disk import MemoryDisk

T = TypeVar("T")

TOPIC_ID = Uuid(bytes(range(16)))
DIRECTORY = "/data/topic-0"


class FakeClock:
    """Both clocks, moved by hand."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class InlineWorkers:
    """Runs work at once."""

    def submit(
        self, work: Callable[[], T], done: Callable[[T | BaseException], None] | None = None
    ) -> None:
        try:
            result: T | BaseException = work()
        except Exception as error:
            result = error
        if done is not None:
            done(result)


class QueuedWorkers:
    """Keeps work until `run` is called, so that a test acts in between."""

    def __init__(self) -> None:
        self.queue: deque[tuple[Callable[[], Any], Callable[[Any], None] | None]] = deque()

    def submit(
        self, work: Callable[[], T], done: Callable[[T | BaseException], None] | None = None
    ) -> None:
        self.queue.append((work, done))

    def run(self, count: int | None = None) -> int:
        ran = 0
        while self.queue and ran != count:
            work, done = self.queue.popleft()
            InlineWorkers().submit(work, done)
            ran += 1
        return ran


@dataclass
class Environment:
    """A disk with what logs need beside it."""

    clock: FakeClock = field(default_factory=FakeClock)
    workers: InlineWorkers | QueuedWorkers = field(default_factory=InlineWorkers)
    timers: Timers = field(default_factory=Timers)
    open_files_max: int = 100
    failures: list[tuple[PartitionLog, OSError]] = field(default_factory=list)
    jitter_ms: Callable[[int], int] = field(default=lambda bound: 0)

    def __post_init__(self) -> None:
        self.disk = MemoryDisk(now_ms=self.clock.now_ms)
        self.disk.mkdir("/data")
        self.disk.sync_dir("/")

    def ports(self) -> LogPorts:
        return LogPorts(
            disk=self.disk,
            files=FileCache(self.disk, self.open_files_max),
            workers=self.workers,
            timers=self.timers,
            clock=self.clock,
            on_failure=lambda log, error: self.failures.append((log, error)),
            jitter_ms=self.jitter_ms,
        )

    def open(self, config: LogConfig | None = None, **options: Any) -> PartitionLog:
        return open_log(
            self.ports(),
            DIRECTORY,
            topic="topic",
            partition=0,
            topic_id=TOPIC_ID,
            config=config or LogConfig(timestamp_after_max_ms=2**62),
            **options,
        )

    def pass_ms(self, ms: int) -> None:
        self.clock.ms += ms
        self.timers.run_due(self.clock.ms)

    def names(self) -> list[str]:
        return self.disk.listdir(DIRECTORY)


def batch(
    values: int | list[bytes] = 1,
    *,
    size: int = 10,
    timestamp: int = 1_000_000,
    timestamps: list[int] | None = None,
    key: bytes | None = b"k",
    codec: Codec = Codec.NONE,
    **fields: Any,
) -> bytearray:
    """Return a batch of so many records of `size` bytes, or of these values."""
    bodies = [bytes(size)] * values if isinstance(values, int) else values
    times = timestamps or [timestamp] * len(bodies)
    rows = [(key, body, (), time) for body, time in zip(bodies, times, strict=True)]
    return bytearray(encode_batch(rows, codec=codec, **fields))


def produced(
    producer_id: int, epoch: int, sequence: int, count: int = 1, **fields: Any
) -> bytearray:
    """Return an idempotent producer's batch."""
    return batch(
        count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields
    )


def append(log: PartitionLog, data: bytes | bytearray, *, epoch: int = 0, **options: Any) -> int:
    """Append as leader; return the first offset."""
    now_ms = options.pop("now_ms", log.ports.clock.now_ms())
    return log.append_as_leader(data, leader_epoch=epoch, now_ms=now_ms, **options).first_offset


def make_complete(log: PartitionLog) -> None:
    """Make a log durable that begins with a remote prefix, as a broker's checkpoints do."""
    log.flush_now()
    log.truncation.checkpointed(list(log.limits), log.truncation_count)
    assert log.truncation.checkpoints_durable(log.truncation_count)
    log.ports.disk.sync_dir(log.directory)
    log.truncation.beginning_durable(log.truncation_count)
    assert not log.is_incomplete


def retain(log: PartitionLog, now_ms: int) -> list[ExpiredSegment]:
    """Apply retention as a broker does whose checkpoints are durable at once."""
    expired = log.expire_segments(now_ms)
    log.delete_expired_segments(log.local_log_start_offset)
    return expired


def content(log: PartitionLog, offset: int | None = None, upper: int | None = None) -> bytes:
    """Return the log's bytes from `offset` on, read as a consumer would."""
    position = log.local_log_start_offset if offset is None else offset
    end = log.log_end_offset if upper is None else upper
    parts: list[bytes] = []
    while position < end:
        found = log.read(position, max_bytes=1 << 20, upper_bound=end, at_least_one=True)
        if not found.slices:
            break
        data = b"".join(piece.read() for piece in found.slices)
        for piece in found.slices:
            piece.release()
        from ottla.records.batch import iter_headers

        whole = 0
        for start, header in iter_headers(data, allow_partial=True):
            whole = start + header.size_in_bytes
            position = header.next_offset
        parts.append(data[:whole])
    return b"".join(parts)


def values(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    """Return offsets and values of the local log's records, control records left out."""
    from ottla.records.record import iter_records

    return [
        (record.offset, record.value)
        for record in iter_records(content(log))
        if record.offset >= log.local_log_start_offset
    ]


def found_by(search: TimestampSearch | None) -> TimestampMatch | None:
    """Return what a search finds, if there is one."""
    if search is None:
        return None
    try:
        return search.run()
    finally:
        search.release()


def offset_for_timestamp(log: PartitionLog, timestamp: int) -> TimestampMatch | None:
    """Return the first record of a log from that time on."""
    start_offset: int | None = 0
    while start_offset is not None:
        search = log.search_timestamp(timestamp, start_offset)
        found = found_by(search)
        if search is None or found is not None:
            return found
        start_offset = search.end_offset
    return None


def max_timestamp_offset(log: PartitionLog) -> TimestampMatch | None:
    """Return a log's latest record."""
    return found_by(log.search_max_timestamp())
