"""What the tasks of a backfill do: take a grant, copy its segment, commit it, and again.

A task asks for its grants itself, one at a time: so no lease counts while a task waits to be
started, the time of a lease and of the writes is that of one clock, and a task that Spark repeats
has grants of its own. Nothing is written after the end of a lease: a leader counts on it when it
deletes the objects of a copy that has ended.
"""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.object_store import FileSource, ObjectInfo, Source, StoreError
from ottla.base.ports import Buffer
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.errors import ClientError
from ottla.client.fetch import fetch
from ottla.records.errors import CorruptBatch, RecordsError
from ottla.spark.errors import ClusterError, RemoteStorageError
from ottla.spark.jobs.copy_grants import (
    CopyEnded,
    CopyTarget,
    ask_grants,
    commit_copies,
    object_of,
)
from ottla.spark.jobs.segment_builder import SegmentBuilder
from ottla.spark.jobs.target_store import TargetStore
from ottla.spark.store_session import POOL, RETRIES
from ottla.tiered.object_names import ObjectKind
from ottla.wire.messages import commit_segment_copies as commits
from ottla.wire.messages import grant_segment_copies as grants

FETCH_BYTES: Final = 8 * 1024 * 1024
FETCH_WAIT_MS: Final = 500
EMPTY_FETCHES_MAX: Final = 20
FAILURES_MAX: Final = 3
"""Failed copies of a task after which it ends: the next round begins others."""

FINISHED, KEPT, FAILED, OTHER_STORE, REFUSED = (
    "finished", "kept", "failed", "other store", "refused",
)  # fmt: skip
"""What became of a copy; REFUSED = there was no grant, and will be none."""

