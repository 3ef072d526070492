"""A quorum member's directory `__cluster_metadata-0`: log, snapshots, `quorum-state`.

Kafka's layout and formats. All calls block, except for the log's flush. A worker thread may run
`create_snapshot` while the log is appended to.

Source: KafkaMetadataLog, FileQuorumStateStore, FileRawSnapshotWriter; KIP-595, KIP-630.
"""

import contextlib
import logging
import posixpath
from collections.abc import Callable, Iterable
from typing import Protocol

from ottla.base.ids import METADATA_TOPIC
from ottla.base.pending import Pending
from ottla.base.ports import Disk, File
from ottla.host.kraft.quorum_recovery_point import RecoveryPoint
from ottla.raft.election import (
    FILE_NAME,
    ElectionState,
    QuorumStateError,
    decode_election,
    encode_election,
)
from ottla.raft.log_view import LogView
from ottla.raft.snapshots import (
    PART_SUFFIX,
    SUFFIX,
    CorruptSnapshot,
    SnapshotContent,
    StoredSnapshot,
    decode_snapshot,
    inspect_snapshot,
    parse_snapshot_name,
    snapshot_name,
)
from ottla.raft.values import EMPTY_LOG, EpochStart, OffsetAndEpoch

log = logging.getLogger(__name__)

METADATA_DIR = f"{METADATA_TOPIC}-0"
READ_BYTES_MAX = 8 * 1024 * 1024
"""The most bytes of one response, and of one batch (KafkaRaftClient)."""


CORRUPT_SUFFIX = ".corrupt"
"""The suffix that a damaged snapshot gets."""

FROM_BACKUP = "restore the directory from a backup"


class MetadataDamaged(Exception):
    """The metadata is damaged: the node must stop.

    The message is one line for the operator: file, offset, the damage and the remedy.
    """


