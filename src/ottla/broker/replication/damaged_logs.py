"""Logs with a damaged batch on the disk: how it is reported, and what happens to the replica.

A follower finds damage when it truncates its log to agree with a new leader's. The records from
the last sound batch to the truncation offset are lost here, and the leader has them:

| the replica                                   | then                                           |
|-----------------------------------------------|------------------------------------------------|
| may count as a copy of them: it is in sync or | is offline until the broker's next start; the  |
| eligible to lead, or may be by now            | controller takes it out of the ISR             |
| does not: see `may_copy_again`                | is truncated to the last sound batch, and      |
|                                               | fetches from there on                          |

A replica of the first kind that was truncated could be elected before it has fetched the records
again: acknowledged records would be lost. A lower high watermark of its own proves nothing, since
it always lags.

A leader, or a follower that consumers read from, finds damage when it reads: of a batch, or of a
transaction index, which only read_committed consumers need. It fails these reads, and serves all
others: offline it would serve nothing at all. It also finds damage when it is to copy a segment to
remote storage: it does not, since all replicas delete their local records of what is copied.
"""

import errno
import logging
from typing import TYPE_CHECKING

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.log import names
from ottla.log.results import DamagedLog

if TYPE_CHECKING:
    from ottla.broker.partition import Partition
    from ottla.log.dirs.log_dirs import LogDirs
    from ottla.log.partition_log import PartitionLog
    from ottla.metadata.image import ClusterImage

logger = logging.getLogger(__name__)


class DamagedLogs:
    """The damage that one broker has found.

    `count`: how often; for reads each log counts once in each leader epoch, for copies to remote
    storage each damage does.
    """

    def __init__(self, log_dirs: "LogDirs") -> None:
        self.count = 0
        self._log_dirs = log_dirs
        self._logged: dict[tuple[Uuid, int], int] = {}
        """The leader epoch in which a log was last reported as unreadable."""
        self._uncopied: dict[tuple[Uuid, int], tuple[int, str, int]] = {}
        """Leader epoch, file and offset of the damage that last kept a log from being copied."""

    def found_by_truncation(
        self, partition: "Partition", damage: "DamagedLog", *, goes_on: bool
    ) -> None:
        """Log a failed truncation, and take the replica offline unless it `goes_on`."""
        log = partition.log
        assert log is not None
        self.count += 1
        consequence = (
            "truncating to that offset and fetching the rest from the leader again"
            if goes_on
            else "this replica is offline until the broker's next start, as the records after that "
            "offset may be needed from it; once the partition has a leader and neither Isr nor Elr "
            "names this broker, stop it, move the directory away, and start it again"
        )
        logger.error(
            "%s: log is damaged after offset %d (%s; high watermark %d, log end %d); %s",
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

    def found_by_read(self, partition: "Partition", offset: int, refusal: ApiError) -> None:
        """Log a read that failed for damage, once for each log and leader epoch."""
        log, key = partition.log, (partition.topic_id, partition.partition_id)
        if refusal.error is not Error.CORRUPT_MESSAGE or log is None:
            return
        if self._logged.get(key) == partition.leader_epoch:
            return
        self._logged[key] = partition.leader_epoch
        self.count += 1
        path = log.segments[log.segments.floor(offset)].path(names.LOG)
        consequence = (
            "fetches of this offset fail with CORRUPT_MESSAGE, and followers that need it fall out "
            "of sync"
        )
        if isinstance(refusal, DamagedLog):
            path = refusal.path
            consequence = (
                "fetches with isolation level read_committed that need this transaction index fail "
                "with CORRUPT_MESSAGE; the broker's next start rebuilds it from the batches"
            )
        logger.error(
            "%s: log is damaged at or after offset %d (%s: %s); %s",
            log.name,
            offset,
            path,
            refusal.message,
            consequence,
        )

    def found_by_copy(self, log: "PartitionLog", leader_epoch: int, damage: "DamagedLog") -> None:
        """Log a copy to remote storage that failed for damage, once for each leader epoch."""
        key, found = (log.topic_id, log.partition), (leader_epoch, damage.path, damage.good_end)
        if self._uncopied.get(key) == found:
            return
        self._uncopied[key] = found
        self.count += 1
        logger.error(
            "%s: log is damaged at or after offset %d (%s); copying nothing from there on to "
            "remote storage, so that no replica deletes its local records; if another replica "
            "leads, it copies its own",
            log.name,
            damage.good_end,
            damage.message,
        )


def may_copy_again(image: "ClusterImage", partition: "Partition", node_id: int) -> bool:
    """Tell whether a follower's records are not needed, so that it may lose some of them.

    As of its leader's epoch it is neither in sync nor eligible to lead, nor the last leader that
    the controller would fall back to. Only a fetch that this leader has accepted could change
    that, and the caller knows of none. Where brokers have no epochs (ZooKeeper) a leader may accept
    a fetch of an earlier process of this broker, so there it is never certain.
    """
    topic, broker = image.topics.by_id(partition.topic_id), image.brokers.get(node_id)
    state = None if topic is None else topic.partitions.get(partition.partition_id)
    if state is None or broker is None or broker.epoch == NO_EPOCH:
        return False
    counted = (*state.isr, *state.elr, *state.last_known_elr)
    return state.leader_epoch == partition.leader_epoch and node_id not in counted