_EXPECTED: Final = (CopyEnded, ClusterError, ClientError, RemoteStorageError, RecordsError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """How the tasks copy.

    Fields: `remote_storage`: the brokers' store. `lease_s`: within which a copy must be committed,
            unless it is renewed. `round_s`: after which a task takes no other segment.
    """

    cluster: ClientConfig
    remote_storage: str
    lease_s: float
    round_s: float
    timeout_s: float

    @property
    def lease_ms(self) -> int:
        return int(self.lease_s * 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRow:
    """One copy of a task. `detail`: why it was not finished."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int
    state: str
    detail: str = ""


def copy_segments(
    targets: Sequence[CopyTarget], options: CopyOptions, number: int
) -> Iterator[CopyRow]:
    """Copy segments of partitions, for one round; yield a row for each. `number`: of the task.

    It ends when the others copy all that is left, too.
    """
    until_s = time.monotonic() + options.round_s
    first = number % len(targets)
    waiting = [*targets[first:], *targets[:first]]
    failures = 0
    with (
        ClusterClient(options.cluster) as client,
        SegmentStore(options.remote_storage, options.timeout_s) as store,
    ):
        while waiting and failures < FAILURES_MAX and time.monotonic() < until_s:
            target = waiting.pop(0)
            copy = SegmentCopy(client, store, target, options)
            try:
                row = copy.run()
            except ClusterError as error:
                row = _row(target, None, REFUSED, str(error))
            if row is None:
                continue  # Nothing of it is left, or all of that is being copied.
            yield row
            if row.state in (OTHER_STORE, REFUSED):
                return
            failures += row.state == FAILED
            waiting.append(target)


def _row(
    target: CopyTarget, segment: grants.GrantedSegment | None, state: str, detail: str = ""
) -> CopyRow:
    return CopyRow(
        topic=target.topic,
        partition=target.partition,
        start_offset=-1 if segment is None else segment.start_offset,
        end_offset=-1 if segment is None else segment.end_offset,
        size_bytes=0 if segment is None else segment.size_bytes,
        state=state,
        detail=detail,
    )


class SegmentCopy:
    """One grant of a partition, and what is made of it."""

    def __init__(
        self, client: ClusterClient, store: "SegmentStore", target: CopyTarget, options: CopyOptions
    ) -> None:
        self._client = client
        self._store = store
        self._target = target
        self._options = options
        self._holder = Uuid(os.urandom(16))
        self._until_s = 0.0
        self._renew_s = 0.0

    def run(self) -> CopyRow | None:
        """Copy a segment; None = none is granted. Raises: ClusterError where there is no grant."""
        granted = self._ask()
        if not granted.segments:
            return None
        (segment,) = granted.segments
        try:
            sizes = self._write(segment, granted.leader_epoch)
            return self._commit(granted, segment, sizes)
        except _EXPECTED as error:
            self._give_up(granted, segment, str(error))
            return _row(self._target, segment, FAILED, str(error))

    # -- the grant -----------------------------------------------------------------------------

    def _ask(self) -> grants.GrantedPartition:
        """Take a grant, or renew it. Its time counts from before the request."""
        asked_s = time.monotonic()
        lease_ms = self._options.lease_ms
        granted = ask_grants(
            self._client, self._target, self._holder, segments=1, lease_ms=lease_ms
        )
        for each in granted.segments:
            self._until_s = asked_s + each.lease_ms / 1_000
            self._renew_s = asked_s + each.lease_ms / 2_000
        return granted

    def _check_lease(self, segment: grants.GrantedSegment) -> None:
        """Renew the lease where half of it is over. Raises: CopyEnded."""
        if time.monotonic() < self._renew_s:
            return
        granted = self._ask()
        if [each.segment_id for each in granted.segments] != [segment.segment_id]:
            for each in granted.segments:  # Another one, which is not begun.
                self._give_up(granted, each, "it was asked for another")
            raise CopyEnded(f"the lease of {self._target.name} has ended")

    def _until_ms(self) -> int:
        return int(self._until_s * 1_000)

    # -- the objects ---------------------------------------------------------------------------

    def _write(self, segment: grants.GrantedSegment, leader_epoch: int) -> tuple[int, int]:
        """Write the objects, the log last, and look at them; return the sizes of the indexes.

        Raises: CopyEnded, ClusterError, ClientError, RemoteStorageError, RecordsError, OSError.
        """
        with tempfile.TemporaryDirectory(prefix="ottla-backfill-") as directory:
            path = Path(directory, "segment.log")
            builder = SegmentBuilder(segment)
            with path.open("wb") as file:
                while not builder.is_complete:
                    self._check_lease(segment)
                    records = self._fetch(builder.next_offset, leader_epoch)
                    taken = builder.add(records)
                    if not taken:
                        raise CorruptBatch(f"no batch from offset {builder.next_offset} on")
                    file.write(records[:taken])
            offset_index, time_index = builder.indexes()
            objects: list[tuple[ObjectKind, Source]] = [
                (ObjectKind.LEADER_EPOCHS, segment.leader_epochs),
                (ObjectKind.PRODUCER_SNAPSHOT, segment.producer_snapshot),
                (ObjectKind.OFFSET_INDEX, offset_index),
                (ObjectKind.TIME_INDEX, time_index),
            ]
            if segment.transaction_index is not None:
                objects.append((ObjectKind.TXN_INDEX, segment.transaction_index))
            objects.append((ObjectKind.LOG, FileSource(str(path), segment.size_bytes)))
            for kind, source in objects:
                self._check_lease(segment)
                self._store.put_until(self._name(segment, kind), source, self._until_ms())
            for kind, source in objects:
                self._store.check_size(self._name(segment, kind), _size(source))
        return len(offset_index), len(time_index)

    def _fetch(self, offset: int, leader_epoch: int) -> Buffer:
        """Return batches from an offset on, from the leader that has granted the copy."""
        target = self._target
        key = target.topic, target.partition
        for _ in range(EMPTY_FETCHES_MAX):
            leader = self._client.leader(key, topic_id=target.topic_id)
            if leader.epoch not in (leader_epoch, -1):
                raise CopyEnded(f"{target.name} has another leader epoch, {leader.epoch}")
            data = fetch(
                self._client,
                key,
                offset,
                topic_id=target.topic_id,
                max_bytes=FETCH_BYTES,
                max_wait_ms=FETCH_WAIT_MS,
                read_committed=False,
            )
            if data.error_code == Error.OFFSET_OUT_OF_RANGE:
                raise CopyEnded(f"{target.name}: offset {offset} is not in the log any more")
            assert data.records is None or isinstance(data.records, memoryview)
            if data.records:
                return data.records
        raise ClusterError(f"{target.name}: no records from offset {offset} on")

    def _name(self, segment: grants.GrantedSegment, kind: ObjectKind) -> str:
        return object_of(self._target, segment.segment_id, segment.start_offset, kind)

    # -- the end -------------------------------------------------------------------------------

    def _commit(
        self,
        granted: grants.GrantedPartition,
        segment: grants.GrantedSegment,
        sizes: tuple[int, int],
    ) -> CopyRow:
        copy = commits.CommittedSegmentCopy(
            segment_id=segment.segment_id, offset_index_bytes=sizes[0], time_index_bytes=sizes[1]
        )
        (result,) = commit_copies(self._client, self._target, granted, [copy])
        if not result.error_code:
            state = FINISHED if result.is_finished else KEPT
            return _row(self._target, segment, state)
        # The leader has given it up, so nobody will count on these objects. Where it looks into
        # another store, nobody else would ever delete them.
        self._store.delete([self._name(segment, kind) for kind in ObjectKind])
        state = OTHER_STORE if result.error_code == Error.RESOURCE_NOT_FOUND else FAILED
        return _row(self._target, segment, state, result.error_message or "")

    def _give_up(
        self, granted: grants.GrantedPartition, segment: grants.GrantedSegment, why: str
    ) -> None:
        """Tell the leader, so that it need not wait for the end of the lease."""
        copy = commits.CommittedSegmentCopy(segment_id=segment.segment_id, failure=why[:1_000])
        try:
            commit_copies(self._client, self._target, granted, [copy])
        except (CopyEnded, ClusterError):
            return  # Its lease ends.


class SegmentStore(TargetStore):
    """The brokers' store, as a task writes segments to it."""

    def __enter__(self) -> "SegmentStore":
        return self

    def put_until(self, name: str, source: Source, until_ms: int) -> None:
        """Write an object; no attempt goes beyond a time, monotonic. Raises: RemoteStorageError."""
        failures = 0
        while True:
            deadline_ms = min(until_ms, self._write_deadline_ms(_size(source)))
            result = self._wait(self._store.put(name, source, pool=POOL, deadline_ms=deadline_ms))
            failures += 1
            pause_ms = RETRIES.delay_ms(failures, self._dice)
            is_last = self._clock.monotonic_ms() + pause_ms >= until_ms
            if not isinstance(result, StoreError) or not result.is_retriable or is_last:
                self._check_written(result, name)
                return
            time.sleep(pause_ms / 1_000)

    def check_size(self, name: str, size_bytes: int) -> None:
        """Raise RemoteStorageError unless there is an object of this size."""
        found: ObjectInfo | StoreError = self._retried(self._head(name), lambda: self._head(name))
        self._check_written(found, name)
        if isinstance(found, ObjectInfo) and found.size_bytes != size_bytes:
            raise RemoteStorageError(
                f"{self.uri}: {name} has {found.size_bytes} bytes of {size_bytes}"
            )


def _size(source: Source) -> int:
    return source.size_bytes if isinstance(source, FileSource) else len(source)
