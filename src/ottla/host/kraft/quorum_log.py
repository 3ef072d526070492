"""The metadata log on disk: a `PartitionLog` in `<metadata.log.dir>/__cluster_metadata-0`.

Nothing but a snapshot shortens it: retention by time and size is off, as in Kafka.
Source: KafkaMetadataLog.
"""

import contextlib
import logging
import posixpath
from collections.abc import Callable
from typing import Protocol

from ottla.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.base.pending import Pending
from ottla.base.ports import Clock, Disk, Workers
from ottla.base.timers import Timers
from ottla.host.kraft.quorum_recovery_point import RecoveryPoint, RecoveryPointDamaged
from ottla.host.kraft.quorum_storage import (
    FROM_BACKUP,
    METADATA_DIR,
    READ_BYTES_MAX,
    MetadataDamaged,
    QuorumStorage,
)
from ottla.host.log_dirs.descriptors import METADATA_FILES
from ottla.log import names
from ottla.log.config import DAY_MS, LogConfig
from ottla.log.dirs.durable_mkdir import mkdir_durably
from ottla.log.file_cache import FileCache
from ottla.log.opening import open_log
from ottla.log.partition_log import LogPorts, PartitionLog
from ottla.log.recovery.log_loader import LogDamaged
from ottla.raft.snapshots import (
    SUFFIX,
    CorruptSnapshot,
    inspect_snapshot,
    parse_snapshot_name,
)
from ottla.raft.values import EpochStart
from ottla.records.batch import iter_headers

log = logging.getLogger(__name__)


