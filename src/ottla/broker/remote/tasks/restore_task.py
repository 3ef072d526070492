"""Finishes the restore of a partition: its leader takes over the segments that manifests list.

The controller has created the topic with the id that its objects' names contain, and told where
each log begins (`RestoredPartition`). Before anything is read, copied or deleted:

1. The segments of the manifests are appended to `__remote_log_metadata`, as they were recorded in
   the cluster that copied them: COPY_STARTED, then COPY_FINISHED.
2. This log's start is durable, and known to every live replica.
3. This term's fence. It says that the restore is done: no leader that replays it restores again, so
   that a segment which is deleted later does not come back.

There is no fence before the third step, so records of any epochs are valid. They are the same
whoever writes them, and a repeated one does no harm: after a crash, or with a leader that does not
know that it was replaced, the steps are repeated. A fence that came in front of the segments would
turn those that a dead leader had only started into deleted ones.

Where the metadata still has a fence of the partition's earlier life its segments are known, and
newer than the manifests: then only the last two steps are done. But not if that fence refuses this
life's fences or copies. A purge that was abandoned has left such a one; so has a topic whose remote
storage was turned off and on after its last manifest. It is lifted first, and then the partition is
restored as one of which nothing is known.
"""

import logging
from typing import TYPE_CHECKING, Final

from ottla.base.errors import ApiError
from ottla.base.object_store import StoreError
from ottla.base.pending import Pending, gather
from ottla.broker.remote.dialogue import Dialogue, wait
from ottla.broker.remote.store_calls import ATTEMPT_MS_MAX
from ottla.broker.remote.tasks.leader_term import APPENDS_MAX, LeaderTerm
from ottla.broker.remote.tasks.manifest_reader import read_state
from ottla.metadata.tiering import WHOLE_TOPIC
from ottla.tiered.segment_metadata import (
    Fence,
    MetadataRecord,
    RestoreStarted,
    SegmentState,
    copy_finished,
    copy_started,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.metadata.tiering import RestoredPartition
    from ottla.tiered.manifest import ManifestState
    from ottla.tiered.remote_log import RemoteLog

logger = logging.getLogger(__name__)

READ_MS_MAX: Final = 20 * ATTEMPT_MS_MAX

NOT_READY_PAUSE_MS: Final = 200


def is_being_restored(remote: "RemoteLog", restored: "RestoredPartition | None") -> bool:
    """Tell whether a partition's remote segments are not all known yet, as it is being restored."""
    if restored is None:
        return False
    fence = remote.fence
    if fence is None or fence.floor >= WHOLE_TOPIC:
        return True
    return fence.leader_epoch < restored.leader_epoch


class RestoreTask:
    """See the module. `done`: completes when the partition is restored."""

    def __init__(self, term: LeaderTerm, restored: "RestoredPartition") -> None:
        self.done: Pending[None] = Pending()
        self._term = term
        self._restored = restored

    def run(self) -> Dialogue[None]:
        """Restore, or find that it was done; repeat until that is so."""
        failures = 0
        while True:
            remote = self._remote()
            if remote is None:
                yield NOT_READY_PAUSE_MS
                continue
            if not is_being_restored(remote, self._restored):
                self._term.succeeded("restore")
                self.done.complete(None)
                return
            try:
                error = yield from self._restore(remote)
            except (ApiError, OSError) as raised:
                error = raised
            if error is not None:
                failures += 1
                pause_ms = self._term.pause_ms(failures)
                self._term.failed("restore", "restore from manifests", error, pause_ms)
                yield pause_ms

    def _remote(self) -> "RemoteLog | None":
        log = self._term.log
        return self._term.environment.metadata.replayed(log.topic_id, log.partition)

    def _restore(self, remote: "RemoteLog") -> Dialogue[StoreError | ApiError | OSError | None]:
        if self._is_refused_by(remote.fence):
            return (yield from self._append([self._started()]))
        if remote.fence is None and self._restored.end_offset:
            state = yield from self._read()
            if isinstance(state, StoreError | OSError):
                return state
            error = yield from self._append_segments(state)
            if error is not None:
                return error
        error = yield from self._publish_log_start()
        return error if error is not None else (yield from self._append([self._fence()]))

    def _is_refused_by(self, fence: Fence | None) -> bool:
        """Tell whether a fence of the earlier life refuses this term's fence, or all its copies."""
        tiered_epoch = self._term.tiering.tiered_epoch
        return fence is not None and (
            fence.tiered_epoch > tiered_epoch or fence.floor >= tiered_epoch
        )

    def _read(self) -> Dialogue["ManifestState | StoreError | OSError"]:
        term, log = self._term, self._term.log
        until_ms = term.environment.clock.monotonic_ms() + READ_MS_MAX
        state = yield from read_state(
            term.environment.calls, log.topic, log.topic_id, log.partition, until_ms=until_ms
        )
        if state is None or isinstance(state, str):
            return OSError(state or "the store has no manifest of it any more")
        if not isinstance(state, StoreError):
            end = state.end_offset
            if end < self._restored.end_offset:
                return OSError(
                    f"the manifests end at {end}, and ended at {self._restored.end_offset} before"
                )
        return state

    def _append_segments(self, state: "ManifestState") -> Dialogue[ApiError | None]:
        segments = sorted(state.segments.values(), key=lambda each: each.start_offset)
        remote = self._remote()
        known = {} if remote is None else {each.segment_id: each for each in remote.segments()}
        new = [each for each in segments if each.segment_id not in known]
        error = yield from self._append([copy_started(each) for each in new])
        if error is not None:
            return error
        unfinished = [
            each
            for each in segments
            if each.segment_id not in known
            or known[each.segment_id].state is SegmentState.COPY_STARTED
        ]
        error = yield from self._append([copy_finished(each) for each in unfinished])
        if error is None:
            logger.info(
                "%s: restored %d remote segments from manifest %d",
                self._term.name,
                len(segments),
                state.sequence,
            )
        return error

    def _append(self, records: "Sequence[MetadataRecord]") -> Dialogue[ApiError | None]:
        metadata = self._term.environment.metadata
        for first in range(0, len(records), APPENDS_MAX):
            some = records[first : first + APPENDS_MAX]
            errors = yield from wait(gather([metadata.append(each) for each in some]))
            for error in errors:
                if error is not None:
                    return error
        return None

    def _publish_log_start(self) -> Dialogue[ApiError | None]:
        """Make this log's start durable. It may be a later one than that of the restore: records
        may be deleted, and remote storage disabled, before the restore is over."""
        log = self._term.log
        return (
            yield from wait(self._term.environment.publish_log_start(log, log.log_start_offset))
        )

    def _started(self) -> RestoreStarted:
        log, environment = self._term.log, self._term.environment
        return RestoreStarted(
            topic=log.topic,
            topic_id=log.topic_id,
            partition=log.partition,
            broker_id=environment.node_id,
            leader_epoch=self._restored.leader_epoch,
            event_timestamp_ms=environment.clock.now_ms(),
        )

    def _fence(self) -> Fence:
        term, log, environment = self._term, self._term.log, self._term.environment
        return Fence(
            topic=log.topic,
            topic_id=log.topic_id,
            partition=log.partition,
            broker_id=environment.node_id,
            leader_epoch=term.leader_epoch,
            tiered_epoch=term.tiering.tiered_epoch,
            state=int(term.tiering.state),
            floor=term.tiering.remote_floor_epoch,
            event_timestamp_ms=environment.clock.now_ms(),
        )
