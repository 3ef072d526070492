"""Writes metadata snapshots, and deletes the log before them.

The image is a persistent value, so a thread encodes it while the loop continues. Brokers and
controllers each write their own.

Source: SnapshotGenerator, KafkaMetadataLog.maybeClean; KIP-630.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.base.ports import Clock, Workers
from ottla.base.timers import Timer, Timers, aligned
from ottla.host.kraft.quorum_driver import QuorumDriver
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import encode_record, with_no_op
from ottla.raft.events import CleanUp, SnapshotStored
from ottla.raft.snapshots import CorruptSnapshot, StoredSnapshot, encode_snapshot, plan_cleaning
from ottla.raft.values import OffsetAndEpoch

log = logging.getLogger(__name__)

CHECK_MS = 1_000
"""How often the age of the last snapshot is checked; bytes are checked with each commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLimits:
    """The limits of the log, by Kafka's properties.

    Fields: `bytes_between`: metadata.log.max.record.bytes.between.snapshots.
            `interval_ms`: metadata.log.max.snapshot.interval.ms, 0 = never for its age.
            `retention_bytes`, `retention_ms`: metadata.max.retention.*, -1 = no limit.
    """

    bytes_between: int = 20 * 1024 * 1024
    interval_ms: int = 3_600_000
    retention_bytes: int = 100 * 1024 * 1024
    retention_ms: int = 7 * 24 * 3_600_000

    @staticmethod
    def of(values: Mapping[str, Any]) -> "SnapshotLimits":
        """Return the limits of a node's typed properties."""
        return SnapshotLimits(
            bytes_between=values["metadata.log.max.record.bytes.between.snapshots"],
            interval_ms=values["metadata.log.max.snapshot.interval.ms"],
            retention_bytes=values["metadata.max.retention.bytes"],
            retention_ms=values["metadata.max.retention.ms"],
        )


class Snapshotter:
    """Writes snapshots of `image()`, the committed state of `driver`'s member."""

    def __init__(
        self,
        driver: QuorumDriver,
        image: Callable[[], ClusterImage],
        *,
        clock: Clock,
        timers: Timers,
        workers: Workers,
        limits: SnapshotLimits,
    ) -> None:
        self._driver = driver
        self._image = image
        self._clock = clock
        self._timers = timers
        self._workers = workers
        self._limits = limits
        self._bytes = 0
        self._last_ms = 0
        self._wall_ms = 0
        self._busy = False
        self._timer: Timer | None = None
        self._running = False

    def start(self) -> None:
        """Start."""
        self._running = True
        self._last_ms = self._clock.monotonic_ms()
        self._arm()

    def stop(self) -> None:
        """Stop: begin no further snapshot."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()

    def committed(self, size_bytes: int, wall_ms: int) -> None:
        """Count records that were just committed; `wall_ms`: when the last was appended."""
        self._bytes += size_bytes
        self._wall_ms = max(self._wall_ms, wall_ms)
        if self._bytes >= self._limits.bytes_between:
            self.take()

    def _arm(self) -> None:
        if self._limits.interval_ms > 0:
            self._timer = self._timers.at(
                aligned(self._clock.monotonic_ms(), CHECK_MS), self._check
            )

    def _check(self) -> None:
        if not self._running:
            return
        if self._clock.monotonic_ms() - self._last_ms >= self._limits.interval_ms:
            self.take()
        self._arm()

    def take(self, damaged: OffsetAndEpoch | None = None) -> None:
        """Begin a snapshot of the committed state, unless it has one or one is under way.

        `damaged`: a snapshot that does not count; one of the same state takes its place.
        """
        image = self._image()
        offset, epoch = image.position
        snapshot = OffsetAndEpoch(offset + 1, epoch)
        latest = self._driver.node.log.latest_snapshot
        exists = latest is not None and snapshot.rank <= latest.rank and snapshot != damaged
        if self._busy or not self._running or offset < 0 or exists:
            return
        self._busy = True
        self._bytes = 0
        self._last_ms = self._clock.monotonic_ms()
        storage, now_ms, last_ms = self._driver.storage, self._clock.now_ms(), self._wall_ms

        def write() -> StoredSnapshot:
            values = (encode_record(record) for record in image.to_records())
            chunks = encode_snapshot(
                values,
                epoch=epoch,
                timestamp=now_ms,
                last_contained_ms=last_ms,
                complete=with_no_op,
            )
            return storage.create_snapshot(snapshot, chunks)

        self._workers.submit(write, self._written)

    def _written(self, outcome: StoredSnapshot | BaseException) -> None:
        self._busy = False
        if isinstance(outcome, BaseException):
            # The log is complete without it; the next one is begun at the next limit.
            log.error("writing a metadata snapshot failed", exc_info=outcome)
            return
        if not self._running or not self._driver.alive:
            return
        if outcome.id.offset < self._driver.node.log.start_offset:
            # A newer one was fetched meanwhile and the log starts at its end. As the oldest
            # snapshot of this log, this one would make every follower at that end fetch a snapshot
            # again.
            log.info(
                "deleting metadata snapshot at offset %d: the log starts at offset %d by now",
                outcome.id.offset,
                self._driver.node.log.start_offset,
            )
            self._driver.storage.snapshot_outdated(outcome)
            return
        log.info("wrote metadata snapshot at offset %d, epoch %d", *outcome.id)
        self._driver.storage.snapshot_created(outcome)
        self._driver.step(SnapshotStored(snapshot=outcome.id))
        self._clean_up()

    def _clean_up(self) -> None:
        storage = self._driver.storage
        keep_from = plan_cleaning(
            storage.snapshots,
            log_bytes=storage.log.size_bytes,
            retention_bytes=self._limits.retention_bytes,
            retention_ms=self._limits.retention_ms,
            now_ms=self._clock.now_ms(),
        )
        if keep_from is None:
            return
        try:
            storage.inspect_snapshot(keep_from)
        except (CorruptSnapshot, OSError) as error:
            # It was whole when it was written. Now this node has its state in the log alone.
            log.error("keeping the metadata log before offset %d: %s", keep_from.offset, error)
            return
        log.info("deleting the metadata log before offset %d, epoch %d", *keep_from)
        self._driver.step(CleanUp(snapshot=keep_from))