class SegmentedMetadataLog:
    """See `ottla.host.kraft.quorum_storage.MetadataLog`."""

    def __init__(self, log: PartitionLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    @property
    def start_offset(self) -> int:
        """Return the first offset that is kept."""
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """Return the offset that the next record gets."""
        return self._log.log_end_offset

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all segments."""
        return self._log.size_bytes

    def epochs(self) -> list[EpochStart]:
        """Return where each leader epoch began."""
        return [EpochStart(*entry) for entry in self._log.epochs.entries]

    def file_of(self, offset: int) -> str:
        """Return the path of the segment of `offset`: for messages."""
        segments = self._log.segments
        return segments[segments.floor(offset)].path(names.LOG)

    def append(self, data: bytes | memoryview) -> None:
        """Append whole batches, whose offsets and epochs are set. Raises: OSError."""
        due = self._log.log_end_offset
        info = self._log.append_as_follower(data, now_ms=self._clock.now_ms())
        assert info.first_offset == due, f"a batch at {info.first_offset} instead of {due}"
        assert info.size == len(data), "only whole batches are appended"

    def read(self, start: int, end: int, bytes_max: int) -> bytes:
        """Return batches from `start` on: about `bytes_max`, one at least, none from `end` on."""
        found = self._log.read(start, max_bytes=bytes_max, upper_bound=end, at_least_one=True)
        try:
            data = b"".join(piece.read() for piece in found.slices)
        finally:
            for piece in found.slices:
                piece.release()
        whole = 0
        for position, header in iter_headers(data, allow_partial=True):
            whole = position + header.size_in_bytes
        return data[:whole]

    def truncate_to(self, offset: int) -> None:
        """Remove all from `offset` on."""
        self._log.truncate_to(offset)
        assert self._log.log_end_offset == offset, "epochs begin and end with batches"

    def restart_at(self, offset: int) -> None:
        """Remove everything; continue at `offset`."""
        self._log.truncate_fully_and_start_at(offset)

    def delete_before(self, offset: int) -> None:
        """Let the log begin at `offset`; whole segments before it go."""
        self._log.advance_high_watermark(offset)
        self._log.delete_records(offset)
        # The snapshot at this offset is durable, and says where the log begins.
        self._log.delete_expired_segments(offset)

    def flush(self) -> Pending[OSError | None]:
        """Make durable, in a worker, what is appended now; None = done."""
        return self._log.flush()

    def flush_now(self) -> None:
        """Make everything durable before returning. Raises: OSError."""
        self._log.flush_now()

    def on_failure(self, failed: Callable[[OSError], None]) -> None:
        """Call `failed` when background work fails with an OSError."""
        self._log.ports.on_failure = lambda _log, error: failed(error)

    def close(self) -> None:
        """Release the files."""
        self._log.close()


def open_quorum_storage(
    disk: Disk,
    metadata_log_dir: str,
    *,
    clock: Clock,
    timers: Timers,
    workers: Workers,
    segment_bytes: int = 1 << 30,
    segment_ms: int = 7 * DAY_MS,
    remedy: str = FROM_BACKUP,
) -> QuorumStorage:
    """Open, recover or create a node's metadata partition directory. Blocks.

    A torn end of records that were not acknowledged, as a crash may leave, is truncated with a
    warning. Damage below the recovery point is refused: a member that has acknowledged a record
    must not start, and vote, without it.

    Fields: `segment_bytes`, `segment_ms`: metadata.log.segment.{bytes,ms}; `remedy`: what the
            operator has to do where the directory is damaged.
    Raises: OSError; MetadataDamaged; what the files' readers raise.
    """
    directory = posixpath.join(metadata_log_dir, METADATA_DIR)
    config = LogConfig(
        segment_bytes=segment_bytes,
        segment_ms=segment_ms,
        max_message_bytes=READ_BYTES_MAX,
        retention_bytes=-1,
        retention_ms=-1,
    )
    ports = LogPorts(
        disk=disk,
        files=FileCache(disk, METADATA_FILES),
        workers=workers,
        timers=timers,
        clock=clock,
        has_checkpoints=False,
    )

    def opened(keep_below: int, log_start_offset: int = 0) -> PartitionLog:
        # Never clean: all of it is read, and it is short.
        return open_log(
            ports,
            directory,
            topic=METADATA_TOPIC,
            partition=0,
            topic_id=METADATA_TOPIC_ID,
            config=config,
            log_start_offset=log_start_offset,
            keep_below=keep_below,
        )

    # Before the first vote, whose file is synced in it, not with it.
    mkdir_durably(disk, directory)
    try:
        recovery_point = RecoveryPoint(disk, directory, clock=clock, workers=workers)
    except RecoveryPointDamaged as error:
        raise MetadataDamaged(f"{error}; {remedy}") from error
    durable = max(recovery_point.offset, _newest_snapshot(disk, directory, whole=False))
    metadata_log = SegmentedMetadataLog(_recovered(disk, directory, opened, durable, remedy), clock)
    return QuorumStorage(disk, directory, metadata_log, recovery_point, remedy=remedy)


class _Opened(Protocol):
    """Opens the log. Raises: LogDamaged where it is not sound up to `keep_below`."""

    def __call__(self, keep_below: int, log_start_offset: int = 0) -> PartitionLog: ...


def _recovered(
    disk: Disk, directory: str, opened: _Opened, durable: int, remedy: str
) -> PartitionLog:
    """Open a log that must have all that was durable; warn of what is truncated."""
    size_bytes = _log_bytes(disk, directory)
    try:
        partition_log = opened(durable)
        why = "they were not known to be flushed"
    except LogDamaged as damage:
        snapshot = _newest_snapshot(disk, directory, whole=True)
        if damage.offset < snapshot:
            # While segments before a snapshot are being deleted, a power loss may restore any.
            with contextlib.suppress(LogDamaged):
                partition_log = opened(durable, snapshot)
                log.warning(
                    "%s; removed the segments below offset %d, whose records are in a snapshot",
                    damage,
                    snapshot,
                )
                return partition_log
        if snapshot < durable:
            raise MetadataDamaged(
                f"{damage.path}: the metadata log ends or is damaged at byte {damage.position}, "
                f"offset {damage.offset}, and was durable up to offset {durable}; {remedy}"
            ) from None
        # A crash may come between a snapshot's adoption and the end of the log before it.
        partition_log = opened(0)
        why = "a snapshot has those that were flushed"
    if partition_log.size_bytes < size_bytes:
        log.warning(
            "metadata log %s: cut %d bytes from offset %d on; %s",
            directory,
            size_bytes - partition_log.size_bytes,
            partition_log.log_end_offset,
            why,
        )
    return partition_log


def _log_bytes(disk: Disk, directory: str) -> int:
    """Return the size of all segments."""
    parsed = ((name, names.parse_segment_name(name)) for name in disk.listdir(directory))
    return sum(
        disk.size(posixpath.join(directory, name))
        for name, segment in parsed
        if segment is not None and segment[1] == names.LOG
    )


def _newest_snapshot(disk: Disk, directory: str, *, whole: bool) -> int:
    """Return the end offset of the newest snapshot, of those that can be read if `whole`; or 0."""
    newest = 0
    for name in disk.listdir(directory):
        parsed = parse_snapshot_name(name)
        if parsed is None or parsed[1] != SUFFIX or parsed[0].offset <= newest:
            continue
        try:
            if whole:
                inspect_snapshot(disk.read_bytes(posixpath.join(directory, name)))
            newest = parsed[0].offset
        except CorruptSnapshot:
            continue
    return newest
