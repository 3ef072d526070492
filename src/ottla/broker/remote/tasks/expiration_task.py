"""The expiration task of a partition: its leader deletes remote segments.

Those that retention has expired, those below the log start, and what failed copies have left:

1. The log start moves, in memory: reads below it are out of range.
2. It is published: durable here, and known to every live replica. A replica that became the leader
   without it would send readers to objects that are gone.
3. DELETE_STARTED for each segment: no broker reads it any more.
4. The manifest without them: no reader of the store alone begins to read it.
5. Their objects, some at a time, at a bounded rate. What fails is tried again. Those of segments
   that are marked meanwhile are left to the next round, which has their manifest written first.
6. DELETE_FINISHED, once nothing of a segment's copy can be written any more.

Segments that a fence has given up, since tiered storage was disabled with delete, are purged in the
same way: the fence has marked them, so they go on with step 2. That goes on in any tiering state,
and so while new segments are copied again: these have a larger tiered epoch, and other objects.

Whatever has begun is found in the metadata, and goes on after a failure or under the next leader.

Source: RemoteLogManager.RLMExpirationTask; KIP-405, KAFKA-15352, KAFKA-17428.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.base.errors import ApiError
from ottla.base.ids import NO_OFFSET
from ottla.base.object_store import NAMES_PER_DELETE_MAX, StoreError
from ottla.broker.remote.dialogue import Dialogue, Wakeup, wait
from ottla.broker.remote.tasks.leader_term import LeaderTerm
from ottla.broker.remote.tasks.manifest_writer import ManifestWriter, Refused
from ottla.tiered.copy_plan import highest_copied_offset, local_only_bytes
from ottla.tiered.expiration import Reason, plan_expiration
from ottla.tiered.object_names import ObjectKind, object_names
from ottla.tiered.segment_metadata import NO_FLOOR, SegmentMetadata, SegmentState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.tiered.expiration import ExpirationPlan
    from ottla.tiered.remote_log import RemoteLog

logger = logging.getLogger(__name__)

SEGMENTS_PER_DELETE_MAX: Final = 50
"""Segments whose objects one request deletes."""

assert SEGMENTS_PER_DELETE_MAX * len(ObjectKind) <= NAMES_PER_DELETE_MAX

Failed = Refused | StoreError | ApiError | OSError


class ExpirationTask:
    """See the module. `deleted`: called when objects were deleted."""

    def __init__(
        self, term: LeaderTerm, manifests: ManifestWriter, deleted: "Callable[[], object]"
    ) -> None:
        self._term = term
        self._environment = term.environment
        self._log = term.log
        self._manifests = manifests
        self._deleted = deleted
        self._published = NO_OFFSET
        """The highest log start that this term has published."""
        self.wakeup = Wakeup(self._environment.timers, self._environment.clock)

    def run(self) -> Dialogue[None]:
        """Expire for as long as this broker leads."""
        failures = 0
        while True:
            error: Failed | None = None
            try:
                error = yield from self._round()
            except (ApiError, OSError) as raised:
                error = raised
            if error is None:
                failures = 0
                self._term.succeeded("expiration")
                yield from self.wakeup.wait(self._pause_ms())
            else:
                failures += 1
                pause_ms = self._term.pause_ms(failures)
                self._term.failed("expiration", "deletion of remote segments", error, pause_ms)
                yield pause_ms

    def _pause_ms(self) -> int:
        """Return when the next round is due: on the interval, or when a quiet time ends."""
        interval_ms, remote = self._environment.config.interval_ms, self._term.remote()
        doomed = [] if remote is None else remote.deleting()
        now_ms = self._environment.clock.monotonic_ms()
        due = [self._term.quiet_ms(each) - now_ms for each in doomed]
        return max(1, min([interval_ms, *(each for each in due if each > 0)]))

    def _round(self) -> Dialogue[Failed | None]:
        remote = self._term.unfenced()
        if remote is None:
            return None
        plan = self._plan(remote)
        begun = [
            (segment, reason)
            for segment, reason in plan.delete
            if segment.state is not SegmentState.DELETE_STARTED
            and not self._term.is_copying(segment.segment_id)
        ]
        self._note_sizes(remote)
        if not begun and not remote.deleting() and not self._manifests.is_stale(remote):
            return None
        if not self._term.has_fenced and _has_unfinished(begun):
            # Another leader may finish its copy until then: deleted, it would count as copied.
            yield from self._term.append_fence()
            return (yield from self._round())
        if begun:
            error = yield from self._begin(plan, begun)
            if error is not None:
                return error
        if _has_given_up(remote):
            if not self._term.has_begun:
                return None  # It is not known yet where the log starts.
            if self._published < self._log.log_start_offset:
                error = yield from self._publish_log_start()
                if error is not None:
                    return error
        refused = yield from self._manifests.update()
        if refused is not None:
            return refused
        failure = yield from self._delete_doomed()
        yield from self._manifests.remove_needless()
        return failure

    def _plan(self, remote: "RemoteLog") -> "ExpirationPlan":
        log, lineage = self._log, self._term.lineage()
        config = log.config
        return plan_expiration(
            remote,
            lineage,
            log_start=log.log_start_offset,
            retention_ms=config.retention_ms if config.deletes else -1,
            retention_bytes=config.retention_bytes if config.deletes else -1,
            local_only_bytes=local_only_bytes(
                log.local_segments(), copied=highest_copied_offset(remote, lineage)
            ),
            now_ms=self._environment.clock.now_ms(),
            visible=self._term.visible,
        )

    def _note_sizes(self, remote: "RemoteLog") -> None:
        gauges, clock = self._term.gauges, self._environment.clock
        began_ms = clock.monotonic_ms()
        visible, doomed = self._term.visible, remote.deleting()
        visible.update(remote, self._term.lineage())
        gauges.metadata_count = remote.count
        gauges.size_bytes = visible.size_bytes + sum(each.size_bytes for each in visible.others)
        gauges.delete_lag_segments = len(doomed)
        gauges.delete_lag_bytes = sum(each.size_bytes for each in doomed)
        gauges.size_computation_ms = clock.monotonic_ms() - began_ms

    def _begin(
        self, plan: "ExpirationPlan", begun: Sequence[tuple[SegmentMetadata, Reason]]
    ) -> Dialogue[Failed | None]:
        """Move and publish the log start; mark the segments."""
        term, log = self._term, self._log
        if plan.log_start_offset > log.log_start_offset:
            log.advance_log_start(plan.log_start_offset)
        if any(segment.state is SegmentState.COPY_FINISHED for segment, _ in begun):
            error = yield from self._publish_log_start()
            if error is not None:
                return error
        for segment, reason in begun:
            logger.info(
                "%s: deleting remote segment %d-%d of %d bytes: %s",
                term.name,
                segment.start_offset,
                segment.end_offset,
                segment.size_bytes,
                reason.value,
            )
        yield from term.change_states(
            [segment for segment, _ in begun], SegmentState.DELETE_STARTED
        )
        return None

    def _publish_log_start(self) -> Dialogue[ApiError | None]:
        """Have all live replicas know the log start, durably here."""
        start = self._log.log_start_offset
        error = yield from wait(self._environment.publish_log_start(self._log, start))
        if error is None:
            self._published = start
        return error

    def _delete_doomed(self) -> Dialogue[StoreError | None]:
        """Delete the objects of the segments that are DELETE_STARTED in this turn, as no manifest
        lists these; and no more of them once another leader's fence is replayed."""
        remote = self._term.unfenced()
        doomed = (
            []
            if remote is None
            else [each for each in remote.deleting() if self._term.is_due(each)]
        )
        failure: StoreError | None = None
        slots, quota = self._environment.expiration_slots, self._environment.delete_quota
        for first in range(0, len(doomed), SEGMENTS_PER_DELETE_MAX):
            some = doomed[first : first + SEGMENTS_PER_DELETE_MAX]
            yield from slots.acquire()
            try:
                while wait_ms := quota.wait_ms():
                    yield wait_ms
                if self._term.unfenced() is None:
                    return failure
                deleted, error = yield from self._delete(some)
            finally:
                slots.release()
            failure = failure or error
            if deleted:
                yield from self._term.change_states(deleted, SegmentState.DELETE_FINISHED)
            for each in deleted:
                self._forget(each)
        return failure

    def _delete(
        self, segments: Sequence[SegmentMetadata]
    ) -> Dialogue[tuple[list[SegmentMetadata], StoreError | None]]:
        """Delete objects; return the segments of which nothing is left, and the first error."""
        term, clock = self._term, self._environment.clock
        self._environment.delete_quota.spend(len(segments))
        term.metrics.delete_requests += len(segments)
        # As of before the deletion: a write may be executed while it runs.
        now_ms = clock.monotonic_ms()
        quiet = {each.segment_id for each in segments if term.quiet_ms(each) <= now_ms}
        names = [name for each in segments for name in object_names(each)]
        left = yield from self._environment.calls.delete(names)
        deleted: list[SegmentMetadata] = []
        failure: StoreError | None = None
        for each in segments:
            errors = [left[name] for name in object_names(each) if name in left]
            if errors:
                term.metrics.delete_errors += 1
                failure = failure or errors[0]
                continue
            term.objects_deleted(each)
            if each.segment_id in quiet:
                deleted.append(each)
        self._deleted()
        return deleted, failure

    def _forget(self, segment: SegmentMetadata) -> None:
        self._term.forget(segment)
        logger.info(
            "%s: deleted remote segment %d-%d of %d bytes",
            self._term.name,
            segment.start_offset,
            segment.end_offset,
            segment.size_bytes,
        )


def _has_unfinished(begun: Sequence[tuple[SegmentMetadata, Reason]]) -> bool:
    return any(segment.state is SegmentState.COPY_STARTED for segment, _ in begun)


def _has_given_up(remote: "RemoteLog") -> bool:
    return remote.floor > NO_FLOOR and any(
        each.tiered_epoch <= remote.floor for each in remote.deleting()
    )
