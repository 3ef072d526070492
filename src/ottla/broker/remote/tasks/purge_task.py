"""The purge of one partition of a deleted topic: its objects are deleted, and none comes back.

1. A fence with the largest epochs and the largest floor. Once it is replayed, every segment is
   dead, no copy begins any more, and none that has begun is ever readable, whoever still leads.
2. The manifests: no reader of the store alone begins to read the segments.
3. The objects of all segments, some at a time, at a bounded rate. Each one that fails is tried
   again, after a backoff, for as long as it takes.
4. Once nothing of a segment's copy can be executed any more, its objects once more, and
   DELETE_FINISHED.
5. What a listing still finds below the partition's directory: what uploads have left whose metadata
   are forgotten, and manifests.
6. The same listing again, until it is empty, once no broker is left that may have written there:
   a broker that has not heard of the fence may try to write a manifest until its replica is
   deleted. After that a write that it has sent may still be executed for some time. With it goes
   what no listing shows, the unfinished uploads of brokers that died: of any age, since nobody
   writes there any more. A broker that was suspended all the time, and does, fails.

Whoever takes over replays the metadata and goes on: what is done twice does no harm, and what is
not known to be done is done again.

The directory has the topic's id in its name: a new topic of the same name has another one.

Source: KIP-405, KIP-950; Redpanda #15171 (a bulk deletion that fails in part), Pulsar #9962
(objects without a topic).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.base.ids import Uuid
from ottla.base.object_store import NAMES_PER_DELETE_MAX, Page, Pool, StoreError
from ottla.base.pending import gather
from ottla.broker.remote.dialogue import Dialogue, Wakeup, wait
from ottla.broker.remote.environment import RemoteEnvironment
from ottla.broker.remote.store_calls import ATTEMPT_MS_MAX, LATE_WRITE_MS
from ottla.broker.remote.tasks.leader_term import APPENDS_MAX, copy_ms_max
from ottla.controller.deletion.purge_reports import UNKNOWN
from ottla.metadata.tiering import WHOLE_TOPIC, TieringState
from ottla.tiered.object_names import (
    ObjectKind,
    manifest_prefix,
    object_names,
    partition_prefix,
)
from ottla.tiered.segment_metadata import (
    Fence,
    MetadataRecord,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)

if TYPE_CHECKING:
    from ottla.tiered.remote_log import RemoteLog

logger = logging.getLogger(__name__)

SEGMENTS_PER_DELETE_MAX: Final = NAMES_PER_DELETE_MAX // len(ObjectKind)
"""Segments whose objects one request deletes."""

EPOCH_MAX: Final = WHOLE_TOPIC
"""No leader epoch and no tiered epoch is larger, so no later fence lifts this one. Only a restore
of the topic does (`restore_task`)."""

LISTING_LAG_MS: Final = 10_000
"""How late a store may list an object."""

QUIET_MS: Final = ATTEMPT_MS_MAX + LATE_WRITE_MS + LISTING_LAG_MS
"""From a broker's last chance to write a manifest until a listing shows whatever it wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedPartition:
    """A partition of a deleted topic."""

    topic: str
    topic_id: Uuid
    partition: int

    @property
    def name(self) -> str:
        """The partition's name."""
        return f"{self.topic}-{self.partition}"


