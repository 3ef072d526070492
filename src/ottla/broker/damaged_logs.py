"""Logs in which a batch on the disk is damaged: who says so, and what becomes of the replica.

A follower meets damage where its log is cut to agree with a new leader's. Then the records from
the last sound batch to the cut are lost here, and the leader has them:

| the replica                                   | becomes                                        |
|-----------------------------------------------|------------------------------------------------|
| may count as a copy of them: in sync, or      | offline until the broker's next start; the     |
| eligible to lead, or it may be by now         | controller takes it out of the in-sync replicas|
| does not: see `may_copy_again`                | cut to the last sound batch, and copied from   |
|                                               | there on                                       |

Were the first cut as well, it could be elected before it has copied them: what was acknowledged
with its help would be gone. That its own high watermark lies below proves nothing: it always lags.

A leader, or a follower that consumers read from, meets damage where it is to read. It refuses
these reads, and goes on with all others: offline it would serve nothing at all.
"""

import errno
import logging
from typing import TYPE_CHECKING

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.log import names

if TYPE_CHECKING:
    from ottla.broker.partition import Partition
    from ottla.log.log_dirs import LogDirs
    from ottla.log.results import DamagedLog
    from ottla.metadata.image import ClusterImage

logger = logging.getLogger(__name__)


class DamagedLogs:
    """What one broker has met. `count`: how often, each log and epoch counting once for reads."""

    def __init__(self, log_dirs: "LogDirs") -> None:
        self.count = 0
        self._log_dirs = log_dirs
        self._told: dict[tuple[Uuid, int], int] = {}
        """The leader epoch in which a log was last said to be unreadable."""

    def met_by_cut(self, partition: "Partition", damage: "DamagedLog", *, goes_on: bool) -> None:
        """Say what has become of a replica whose log cannot be cut; take it offline or not."""
        log = partition.log
        assert log is not None
        self.count += 1
        consequence = (
            "it is cut there, and copied from the leader again"
            if goes_on
            else "it may be needed for what is lost, so this replica is offline until the broker's "
            "next start; once neither Isr nor Elr names it, stop the broker, move the directory "
            "away, and start it again"
        )
        logger.error(
            "%s: the log is damaged behind offset %d (%s; high watermark %d, log end %d): %s",
            log.name,
            damage.good_end,
            damage.message,
            log.high_watermark,
            log.log_end_offset,
            consequence,
        )
        if not goes_on:
            self._log_dirs.take_log_offline(
                log, OSError(errno.EBADMSG, damage.message, log.directory)
            )
            partition.log = None

    def met_by_read(self, partition: "Partition", offset: int, refusal: ApiError) -> None:
        """Say once in a leader epoch that a log cannot be read somewhere."""
        log, key = partition.log, (partition.topic_id, partition.index)
        if refusal.error is not Error.CORRUPT_MESSAGE or log is None:
            return
        if self._told.get(key) == partition.leader_epoch:
            return
        self._told[key] = partition.leader_epoch
        self.count += 1
        segment = log.segments[log.segments.floor(offset)]
        logger.error(
            "%s: the log is damaged at or behind offset %d (%s: %s): fetches of it are refused "
            "with CORRUPT_MESSAGE, and followers that need it fall out of sync",
            log.name,
            offset,
            segment.path(names.LOG),
            refusal.message,
        )


def may_copy_again(image: "ClusterImage", partition: "Partition", node_id: int) -> bool:
    """Tell whether nobody counts on what a follower has, so that it may lose some of it.

    As of its leader's epoch it is neither in sync nor eligible to lead, nor the last leader that
    the controller would fall back to. Only a fetch that this leader has accepted could change
    that, and its caller knows of none. Where brokers have no epochs (ZooKeeper's) a leader may take
    a fetch of a former life for one of this, so there it is never certain.
    """
    topic, broker = image.topics.by_id(partition.topic_id), image.brokers.get(node_id)
    state = None if topic is None else topic.partitions.get(partition.index)
    if state is None or broker is None or broker.epoch == NO_EPOCH:
        return False
    counted = (*state.isr, *state.elr, *state.last_known_elr)
    return state.leader_epoch == partition.leader_epoch and node_id not in counted
