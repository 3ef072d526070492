"""When a leader proposes another ISR: which replicas are to join it, and which to leave.

Source: Kafka's Partition.{maybeExpandIsr, maybeShrinkIsr, getOutOfSyncReplicas}; KIP-903.
"""

from typing import TYPE_CHECKING

from ottla.broker.replication.followers import FollowerState, may_join
from ottla.broker.replication.isr import IsrChange, expansion, reduction

if TYPE_CHECKING:
    from ottla.broker.partition import Partition


def propose_expansion(partition: "Partition", fetching: FollowerState | None = None) -> None:
    """Propose to add the followers that are in sync again.

    Candidates have reached both the high watermark and the start of this leader's epoch: all that
    was committed before lies below the latter, even where the high watermark has not reached it.
    Of them the one that is `fetching` joins, and any other that keeps up.
    """
    log, environment = partition.log, partition.environment
    if partition.pending is not None or log is None or not partition.is_leader:
        return
    reach, end = max(log.high_watermark, partition.epoch_start_offset), log.log_end_offset
    joining = tuple(
        node
        for node, follower in partition.followers.items()
        if follower.log_end_offset >= reach
        and node not in partition.isr
        and (follower is fetching or partition.is_joining(node, follower, end))
        and may_join(environment.brokers.get(node), follower)
    )
    if joining and environment.monotonic_ms() >= partition.quiet_until_ms:
        _propose(
            partition, expansion(partition.isr, joining, _epochs(partition), at=_at(partition))
        )


def propose_reduction(partition: "Partition") -> None:
    """Propose to remove the followers that have lagged for too long."""
    log, environment = partition.log, partition.environment
    if partition.pending is not None or log is None or not partition.is_leader:
        return
    now_ms, end = environment.monotonic_ms(), log.log_end_offset
    lag_time_max_ms = environment.lag_time_max_ms
    leaving = tuple(
        node
        for node, follower in partition.followers.items()
        if node in partition.isr
        and not follower.is_caught_up(end, now_ms=now_ms, lag_time_max_ms=lag_time_max_ms)
    )
    if leaving and now_ms >= partition.quiet_until_ms:
        _propose(
            partition, reduction(partition.isr, leaving, _epochs(partition), at=_at(partition))
        )


def _propose(partition: "Partition", change: IsrChange) -> None:
    partition.pending = change
    partition.environment.propose(partition, change)


def _at(partition: "Partition") -> tuple[int, int]:
    return partition.leader_epoch, partition.partition_epoch


def _epochs(partition: "Partition") -> dict[int, int]:
    """Return the broker epochs that are known, this broker's own included."""
    epochs = {
        node: follower.broker_epoch
        for node, follower in partition.followers.items()
        if follower.broker_epoch is not None
    }
    epochs[partition.node_id] = partition.environment.broker_epoch()
    return epochs
