"""Counts of elections in the committed metadata.

Every controller counts from its own start what it sees committed, so a failover loses
no count on the controllers that stay up.
Source: ControllerMetadataMetricsPublisher, ControllerMetricsChanges of Kafka 4.0.
"""

from dataclasses import dataclass

from ottla.base.ids import NO_EPOCH, NO_LEADER
from ottla.metadata.delta import ClusterDelta, TopicChange
from ottla.metadata.topics import RECOVERED, PartitionImage


@dataclass(slots=True)
class ElectionStatistics:
    """Counts since the start.

    Fields: `elections`: changes of a partition to another leader than just before.
            The first leader of a partition that was listed without one does not count.
            `unclean_elections`: those of a replica that may lack acknowledged records.
    """

    elections: int = 0
    unclean_elections: int = 0

    def observe(self, delta: ClusterDelta) -> None:
        """Count the elections of a delta. The first delta, from the empty image, counts none."""
        for change in delta.changed_topics.values():
            for before, after in _pairs(change):
                if after.leader in (NO_LEADER, before.leader) or before.leader_epoch == NO_EPOCH:
                    continue
                self.elections += 1
                # A reassignment may end with a leader that has just joined: it is in sync.
                is_clean = after.leader_recovery_state == RECOVERED
                if not is_clean and after.leader not in (*before.isr, *before.elr):
                    self.unclean_elections += 1


def _pairs(change: TopicChange) -> list[tuple[PartitionImage, PartitionImage]]:
    """Return the partitions that were there and are changed, before and after."""
    return [
        (change.old.partitions[partition_id], change.new.partitions[partition_id])
        for partition_id in change.partitions
        if partition_id in change.old.partitions
    ]