class PurgeTask:
    """See the module.

    `failed(task, error, pause_ms)` is called with each failure, `purged` once nothing is left.
    Fields: `replicas_are_over`: every replica is deleted, or will never be heard of again; call
            `wakeup.notify` when that changes. `is_purged`: nothing is left. `last_error`: of the
            last failure, None after a success. `segments_left`, `bytes_left`: -1 = not known.
    """

    def __init__(
        self,
        environment: RemoteEnvironment,
        partition: DeletedPartition,
        *,
        failed: "Callable[[PurgeTask, object, int], object]",
        purged: "Callable[[], object]",
    ) -> None:
        self._environment = environment
        self.partition = partition
        self._failed = failed
        self._purged = purged
        self._metrics = environment.metrics.of_topic(partition.topic)
        self._gauges = environment.metrics.add_purge(partition.topic, partition.partition)
        self._fenced_ms: int | None = None
        self._replicas_over_ms: int | None = None
        self._has_no_manifest = self._has_swept = False
        self._quiet_ms: dict[Uuid, int] = {}
        self._deleted: set[Uuid] = set()
        """Segments whose objects are deleted, but for a late write."""
        self._names_left: dict[Uuid, list[str]] = {}
        """Objects whose deletion has failed, where others of the segment are deleted."""
        self.replicas_are_over = False
        self.is_purged = False
        self.last_error: str | None = None
        self.segments_left = UNKNOWN
        self.bytes_left = UNKNOWN
        self.wakeup = Wakeup(environment.timers, environment.clock)

    def run(self) -> Dialogue[None]:
        """Purge until nothing is left."""
        failures = 0
        while True:
            error = yield from self._round()
            if error is not None:
                failures += 1
                yield self._note_failure(error, failures)
                continue
            failures, self.last_error = 0, None
            if self.is_purged:
                break
            yield from self.wakeup.wait(self._pause_ms())
        self.close()
        self._purged()

    def close(self) -> None:
        """Drop the gauges: it is over."""
        self._environment.metrics.remove_purge(self._gauges)

    def _round(self) -> Dialogue[StoreError | None]:
        remote = self._remote()
        if remote is None:
            return None
        yield from self._fence(remote)
        self._doomed()
        error = yield from self._delete_manifests()
        error = error or (yield from self._delete_segments())
        if error is not None or not self._is_bare:
            return error
        return (yield from self._sweep())

    @property
    def _is_bare(self) -> bool:
        """Tell whether the metadata have the fence, and no segment: else there is more to do."""
        remote = self._remote()
        self._doomed()
        return remote is not None and remote.floor >= WHOLE_TOPIC and not remote.segments()

    def _remote(self) -> "RemoteLog | None":
        # Whatever state the topic was in: its leader, which would settle it, may be gone.
        partition = self.partition
        return self._environment.metadata.replayed(partition.topic_id, partition.partition)

    @property
    def _now_ms(self) -> int:
        return self._environment.clock.monotonic_ms()

    # -- pauses --------------------------------------------------------------------------------

    def _pause_ms(self) -> int:
        """Return when there is something to do without an event."""
        interval_ms, now_ms = self._environment.config.interval_ms, self._now_ms
        due = [interval_ms, *(self._quiet_of(each) - now_ms for each in self._doomed())]
        until_ms = self._quiet_until_ms
        if until_ms is not None and until_ms > now_ms:
            due.append(until_ms - now_ms)
        return max(1, min(due))

    @property
    def _quiet_until_ms(self) -> int | None:
        """Return from when on a listing shows all there will ever be; None = not known yet."""
        if not self.replicas_are_over:
            self._replicas_over_ms = None
            return None
        if self._replicas_over_ms is None:
            self._replicas_over_ms = self._now_ms
        if self._fenced_ms is None:
            return None
        return max(self._fenced_ms, self._replicas_over_ms) + QUIET_MS

    def _note_failure(self, error: StoreError, failures: int) -> int:
        """Note a failure; return the backoff, in milliseconds."""
        environment = self._environment
        pause_ms = environment.calls.backoff.delay_ms(failures, environment.dice)
        self.last_error = str(error)
        self._failed(self, error, pause_ms)
        return pause_ms

    # -- fence ---------------------------------------------------------------------------------

    def _fence(self, remote: "RemoteLog") -> Dialogue[None]:
        """Append the fence, unless it is there: this broker's or another one's."""
        if remote.floor < WHOLE_TOPIC:
            yield from self._append([self._fence_record()])
            self._fenced_ms, self._has_swept = self._now_ms, False
        elif self._fenced_ms is None:
            self._fenced_ms = self._now_ms

    def _fence_record(self) -> Fence:
        return Fence(
            topic=self.partition.topic,
            topic_id=self.partition.topic_id,
            partition=self.partition.partition,
            broker_id=self._environment.node_id,
            leader_epoch=EPOCH_MAX,
            tiered_epoch=EPOCH_MAX,
            state=int(TieringState.DISABLED),
            floor=WHOLE_TOPIC,
            event_timestamp_ms=self._environment.clock.now_ms(),
        )

    def _append(self, records: Sequence[MetadataRecord]) -> Dialogue[None]:
        """Append records until they are replayed here. A repeated one does no harm."""
        environment, failures, left = self._environment, 0, list(records)
        while left:
            some = left[:APPENDS_MAX]
            errors = yield from wait(gather([environment.metadata.append(each) for each in some]))
            failed = [each for each, error in zip(some, errors, strict=True) if error is not None]
            left = failed + left[APPENDS_MAX:]
            if failed:
                failures += 1
                pause_ms = environment.calls.backoff.delay_ms(failures, environment.dice)
                error = next(each for each in errors if each is not None)
                self.last_error = f"{error.error.name}: {error.message}"
                self._failed(self, error, pause_ms)
                yield pause_ms

    # -- segments ------------------------------------------------------------------------------

    def _doomed(self) -> list[SegmentMetadata]:
        """Return the segments that are not gone; note how much that is."""
        remote = self._remote()
        found = [] if remote is None else list(remote.segments())
        if remote is not None:
            self.segments_left = self._gauges.delete_lag_segments = len(found)
            self.bytes_left = sum(each.size_bytes for each in found)
            self._gauges.delete_lag_bytes = self.bytes_left
        return found

    def _quiet_of(self, segment: SegmentMetadata) -> int:
        """Return from when on nothing of a segment's copy can be executed, monotonic.

        One that the fence has interrupted may be in progress until its time is over.
        """
        known = self._quiet_ms.get(segment.segment_id)
        if known is None:
            known, remote = self._now_ms + LATE_WRITE_MS, self._remote()
            if remote is None or not remote.has_ended(segment):
                known += copy_ms_max(segment.size_bytes)
            self._quiet_ms[segment.segment_id] = known
        return known

    def _delete_segments(self) -> Dialogue[StoreError | None]:
        """Delete the objects of segments, at once and after their quiet time."""
        now_ms = self._now_ms
        due = [
            each
            for each in self._doomed()
            if self._quiet_of(each) <= now_ms or each.segment_id not in self._deleted
        ]
        failure: StoreError | None = None
        for first in range(0, len(due), SEGMENTS_PER_DELETE_MAX):
            gone, error = yield from self._delete(due[first : first + SEGMENTS_PER_DELETE_MAX])
            failure = failure or error
            if gone:
                yield from self._append([self._finished(each) for each in gone])
            for each in gone:
                self._quiet_ms.pop(each.segment_id, None)
                self._deleted.discard(each.segment_id)
        return failure

    def _delete(
        self, segments: Sequence[SegmentMetadata]
    ) -> Dialogue[tuple[list[SegmentMetadata], StoreError | None]]:
        """Delete objects; return the segments of which nothing is left, and the first error."""
        # As of before the deletion: a write may be executed while it runs.
        now_ms = self._now_ms
        names: dict[Uuid, Sequence[str]] = {}
        quiet: set[Uuid] = set()
        for each in segments:
            left = self._names_left.get(each.segment_id)
            names[each.segment_id] = object_names(each) if left is None else left
            if left is None and self._quiet_of(each) <= now_ms:
                quiet.add(each.segment_id)
        self._metrics.delete_requests += len(segments)
        errors = yield from self._delete_names(
            [name for each in segments for name in names[each.segment_id]], len(segments)
        )
        gone: list[SegmentMetadata] = []
        for each in segments:
            failed = [name for name in names[each.segment_id] if name in errors]
            if failed:
                self._metrics.delete_errors += 1
                self._names_left[each.segment_id] = failed
                continue
            self._names_left.pop(each.segment_id, None)
            self._deleted.add(each.segment_id)
            if each.segment_id in quiet:
                gone.append(each)
        return gone, next(iter(errors.values()), None)

    def _delete_names(self, names: Sequence[str], cost: int) -> Dialogue[dict[str, StoreError]]:
        """Delete objects at the broker's rate; return the names that may be left."""
        slots, quota = self._environment.purge_slots, self._environment.delete_quota
        yield from slots.acquire()
        try:
            while wait_ms := quota.wait_ms():
                yield wait_ms
            quota.spend(cost)
            return (yield from self._environment.calls.delete(names, pool=Pool.PURGE))
        finally:
            slots.release()

    def _finished(self, segment: SegmentMetadata) -> SegmentUpdate:
        return SegmentUpdate(
            topic=segment.topic,
            topic_id=segment.topic_id,
            partition=segment.partition,
            segment_id=segment.segment_id,
            state=SegmentState.DELETE_FINISHED,
            broker_id=self._environment.node_id,
            event_timestamp_ms=self._environment.clock.now_ms(),
            leader_epoch=EPOCH_MAX,
            tiered_epoch=EPOCH_MAX,
        )

    # -- listings ------------------------------------------------------------------------------

    def _delete_manifests(self) -> Dialogue[StoreError | None]:
        if self._has_no_manifest:
            return None
        partition = self.partition
        prefix = manifest_prefix(partition.topic, partition.topic_id, partition.partition)
        found = yield from self._delete_listed(prefix)
        if isinstance(found, StoreError):
            return found
        self._has_no_manifest = True
        return None

    def _sweep(self) -> Dialogue[StoreError | None]:
        """Delete what is left in the partition's directory: at once, and when all is quiet."""
        partition = self.partition
        prefix = partition_prefix(partition.topic, partition.topic_id, partition.partition)
        if not self._has_swept:
            found = yield from self._delete_listed(prefix)
            if isinstance(found, StoreError):
                return found
            self._has_swept = True
        rounds = 0
        while True:
            until_ms = self._quiet_until_ms
            if until_ms is None or until_ms > self._now_ms:
                return None
            found = yield from self._delete_listed(prefix, removes_unfinished=True)
            if isinstance(found, StoreError):
                return found
            if not found:
                self.is_purged = self._is_bare
                return None
            # A store may list what was just deleted.
            rounds += 1
            yield self._environment.calls.backoff.delay_ms(rounds, self._environment.dice)

    def _delete_listed(
        self, prefix: str, *, removes_unfinished: bool = False
    ) -> Dialogue[int | StoreError]:
        """Delete what a listing shows; return how many objects that were."""
        count, after = 0, ""
        failure: StoreError | None = None
        while True:
            page = yield from self._page(prefix, after, removes_unfinished and not after)
            if isinstance(page, StoreError):
                return page
            if page.objects:
                names = [each.name for each in page.objects]
                errors = yield from self._delete_names(names, -(-len(names) // len(ObjectKind)))
                failure = failure or next(iter(errors.values()), None)
                count, after = count + len(names), names[-1]
            if page.is_last or not page.objects:
                return failure or count

    def _page(
        self, prefix: str, after: str, removes_unfinished: bool
    ) -> Dialogue[Page | StoreError]:
        slots, calls = self._environment.purge_slots, self._environment.calls
        yield from slots.acquire()
        try:
            if removes_unfinished:
                # Before the listing: what becomes an object meanwhile is listed.
                error = yield from calls.remove_unfinished(prefix, pool=Pool.PURGE)
                if error is not None:
                    return error
            return (yield from calls.list_page_once(prefix, after, pool=Pool.PURGE))
        finally:
            slots.release()
