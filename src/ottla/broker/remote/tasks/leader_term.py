"""What the copy task and the expiration task of a partition share, in one leader epoch.

**Fence.** Before the first copy, and before another broker's unfinished copy counts as failed, this
leader appends a fence. Once it is replayed here, so is everything before it, and no earlier leader
can finish a copy any more.

**Quiet time.** A write whose caller has given up, or whose broker has died, may still be executed:

1. Broker 1 uploads a segment, and the store does not answer. Broker 1 gives up.
2. The segment's objects are deleted, and its metadata is forgotten.
3. The upload is executed after all. Nobody knows of this object.

So a segment is forgotten, DELETE_FINISHED, only when nothing of its copy can be executed any more,
and its objects are deleted once more then. A copy that was finished had been given up by then in
all its earlier attempts. One that was not may have been in progress until its time was over. Of its
own copies a leader knows more, but only once they have ended: not of one that is cancelled, by a
fence or with the term.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.base.errors import ApiError
from ottla.base.ids import Uuid
from ottla.base.object_store import Failure, StoreError
from ottla.base.pending import gather
from ottla.broker.remote.dialogue import Dialogue, wait
from ottla.broker.remote.environment import RemoteEnvironment
from ottla.broker.remote.store_calls import LATE_WRITE_MS, transfer_ms_max
from ottla.broker.remote.tasks.floor_seen import FloorSeen
from ottla.tiered.copy_grants import CopyGrant
from ottla.tiered.copy_plan import copied_offset
from ottla.tiered.lineage import Lineage
from ottla.tiered.segment_metadata import (
    Fence,
    MetadataRecord,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)
from ottla.tiered.visible_segments import VisibleSegments

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
    from ottla.metadata.tiering import TopicTiering
    from ottla.tiered.remote_log import RemoteLog

logger = logging.getLogger(__name__)

COPY_OVERHEAD_MS: Final = 120_000
"""Time of a copy besides the transfer: small objects, checks, retries."""

APPENDS_MAX: Final = 100
"""Records of one task that are appended at once."""


def copy_ms_max(size_bytes: int) -> int:
    """Return how long a copy may take in all; then it has failed."""
    return COPY_OVERHEAD_MS + 2 * transfer_ms_max(size_bytes)


def note_copied(log: "PartitionLog", remote: "RemoteLog") -> int:
    """Note up to which offset a log is in remote storage, without a gap; return that."""
    copied = copied_offset(
        remote,
        Lineage(log.epochs.entries, log.log_end_offset),
        local_log_start=log.local_log_start_offset,
        known=log.highest_remote_offset,
    )
    log.remote_copied_to(copied)
    return copied


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeLeft:
    """What is left of the segments that were given up when tiered storage was disabled.

    Fields: `segments`: their objects are not deleted yet. `segments_deleted`: their objects are,
            but for a late write. `late_writes_ms`: until no late write is possible any more.
    """

    segments: int
    segments_deleted: int
    late_writes_ms: int


class LeaderTerm:
    """See the module.

    Fields: `copying`: the segment that is being copied here, and its `copying_offset`, which is
            set before it is announced. `grants`: those that others copy, by segment id.
            `has_begun`: it is known where the log starts, over both tiers. `has_fenced`: this
            term's fence is replayed. `last_error`: of the last failure, None after a success.
            `visible`: see `VisibleSegments`.
            `floor_seen`: since when this process, as a follower too, knows of dead segments.
    """

    def __init__(
        self,
        environment: RemoteEnvironment,
        log: "PartitionLog",
        leader_epoch: int,
        tiering: "TopicTiering",
        floor_seen: FloorSeen | None = None,
    ) -> None:
        self.environment = environment
        self.log = log
        self.leader_epoch = leader_epoch
        self.tiering = tiering
        self.copying: Uuid | None = None
        self.copying_offset: int | None = None
        self.grants: dict[Uuid, CopyGrant] = {}
        self.has_begun = False
        self.has_fenced = False
        self.last_error: str | None = None
        self.visible = VisibleSegments()
        self.floor_seen = FloorSeen() if floor_seen is None else floor_seen
        self.metrics = environment.metrics.of_topic(log.topic)
        self.gauges = environment.metrics.add_partition(log.topic, log.partition)
        self._late_ms: dict[Uuid, int] = {}
        """Until when a write may be executed that was given up: of copies that are under way."""
        self._quiet_ms: dict[Uuid, int] = {}
        self._undeleted: set[Uuid] = set()
        self._deleted: set[Uuid] = set()
        self._warned: dict[str, str] = {}

    # -- state ---------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The partition's name."""
        return self.log.name

    @property
    def may_copy(self) -> bool:
        """Whether the topic's tiering state lets its leader copy."""
        return self.tiering.copies

    def remote(self) -> "RemoteLog | None":
        """Return the remote segments; None = their metadata is not ready."""
        return self.environment.metadata.remote_log(self.log.topic_id, self.log.partition)

    def lineage(self) -> Lineage:
        """Return the log's lineage as of now."""
        return Lineage(self.log.epochs.entries, self.log.log_end_offset)

    def unfenced(self) -> "RemoteLog | None":
        """Return the remote segments; None = their metadata is not ready, or this term is fenced
        off."""
        remote = self.remote()
        return None if remote is None or self.is_fenced(remote) else remote

    def note_copied(self, remote: "RemoteLog") -> int:
        """Do as `note_copied` for this log."""
        return note_copied(self.log, remote)

    def is_fenced(self, remote: "RemoteLog") -> bool:
        """Tell whether a newer leader, or a newer tiered epoch, has fenced this term off."""
        fence = remote.fence
        return fence is not None and (
            fence.leader_epoch > self.leader_epoch or fence.tiered_epoch > self.tiering.tiered_epoch
        )

    def unfinished(self, remote: "RemoteLog") -> list[SegmentMetadata]:
        """Return the copies that will not be finished: those of earlier leaders, or processes."""
        return [each for each in remote.unfinished() if not self.is_copying(each.segment_id)]

    def is_copying(self, segment_id: Uuid) -> bool:
        """Tell whether a copy of this term goes on, here or by whoever it was granted to."""
        return segment_id == self.copying or segment_id in self.grants

    def undeleted_copies(self, remote: "RemoteLog") -> int:
        """Return how many failed copies of this term have objects that could not be deleted."""
        self._undeleted = {each for each in self._undeleted if remote.get(each) is not None}
        return len(self._undeleted)

    # -- quiet time ----------------------------------------------------------------------------

    def copy_failed(self, segment: SegmentMetadata) -> None:
        """Note that the objects of a copy of this term are to be deleted."""
        self._undeleted.add(segment.segment_id)

    def objects_deleted(self, segment: SegmentMetadata) -> None:
        """Note that a segment's objects are deleted, but for a late write."""
        self._undeleted.discard(segment.segment_id)
        self._deleted.add(segment.segment_id)

    def is_due(self, segment: SegmentMetadata) -> bool:
        """Tell whether to delete a segment's objects now: at once, and after late writes."""
        now_ms = self.environment.clock.monotonic_ms()
        return segment.segment_id not in self._deleted or self.quiet_ms(segment) <= now_ms

    def write_unknown(self, segment: SegmentMetadata) -> None:
        """Note that a write of this segment may still be executed."""
        now_ms = self.environment.clock.monotonic_ms()
        self._late_ms[segment.segment_id] = now_ms + LATE_WRITE_MS

    def copy_ended(self, segment: SegmentMetadata) -> None:
        """Note that no more is written of a copy of this term: it was not cancelled."""
        self._quiet_ms[segment.segment_id] = self._late_ms.pop(segment.segment_id, 0)

    def quiet_ms(self, segment: SegmentMetadata) -> int:
        """Return from when on nothing of a segment's copy can be executed, monotonic.

        A copy that was not finished, and of which this term does not know that it has ended, may be
        in progress until its time is over.
        """
        known = self._quiet_ms.get(segment.segment_id)
        if known is None:
            now_ms, remote = self.environment.clock.monotonic_ms(), self.remote()
            known = self.floor_seen.dead_since_ms(segment, now_ms) + LATE_WRITE_MS
            if remote is None or not remote.has_ended(segment):
                known += copy_ms_max(segment.size_bytes)
            self._quiet_ms[segment.segment_id] = known
        return known

    def purge_left(self, remote: "RemoteLog") -> PurgeLeft:
        """Return how much of what the fences' floor has given up is left."""
        doomed = [each for each in remote.deleting() if each.tiered_epoch <= remote.floor]
        deleted = [each for each in doomed if each.segment_id in self._deleted]
        until_ms = max(map(self.quiet_ms, deleted), default=0)
        now_ms = self.environment.clock.monotonic_ms()
        return PurgeLeft(
            segments=len(doomed) - len(deleted),
            segments_deleted=len(deleted),
            late_writes_ms=max(0, until_ms - now_ms),
        )

    def inherit(self, before: "LeaderTerm") -> None:
        """Take over what an earlier term of this process knows of late writes, and of segments that
        are deleted.

        Not that a copy has none: late writes are then awaited for as long as under another leader.
        """
        known = {each: until_ms for each, until_ms in before._quiet_ms.items() if until_ms > 0}
        self._quiet_ms |= known
        self._deleted |= before._deleted & known.keys()

    def forget(self, segment: SegmentMetadata) -> None:
        """Drop what is noted of a segment that is gone."""
        self._undeleted.discard(segment.segment_id)
        self._deleted.discard(segment.segment_id)
        self._quiet_ms.pop(segment.segment_id, None)

    # -- records -------------------------------------------------------------------------------

    def append(self, records: Sequence[MetadataRecord]) -> Dialogue["RemoteLog"]:
        """Append records until they are replayed; return the remote segments after it.

        A repeated record does no harm: states may follow themselves.
        """
        failures = 0
        left = list(records)
        while True:
            some = left[:APPENDS_MAX]
            metadata = self.environment.metadata
            errors = yield from wait(gather([metadata.append(each) for each in some]))
            failed = [each for each, error in zip(some, errors, strict=True) if error is not None]
            left = failed + left[APPENDS_MAX:]
            remote = self.remote()
            if remote is not None and not left:
                self.succeeded("metadata")
                return remote
            if remote is not None and not failed:
                continue
            failures += 1
            pause_ms = self.pause_ms(failures)
            error = next((each for each in errors if each is not None), None)
            self.failed("metadata", "append to the remote log metadata", error, pause_ms)
            yield pause_ms

    def append_fence(self) -> Dialogue["RemoteLog"]:
        """Append this term's fence."""
        tiering = self.tiering
        remote = yield from self.append(
            [
                Fence(
                    topic=self.log.topic,
                    topic_id=self.log.topic_id,
                    partition=self.log.partition,
                    broker_id=self.environment.node_id,
                    leader_epoch=self.leader_epoch,
                    tiered_epoch=tiering.tiered_epoch,
                    state=int(tiering.state),
                    floor=tiering.remote_floor_epoch,
                    event_timestamp_ms=self.environment.clock.now_ms(),
                )
            ]
        )
        self.has_fenced = True
        return remote

    def change_states(
        self, segments: Sequence[SegmentMetadata], state: SegmentState
    ) -> Dialogue["RemoteLog"]:
        """Append a new state of segments; return the remote segments after it."""
        environment = self.environment
        return (
            yield from self.append(
                [
                    SegmentUpdate(
                        topic=each.topic,
                        topic_id=each.topic_id,
                        partition=each.partition,
                        segment_id=each.segment_id,
                        state=state,
                        broker_id=environment.node_id,
                        event_timestamp_ms=environment.clock.now_ms(),
                        leader_epoch=self.leader_epoch,
                        tiered_epoch=self.tiering.tiered_epoch,
                    )
                    for each in segments
                ]
            )
        )

    # -- failures ------------------------------------------------------------------------------

    def pause_ms(self, failures: int) -> int:
        """Return the backoff after so many failures in a row."""
        return self.environment.calls.backoff.delay_ms(failures, self.environment.dice)

    def failed(self, work: str, what: str, cause: object, pause_ms: int) -> None:
        """Note a failure, and log it unless it is that of the last time again.

        `work`: what is repeated; each logs its own causes. That others of this broker's operations
        are first is no failure of the store: with many partitions it is normal.
        """
        text = _error_text(cause)
        self.last_error = f"{what} failed: {text}"
        kind = cause.failure.value if isinstance(cause, StoreError) else text
        if self._warned.get(work) != kind:
            self._warned[work] = kind
            if isinstance(cause, StoreError) and cause.failure is Failure.BUSY:
                logger.debug(
                    "%s: %s failed: %s; retrying in %d ms", self.name, what, text, pause_ms
                )
                return
            logger.warning("%s: %s failed: %s; retrying in %d ms", self.name, what, text, pause_ms)

    def succeeded(self, work: str) -> None:
        """Forget the failures of some work."""
        if self._warned.pop(work, None) is not None and not self._warned:
            self.last_error = None


def _error_text(cause: object) -> str:
    if isinstance(cause, ApiError):
        return f"{cause.error.name}: {cause.message}"
    return "remote log metadata is not ready" if cause is None else str(cause)