class MetadataLog(Protocol):
    """The log itself, as segments on disk. Offsets are half-open: [start, end)."""

    @property
    def start_offset(self) -> int:
        """Return the first offset that is kept."""
        ...

    @property
    def end_offset(self) -> int:
        """Return the offset that the next record gets."""
        ...

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all segments."""
        ...

    def epochs(self) -> list[EpochStart]:
        """Return where each leader epoch began."""
        ...

    def file_of(self, offset: int) -> str:
        """Return the path of the segment of `offset`: for messages."""
        ...

    def append(self, data: bytes | memoryview) -> None:
        """Append whole batches, whose offsets and epochs are set."""
        ...

    def read(self, start: int, end: int, bytes_max: int) -> bytes:
        """Return batches from `start` on: about `bytes_max`, one at least, none from `end` on."""
        ...

    def truncate_to(self, offset: int) -> None:
        """Remove all from `offset` on."""
        ...

    def restart_at(self, offset: int) -> None:
        """Remove everything; continue at `offset`."""
        ...

    def delete_before(self, offset: int) -> None:
        """Let the log begin at `offset`; whole segments before it go."""
        ...

    def flush(self) -> Pending[OSError | None]:
        """Make durable, in a worker, what is appended now; None = done."""
        ...

    def flush_now(self) -> None:
        """Make everything durable before returning. Raises: OSError."""
        ...

    def on_failure(self, failed: Callable[[OSError], None]) -> None:
        """Call `failed` when background work fails with an OSError."""
        ...

    def close(self) -> None:
        """Release the files."""
        ...


class QuorumStorage:
    """The directory's files. Errors are OSError, or what the formats' readers raise."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        metadata_log: MetadataLog,
        recovery_point: RecoveryPoint,
        *,
        remedy: str = FROM_BACKUP,
    ) -> None:
        self.remedy = remedy
        """What the operator has to do where the directory is damaged."""
        self.corrupt_snapshots: list[str] = []
        self._recovery_point = recovery_point
        self._disk = disk
        self._directory = directory
        self.log = metadata_log
        self._snapshots: dict[OffsetAndEpoch, StoredSnapshot] = {}
        self._part: File | None = None
        self._find_snapshots()
        self._skip_to_latest_snapshot()

    # -- at the start --------------------------------------------------------------------------

    def _find_snapshots(self) -> None:
        """List the snapshots; remove incomplete ones, and those before the start of the log."""
        for name in self._disk.listdir(self._directory):
            parsed = parse_snapshot_name(name)
            if name.endswith(SUFFIX + CORRUPT_SUFFIX):
                self.corrupt_snapshots.append(posixpath.join(self._directory, name))
            if parsed is None:
                continue
            snapshot, suffix = parsed
            if suffix != SUFFIX or snapshot.offset < self.log.start_offset:
                self._disk.remove(posixpath.join(self._directory, name))
            elif snapshot != EMPTY_LOG:
                self._load_snapshot(snapshot)

    def _load_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        try:
            self._snapshots[snapshot] = self.inspect_snapshot(snapshot)
        except CorruptSnapshot as damage:
            # Without it the log must be complete; loading fails if it is not.
            aside = self._path(snapshot) + CORRUPT_SUFFIX
            log.error("%s; renaming it to %s", damage, posixpath.basename(aside))
            self._disk.rename(self._path(snapshot), aside)
            self.corrupt_snapshots.append(aside)

    def _skip_to_latest_snapshot(self) -> None:
        """Complete the adoption of a snapshot that a crash interrupted."""
        latest = max(self._snapshots, key=lambda snapshot: snapshot.rank, default=None)
        if latest is None:
            return
        epochs = self.log.epochs()
        if not epochs and self.log.end_offset == latest.offset:
            return  # Nothing was appended since the snapshot was adopted.
        end = OffsetAndEpoch(self.log.end_offset, epochs[-1].epoch if epochs else 0)
        if latest.rank > end.rank:
            self._restart_log_at(latest)
            self._remove_snapshots_before(latest)

    # -- durability ----------------------------------------------------------------------------

    def on_failure(self, failed: Callable[[OSError], None]) -> None:
        """Call `failed` when background work fails with an OSError."""
        self.log.on_failure(failed)
        self._recovery_point.on_failure = failed

    def flushed(self, offset: int) -> None:
        """Write the recovery point: the log is durable up to `offset`. Raises: OSError."""
        self._recovery_point.raised(min(offset, self.log.end_offset))

    def seal(self) -> None:
        """Flush everything and sync the recovery point, for a clean shutdown. Raises: OSError."""
        self.log.flush_now()
        self.flushed(self.log.end_offset)
        self._recovery_point.sync_now()

    def truncate_to(self, offset: int) -> None:
        """Remove all from `offset` on. Raises: OSError."""
        self._recovery_point.lower(offset)
        self.log.truncate_to(offset)

    def _restart_log_at(self, snapshot: OffsetAndEpoch) -> None:
        """Start the log again at the end of a snapshot, which is durable."""
        self._recovery_point.lower(snapshot.offset)
        self.log.restart_at(snapshot.offset)

    @property
    def directory(self) -> str:
        """Return the directory's path, for messages."""
        return self._directory

    def view(self) -> LogView:
        """Return raft's view of the log."""
        return LogView(
            start_offset=self.log.start_offset,
            end_offset=self.log.end_offset,
            epochs=self.log.epochs(),
            snapshots=self._snapshots,
        )

    # -- elections -----------------------------------------------------------------------------

    def load_election(self) -> ElectionState | None:
        """Return the stored state; None where there is none. Raises: MetadataDamaged."""
        path = posixpath.join(self._directory, FILE_NAME)
        if not self._disk.exists(path):
            return None
        try:
            return decode_election(self._disk.read_bytes(path))
        except QuorumStateError as error:
            # Without it this voter might vote twice in an epoch.
            raise MetadataDamaged(f"{path}: {error}") from None

    def store_election(self, state: ElectionState) -> None:
        """Replace the state, durably."""
        self._disk.write_atomic(posixpath.join(self._directory, FILE_NAME), encode_election(state))

    # -- snapshots -----------------------------------------------------------------------------

    @property
    def snapshots(self) -> list[StoredSnapshot]:
        """Return the snapshots, oldest first."""
        return sorted(self._snapshots.values(), key=lambda stored: stored.id.rank)

    def _path(self, snapshot: OffsetAndEpoch, suffix: str = SUFFIX) -> str:
        name = snapshot_name(snapshot).removesuffix(SUFFIX) + suffix
        return posixpath.join(self._directory, name)

    def snapshot_file(self, snapshot: OffsetAndEpoch) -> str:
        """Return the path of a snapshot: for messages."""
        return self._path(snapshot)

    def read_snapshot(self, snapshot: OffsetAndEpoch) -> SnapshotContent:
        """Return a snapshot's content. Raises: CorruptSnapshot, which names the file."""
        path = self._path(snapshot)
        try:
            return decode_snapshot(self._disk.read_bytes(path))
        except CorruptSnapshot as error:
            raise CorruptSnapshot(f"{path}: {error}") from error

    def inspect_snapshot(self, snapshot: OffsetAndEpoch, suffix: str = SUFFIX) -> StoredSnapshot:
        """Read a snapshot's file and check that it is whole: some milliseconds.

        Raises: CorruptSnapshot, which names the file; OSError.
        """
        path = self._path(snapshot, suffix)
        data = self._disk.read_bytes(path)
        try:
            last_contained_ms = inspect_snapshot(data)
        except CorruptSnapshot as error:
            raise CorruptSnapshot(f"{path}: {error}") from error
        return StoredSnapshot(
            id=snapshot, size_bytes=len(data), last_contained_ms=last_contained_ms
        )

    def read_snapshot_piece(
        self, snapshot: OffsetAndEpoch, position: int, bytes_max: int
    ) -> tuple[bytes, int]:
        """Return up to `bytes_max` bytes at `position`, and the snapshot's whole size."""
        file = self._disk.open(self._path(snapshot))
        try:
            return file.read_at(position, min(bytes_max, READ_BYTES_MAX)), file.size()
        finally:
            file.close()

    def create_snapshot(self, snapshot: OffsetAndEpoch, chunks: Iterable[bytes]) -> StoredSnapshot:
        """Write a snapshot, durably; `snapshot_created` is to follow on the loop.

        Of one that fails nothing is left, or a full disk would only become fuller.
        """
        part = self._path(snapshot, PART_SUFFIX)
        self._disk.remove(part)
        file = self._disk.open(part, create=True)
        try:
            try:
                for chunk in chunks:
                    file.append([chunk])
                file.sync()
            finally:
                file.close()
            return self._freeze(snapshot)
        except Exception:
            with contextlib.suppress(OSError):
                self._disk.remove(part)
            raise

    def _freeze(self, snapshot: OffsetAndEpoch) -> StoredSnapshot:
        """Check the written file and rename it. Raises: CorruptSnapshot."""
        stored = self.inspect_snapshot(snapshot, PART_SUFFIX)
        self._disk.rename(self._path(snapshot, PART_SUFFIX), self._path(snapshot))
        self._disk.sync_dir(self._directory)
        return stored

    def snapshot_created(self, stored: StoredSnapshot) -> None:
        """List a snapshot that `create_snapshot` wrote."""
        assert stored.id.offset >= self.log.start_offset
        self._snapshots[stored.id] = stored

    def snapshot_outdated(self, stored: StoredSnapshot) -> None:
        """Remove a snapshot of `create_snapshot` that is before the start of the log by now."""
        assert stored.id not in self._snapshots
        try:
            self._disk.remove(self._path(stored.id))
        except OSError as error:
            log.warning("deleting %s failed (%s); the next start retries", error.filename, error)

    def write_snapshot_piece(
        self, snapshot: OffsetAndEpoch, position: int, data: bytes | memoryview
    ) -> None:
        """Write a fetched piece; position 0 begins again, also with another snapshot."""
        part = self._path(snapshot, PART_SUFFIX)
        if position == 0:
            given_up = {part} if self._part is None else {part, self._part.path}
            self._close_part()
            for path in sorted(given_up):
                self._disk.remove(path)
            self._part = self._disk.open(part, create=True)
        assert self._part is not None
        assert self._part.path == part
        assert self._part.size() == position
        self._part.append([data])

    def adopt_snapshot(self, snapshot: OffsetAndEpoch) -> SnapshotContent:
        """Make a fetched snapshot durable and start the log again at its end."""
        assert self._part is not None
        self._part.sync()
        self._close_part()
        stored = self._freeze(snapshot)
        self._restart_log_at(snapshot)
        self._snapshots[snapshot] = stored
        self._remove_snapshots_before(snapshot)
        return self.read_snapshot(snapshot)

    def _close_part(self) -> None:
        if self._part is not None:
            self._part.close()
            self._part = None

    def delete_before(self, snapshot: OffsetAndEpoch) -> None:
        """Remove the log's segments before a snapshot, and the older snapshots."""
        assert snapshot in self._snapshots
        self.log.delete_before(snapshot.offset)
        self._remove_snapshots_before(snapshot)

    def _remove_snapshots_before(self, snapshot: OffsetAndEpoch) -> None:
        for older in [each for each in self._snapshots if each.rank < snapshot.rank]:
            del self._snapshots[older]
            self._disk.remove(self._path(older))

    def close(self) -> None:
        """Release all files."""
        self._close_part()
        self._recovery_point.close()
        self.log.close()
