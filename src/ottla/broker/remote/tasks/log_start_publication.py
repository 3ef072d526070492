"""Publishes a log start before the remote segments below it are deleted.

It must be durable here, or a restart would bring the older one back, and every live replica must
have it: one that became the leader without it would send readers to objects that are gone.
Followers learn it with their fetches. A replica that is down, or in a log directory that is
offline, does not count: it is back after a start of its broker, and as a leader it begins with what
is in the remote tier (`ottla.tiered.copy_plan.elected_log_start`).

Source: KAFKA-15352, KAFKA-16146.
"""

from typing import TYPE_CHECKING, Final

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed, gather
from ottla.base.ports import Clock

if TYPE_CHECKING:
    from ottla.broker.partition import Partition
    from ottla.broker.replica_manager import ReplicaManager
    from ottla.log.dirs.log_dirs import LogDirs
    from ottla.log.partition_log import PartitionLog

REPLICAS_MS_MAX: Final = 30_000
"""How long live replicas are waited for; then the caller tries again later."""


class LogStartPublisher:
    """See the module."""

    def __init__(self, replicas: "ReplicaManager", log_dirs: "LogDirs", clock: Clock) -> None:
        self._replicas = replicas
        self._log_dirs = log_dirs
        self._clock = clock

    def publish(self, log: "PartitionLog", offset: int) -> Pending[ApiError | None]:
        """Return the promise that this log start, or a higher one, is published; or why not."""
        try:
            partition = self._replicas.partition(log.topic, log.partition)
        except ApiError as error:
            return completed(error)
        if log.truncation.may_be_limited:
            # As of a follower a moment ago: a start would lower the log start. They are gone soon.
            return completed(ApiError(Error.KAFKA_STORAGE_ERROR, "a truncation is not over"))
        stored = self._log_dirs.checkpoint_log_start(log).map(_storage_error)
        both = gather([stored, self._known_by_replicas(partition, log, offset)])
        return both.map(lambda errors: errors[0] or errors[1])

    def _known_by_replicas(
        self, partition: "Partition", log: "PartitionLog", offset: int
    ) -> Pending[ApiError | None]:
        known: Pending[ApiError | None] = Pending()

        def attempt() -> bool:
            if partition.deleted or partition.log is not log or not partition.is_leader:
                known.complete(ApiError(Error.NOT_LEADER_OR_FOLLOWER))
            elif partition.live_log_start >= offset:
                known.complete(None)
            return known.done

        def expire() -> None:
            low = partition.live_log_start
            known.complete(
                ApiError(
                    Error.REQUEST_TIMED_OUT,
                    f"a live replica has not advanced its log start from {low} to {offset}",
                )
            )

        if not attempt():
            self._replicas.delete_records_purgatory.add(
                (partition,),
                attempt=attempt,
                expire=expire,
                deadline_ms=self._clock.monotonic_ms() + REPLICAS_MS_MAX,
            )
            self._replicas.fetch_reader.hasten_follower_fetches(partition)
        return known


def _storage_error(error: OSError | None) -> ApiError | None:
    return None if error is None else ApiError(Error.KAFKA_STORAGE_ERROR, str(error))
