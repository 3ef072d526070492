"""What a partition's leader, or a follower, knows of its two tiers: a value for descriptions."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.base.ids import NO_OFFSET, Uuid
from ottla.tiered.lineage import Lineage
from ottla.tiered.visible_segments import VisibleSegments

if TYPE_CHECKING:
    from ottla.broker.remote.tasks.leader_term import PurgeLeft
    from ottla.log.partition_log import PartitionLog
    from ottla.metadata.tiering import TieringState, TopicTiering
    from ottla.tiered.remote_log import RemoteLog


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStatus:
    """The tiers of one partition, as this broker knows them.

    Fields: `remote_start_offset`, `remote_end_offset`: of the readable segments of the log's
            lineage, the end is exclusive; -1 = there are none. `local_log_start_offset`,
            `log_end_offset`: of the local files. `remote_bytes`, `remote_segments`: of these
            segments. `deleting_segments`: their objects are being deleted. `purge`: of those, what
            was given up; None = not known here. `copy_lag_*`: sealed segments that are not copied
            yet. `is_ready`: the segment metadata are replayed. `last_error`: of the last failure
            that was not followed by a success.
    """

    topic: str
    topic_id: Uuid
    partition: int
    is_leader: bool
    is_ready: bool
    leader_epoch: int
    tiered_epoch: int
    state: "TieringState"
    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int
    high_watermark: int
    remote_start_offset: int
    remote_end_offset: int
    local_bytes: int
    remote_bytes: int
    remote_segments: int
    deleting_segments: int
    purge: "PurgeLeft | None"
    copy_lag_bytes: int
    copy_lag_segments: int
    last_error: str | None


def status_of(
    log: "PartitionLog",
    remote: "RemoteLog | None",
    tiering: "TopicTiering",
    *,
    visible: VisibleSegments,
    is_leader: bool,
    leader_epoch: int,
    copy_lag: tuple[int, int],
    purge: "PurgeLeft | None",
    last_error: str | None,
) -> RemoteStatus:
    """Return the status now.

    `copy_lag`: bytes, segments. `visible`: kept by the caller, so that only what has changed since
    its last use is looked at.
    """
    if remote is not None:
        visible.update(remote, Lineage(log.epochs.entries, log.log_end_offset))
    segments = () if remote is None else visible.segments
    return RemoteStatus(
        topic=log.topic,
        topic_id=log.topic_id,
        partition=log.partition,
        is_leader=is_leader,
        is_ready=remote is not None,
        leader_epoch=leader_epoch,
        tiered_epoch=tiering.tiered_epoch,
        state=tiering.state,
        log_start_offset=log.log_start_offset,
        local_log_start_offset=log.local_log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        remote_start_offset=segments[0].segment.start_offset if segments else NO_OFFSET,
        remote_end_offset=segments[-1].end_offset + 1 if segments else NO_OFFSET,
        local_bytes=log.size_bytes,
        remote_bytes=visible.size_bytes if segments else 0,
        remote_segments=len(segments),
        deleting_segments=0 if remote is None else len(remote.deleting()),
        purge=purge,
        copy_lag_bytes=copy_lag[0],
        copy_lag_segments=copy_lag[1],
        last_error=last_error,
    )
