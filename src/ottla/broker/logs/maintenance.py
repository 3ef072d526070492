"""Periodic tasks on a broker's logs: retention, flushes, checkpoints, producer expiry.

| Every                                         | what                                          |
|-----------------------------------------------|-----------------------------------------------|
| log.retention.check.interval.ms               | old segments are deleted                      |
| log.flush.scheduler.interval.ms               | logs whose flush.ms has passed are flushed    |
| log.flush.offset.checkpoint.interval.ms       | recovery points are written                   |
| log.flush.start.offset.checkpoint.interval.ms | log starts are written                        |
| replica.high.watermark.checkpoint.interval.ms | high watermarks are written                   |
| producer.id.expiration.check.interval.ms      | inactive producers expire                     |

The first run comes log.initial.task.delay.ms after the start at the latest. A run over many logs
is divided into steps of a few logs each, so that no request waits long.
Source: LogManager.startupWithConfigOverrides, ReplicaManager.startup.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base.errors import ApiError
from ottla.base.limits import LOGS_PER_STEP_MAX
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers, aligned
from ottla.broker.partition import Partition
from ottla.broker.replica_manager import ReplicaManager
from ottla.metadata.node_config import NodeConfig

if TYPE_CHECKING:
    from ottla.log.dirs.log_dirs import LogDirs
    from ottla.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

STEP_PAUSE_MS = 1

NEVER_MS = 2**62
"""A larger interval means never, as in Kafka (2^63 - 1)."""


class Maintenance:
    """The tasks of one broker. `start` arms them, `stop` ends them."""

    def __init__(
        self,
        *,
        config: NodeConfig,
        clock: Clock,
        timers: Timers,
        log_dirs: "LogDirs",
        replicas: ReplicaManager,
    ) -> None:
        self._config = config
        self._clock = clock
        self._timers = timers
        self._log_dirs = log_dirs
        self._replicas = replicas
        self._armed: dict[str, Timer] = {}
        self._stopped = False

    def start(self) -> None:
        """Arm all tasks."""
        self._every("log.retention.check.interval.ms", self.retain)
        self._every("log.flush.scheduler.interval.ms", self.flush)
        self._every("producer.id.expiration.check.interval.ms", self.expire_producers)
        dirs = self._log_dirs
        self._every("log.flush.offset.checkpoint.interval.ms", dirs.checkpoint_recovery_points)
        self._every("log.flush.start.offset.checkpoint.interval.ms", dirs.checkpoint_log_starts)
        self._every(
            "replica.high.watermark.checkpoint.interval.ms", dirs.checkpoint_high_watermarks
        )

    def stop(self) -> None:
        """Cancel all tasks; a run that has begun ends with its current step."""
        self._stopped = True
        for timer in self._armed.values():
            timer.cancel()
        self._armed.clear()

    def retain(self) -> None:
        """Delete the segments beyond retention.ms and retention.bytes."""
        self._each_log(self._retain, then=self._log_dirs.delete_expired_segments)

    def flush(self) -> None:
        """Flush the logs whose flush.ms has passed; workers do it."""
        now_ms = self._clock.now_ms()
        for partition in self._replicas.hosted():
            log = partition.log
            if log is not None and log.needs_flush(now_ms):
                log.flush()

    def expire_producers(self) -> None:
        """Expire the producers that have been inactive too long."""
        self._each_log(lambda log: log.expire_producers(self._clock.now_ms()))

    def _retain(self, log: "PartitionLog") -> None:
        for segment in log.expire_segments(self._clock.now_ms()):
            logger.info(
                "%s: deleting segment %d of %d bytes: %s",
                log.name,
                segment.base_offset,
                segment.size,
                segment.reason.value,
            )

    def _every(self, interval: str, task: Callable[[], object]) -> None:
        interval_ms = self._config[interval]
        if not 0 < interval_ms <= NEVER_MS:
            return  # Kafka's scheduler repeats nothing without an interval.

        def run() -> None:
            self._arm(interval, interval_ms, run)
            task()

        self._arm(interval, min(interval_ms, self._config["log.initial.task.delay.ms"]), run)

    def _arm(self, name: str, after_ms: int, run: Callable[[], None]) -> None:
        due_ms = aligned(self._clock.monotonic_ms(), after_ms)
        self._armed[name] = self._timers.at(due_ms, run)

    def _each_log(
        self,
        work: "Callable[[PartitionLog], object]",
        then: Callable[[], object] = lambda: None,
    ) -> None:
        self._step(tuple(self._replicas.hosted()), work, then)

    def _step(
        self,
        partitions: tuple[Partition, ...],
        work: "Callable[[PartitionLog], object]",
        then: Callable[[], object],
    ) -> None:
        """Work on some logs now and on the rest later; call `then` at the end."""
        if self._stopped:
            return
        for partition in partitions[:LOGS_PER_STEP_MAX]:
            log = partition.log
            if log is not None:
                start = log.log_start_offset
                try:
                    work(log)
                    if log.log_start_offset != start:
                        self._replicas.fetch_reader.hasten_follower_fetches(partition)
                except ApiError as refusal:
                    logger.warning(
                        "%s: log maintenance failed: %s; retrying at the next interval",
                        log.name,
                        refusal,
                    )
                except OSError as error:
                    self._replicas.storage_failed(partition, error)
        left = partitions[LOGS_PER_STEP_MAX:]
        if left:
            due_ms = self._clock.monotonic_ms() + STEP_PAUSE_MS
            self._timers.at(due_ms, lambda: self._step(left, work, then))
        else:
            then()
