"""A real log whose older segments are in a model of an object store, and a reader of them.

The log is written first, in small segments; `tier` copies the sealed ones to the store under their
names, and moves the local log start. Time passes in `run`, which runs the store and the timers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.base.pending import Pending
from ottla.base.ports import Disk
from ottla.base.timers import Timers
from ottla.broker.fetch.remote_port import Found, RemoteData, RemoteFetch
from ottla.broker.produce.batch_work import BatchWork
from ottla.broker.remote.reads.reads import RemoteReader, RemoteReadLimits
from ottla.log.indexes.transaction_index import AbortedTransaction
from ottla.log.partition_log import PartitionLog
from ottla.log.results import ReadResult
from ottla.records.batch import iter_headers
from ottla.testing.sim.object_store import ObjectStoreFaults, ObjectStoreModel
from ottla.testing.sim.scheduler import Process, Scheduler, SimClock
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState
from tests.unit.log.support import InlineWorkers, content

KINDS = (ObjectKind.LOG, ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX, ObjectKind.TXN_INDEX)


@dataclass
class RemoteLog:
    """Remote segments, all of them readable."""

    known: list[SegmentMetadata] = field(default_factory=list)

    def segments(self) -> Sequence[SegmentMetadata]:
        return sorted(self.known, key=lambda segment: segment.start_offset)

    def segment_for(self, epoch: int, offset: int) -> SegmentMetadata | None:
        for segment in self.known:
            ends = [start for _, start in segment.epochs[1:]] + [segment.end_offset + 1]
            for (own, start), end in zip(segment.epochs, ends, strict=True):
                if own == epoch and start <= offset < end:
                    return segment
        return None


class TieredLog(PartitionLog):
    """A log whose files below `local_log_start_offset` count as deleted."""

    def read(self, offset: int, **how: Any) -> ReadResult:
        if self.log_start_offset <= offset < self.local_log_start_offset:
            raise ApiError(Error.OFFSET_MOVED_TO_TIERED_STORAGE)
        return super().read(offset, **how)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        local = max(start_offset, self.local_log_start_offset)
        assert self.segments[self.segments.floor(local)].base_offset == local
        return super().aborted_transactions(local, end_offset)


class Batch(NamedTuple):
    """A batch of the whole log; `segment`: the base offset of its segment."""

    segment: int
    base: int
    last: int
    data: bytes


def batches_of(log: PartitionLog) -> list[Batch]:
    """Return all batches of a log, from its files."""
    found: list[Batch] = []
    for segment in log.segments:
        data = segment.log.file().read_at(0, segment.size)
        for at, header in iter_headers(data):
            whole = data[at : at + header.size_in_bytes]
            found.append(Batch(segment.base_offset, header.base_offset, header.last_offset, whole))
    return found


def copied(
    log: PartitionLog, disk: Disk, put: Callable[[str, bytes], object], number: int = 0
) -> list[SegmentMetadata]:
    """Copy the sealed segments of a log; return their metadata. `number`: of the copy."""
    segments: list[SegmentMetadata] = []
    for index, local in enumerate(log.segments):
        if local.is_active:
            break
        end = log.segments.end_of(index, log.log_end_offset)
        if end <= log.log_start_offset:
            continue
        entries = [each for each in log.epochs.entries if each.start_offset < end]
        before = sum(entry.start_offset <= local.base_offset for entry in entries)
        epochs = tuple(
            (entry.epoch, local.base_offset if index == 0 else entry.start_offset)
            for index, entry in enumerate(entries[max(before - 1, 0) :])
        )
        # Records of Kafka's do not say that there is no transaction index.
        is_kafkas = not local.aborted() and index % 2 == 1
        segment = SegmentMetadata(
            topic=log.topic,
            topic_id=log.topic_id,
            partition=log.partition,
            broker_id=1,
            event_timestamp_ms=0,
            state=SegmentState.COPY_FINISHED,
            leader_epoch=0,
            tiered_epoch=NO_EPOCH if is_kafkas else 1,
            segment_id=Uuid(bytes([number]) * 8 + local.base_offset.to_bytes(8, "big")),
            start_offset=local.base_offset,
            end_offset=end - 1,
            max_timestamp_ms=local.max_timestamp.timestamp,
            size_bytes=local.size,
            epochs=epochs,
            txn_index_empty=not local.aborted() and not is_kafkas,
        )
        for kind in KINDS:
            path = local.path(f".{kind.value}")
            if disk.exists(path):
                put(object_name(segment, kind), disk.read_bytes(path))
        segments.append(segment)
    return segments


def tiered(log: PartitionLog, remote: int) -> TieredLog:
    """Make the first `remote` segments of a log, all of them sealed, count as deleted."""
    log.__class__ = TieredLog
    assert isinstance(log, TieredLog)
    log.offsets.local_log_start_offset = log.segments[remote].base_offset
    log.offsets.highest_remote_offset = log.segments.active.base_offset - 1
    return log


class Bench:
    """The store's model, its client, the reader; `log` is written by the test before `tier`."""

    def __init__(
        self,
        log: PartitionLog,
        limits: RemoteReadLimits | None = None,
        faults: ObjectStoreFaults | None = None,
        seed: int = 1,
    ) -> None:
        self.problems: list[BaseException] = []
        self.scheduler = Scheduler(lambda name, error: self.problems.append(error))
        self.model = ObjectStoreModel(self.scheduler, Random(seed), faults)
        self.clock = SimClock(self.scheduler)
        self.timers = Timers()
        self.whole = content(log)
        self.batches = batches_of(log)
        self.remote = RemoteLog()
        self.is_ready = True
        self.disk = log.ports.disk
        process = Process("node")
        process.held_until_us = 0
        self.reader = RemoteReader(
            self.model.client(process, clock=self.clock, read_file=self.disk.read_bytes),
            lambda topic_id, partition: self.remote if self.is_ready else None,
            self.clock,
            self.timers,
            limits or RemoteReadLimits(chunk_bytes=256, chunk_cache_bytes_max=64 * 1024),
        )
        self.work = BatchWork(InlineWorkers())
        self.closed: Pending[None] = Pending()
        self._log = log

    def put(self, name: str, data: bytes) -> None:
        self.model.put(name, data, replace=True)

    def tier(self, remote: int | None = None) -> TieredLog:
        """Copy all sealed segments, and delete the first so many, or all of them."""
        self.remote.known += copied(self._log, self.disk, self.put)
        return tiered(self._log, len(self._log.segments) - 1 if remote is None else remote)

    def run(self, ms: int = 1) -> None:
        for _ in range(ms):
            self.scheduler.run_until(self.scheduler.now_us + 1_000)
            self.timers.run_due(self.clock.monotonic_ms())
        assert not self.problems

    def run_until(self, holds: Callable[[], bool], ms: int = 120_000) -> None:
        until = self.clock.monotonic_ms() + ms
        while not holds():
            assert self.clock.monotonic_ms() < until, "it does not come"
            self.run()

    def wanted(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        at_least_one: bool = True,
        committed: bool = False,
    ) -> RemoteFetch:
        log = self._log
        bound = log.last_stable_offset if committed else log.high_watermark
        return RemoteFetch(log, offset, max_bytes, at_least_one, committed, bound)

    def ask(self, wanted: RemoteFetch, owner: Pending[None] | None = None) -> RemoteData | Error:
        """Return what a read brings, after any time."""
        owner = owner or self.closed
        ended: list[None] = []
        found = self.reader.read(wanted, owner, lambda: ended.append(None))
        if found is not None:
            return found
        self.run_until(lambda: bool(ended))
        found = self.reader.read(wanted, owner, lambda: None)
        assert found is not None
        return found

    def read(self, offset: int, max_bytes: int = 1 << 20, **how: bool) -> RemoteData:
        found = self.ask(self.wanted(offset, max_bytes, **how))
        assert isinstance(found, RemoteData), found
        return found

    def find_timestamp(self, timestamp: int, timeout_ms: int = 30_000) -> Found:
        found = self.reader.find_timestamp(
            self._log,
            timestamp,
            work=self.work,
            deadline_ms=self.clock.monotonic_ms() + timeout_ms,
            closed=self.closed,
        )
        self.run_until(lambda: found.done)
        return found.value

    def expected(self, offset: int, max_bytes: int, at_least_one: bool) -> bytes:
        """Return the whole batches of the offset's segment that a fetch may return."""
        rest = [each for each in self.batches if each.last >= offset]
        found = b""
        for each in rest:
            is_allowed = not found and at_least_one
            if each.segment != rest[0].segment:
                break
            if len(found) + len(each.data) > max_bytes and not is_allowed:
                break
            found += each.data
        return found

    def assert_idle(self) -> None:
        """Check that nothing is under way, reserved, or waiting for a timer."""
        reader = self.reader
        assert (reader.under_way, reader.reserved_bytes) == (0, 0)
        assert (len(reader.ranges), reader.ranges.calls) == (0, 0)
        assert len(self.timers) == 0
