"""The metadata log on disk: a `PartitionLog` in `<metadata.log.dir>/__cluster_metadata-0`.

Nothing but a snapshot shortens it: retention by time and size is off, as in Kafka.
Source: KafkaMetadataLog.
"""

import posixpath
from collections.abc import Callable

from ottla.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.base.pending import Pending
from ottla.base.ports import Clock, Disk, Workers
from ottla.base.timers import Timers
from ottla.host.quorum_storage import FOLDER, READ_BYTES_MAX, QuorumStorage
from ottla.log import names
from ottla.log.config import DAY_MS, LogConfig
from ottla.log.file_cache import FileCache
from ottla.log.log_ports import LogPorts
from ottla.log.opening import open_log
from ottla.log.partition_log import PartitionLog
from ottla.raft.values import EpochStart
from ottla.records.batch import iter_headers

FILES_OPEN_MAX = 64
"""Files kept open at once; a log has few segments, of up to four files each."""


class SegmentedMetadataLog:
    """See `ottla.host.quorum_storage.MetadataLog`."""

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
        """Return the path of the segment that holds, or would hold, `offset`: for messages."""
        segments = self._log.segments
        return segments[segments.floor(offset)].path(names.LOG)

    def append(self, data: bytes | memoryview) -> None:
        """Append whole batches, whose offsets and epochs are set. Raises: OSError."""
        due = self._log.log_end_offset
        info = self._log.append_as_follower(data, now_ms=self._clock.now_ms())
        assert info.first_offset == due, f"a batch at {info.first_offset} where {due} was due"
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
        """Remove everything; go on at `offset`."""
        self._log.truncate_fully_and_start_at(offset)

    def delete_before(self, offset: int) -> None:
        """Let the log begin at `offset`; whole segments before it go."""
        self._log.advance_high_watermark(offset)
        self._log.delete_records(offset)
        self._log.apply_retention(self._clock.now_ms())

    def flush(self) -> Pending[OSError | None]:
        """Make durable, in a worker, what is appended now; None = done."""
        return self._log.flush()

    def flush_now(self) -> None:
        """Make everything durable before returning. Raises: OSError."""
        self._log.flush_now()

    def on_failure(self, failed: Callable[[OSError], None]) -> None:
        """Call `failed` when work in the background met a broken disk."""
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
) -> QuorumStorage:
    """Open, recover or make a node's metadata folder. Blocks.

    Fields: `segment_bytes`, `segment_ms`: metadata.log.segment.{bytes,ms}.
    Raises: OSError; what the files' readers raise.
    """
    folder = posixpath.join(metadata_log_dir, FOLDER)
    config = LogConfig(
        segment_bytes=segment_bytes,
        segment_ms=segment_ms,
        max_message_bytes=READ_BYTES_MAX,
        retention_bytes=-1,
        retention_ms=-1,
    )
    ports = LogPorts(
        disk=disk,
        files=FileCache(disk, FILES_OPEN_MAX),
        workers=workers,
        timers=timers,
        clock=clock,
    )
    # Never called clean: what was acknowledged is synced, and the rest must be looked at.
    log = open_log(
        ports,
        folder,
        topic=METADATA_TOPIC,
        partition=0,
        topic_id=METADATA_TOPIC_ID,
        config=config,
    )
    return QuorumStorage(disk, folder, SegmentedMetadataLog(log, clock))
