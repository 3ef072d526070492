"""One log directory: its lock, owner, last shutdown, checkpoints and logs.

Source: LogManager, MetaPropertiesEnsemble, CleanShutdownFileHandler, OffsetCheckpointFile.
"""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from ottla.base.ids import NO_UUID, Uuid
from ottla.base.pending import Pending, completed
from ottla.base.ports import Disk, Workers
from ottla.log import names
from ottla.log.dirs.checkpoints import (
    MalformedFile,
    TopicPartition,
    decode_clean_shutdown,
    encode_clean_shutdown,
    encode_offsets,
    encode_running,
)
from ottla.log.dirs.durable_mkdir import mkdir_durably
from ottla.log.dirs.meta_properties import check_meta_properties, decode_meta_properties
from ottla.log.partition_log import PartitionLog


class DirectoryRefused(Exception):
    """This node must not use the directory: it is locked, or belongs to another node."""


Written = Pending[OSError | None]


Content = Callable[[], bytes | None]


class CoalescedWrite:
    """Writes one small file in workers, one write at a time, skipping outdated contents.

    Fields: `refusal`: returns why nothing may be written any more, None = it may; `on_durable`:
            called when a content is durable, before the next one is made.
    """

    def __init__(
        self,
        disk: Disk,
        workers: Workers,
        path: str,
        on_failure: Callable[[OSError], None],
        refusal: Callable[[], OSError | None],
        on_durable: Callable[[], None] = lambda: None,
    ) -> None:
        self._disk = disk
        self._workers = workers
        self._path = path
        self._on_failure = on_failure
        self._refusal = refusal
        self._on_durable = on_durable
        self._writing = False
        self._next: tuple[Content, Written] | None = None

    def write(self, content: Content) -> Written:
        """Write what `content` returns: now, or when the write in progress has ended.

        The promise completes with None once this content, or a later one, is durable. Where
        `content` returns None, the durable one is still right, and nothing is written.
        """
        if self._writing:
            written = self._next[1] if self._next is not None else Pending()
            self._next = (content, written)
            return written
        written = Pending()
        self._submit(content, written)
        return written

    def _submit(self, content: Content, written: Written) -> None:
        data = content()
        if data is None:
            written.complete(None)
            return
        self._writing = True
        self._workers.submit(
            lambda: self._disk.write_atomic(self._path, data),
            lambda result: self._done(result, written),
        )

    def _done(self, result: BaseException | None, written: Written) -> None:
        self._writing = False
        if result is not None and not isinstance(result, OSError):
            raise result
        if result is not None:
            self._on_failure(result)
        else:
            self._on_durable()
        next_write, self._next = self._next, None
        if next_write is not None:
            refusal = self._refusal()
            if refusal is None:
                self._submit(*next_write)
            else:
                next_write[1].complete(refusal)
        written.complete(result)


class _StartInWrite(NamedTuple):
    """A log in a log start checkpoint, as it was when the content was made."""

    log: PartitionLog
    start: int
    truncation_count: int
    has_remote_prefix: bool


class LogDir:
    """See the module.

    Fields: `directory_id`: from meta.properties, zero = it has none; `error`: why the directory is
            offline, None = it is online; `was_clean`: whether the last shutdown was clean;
            `previous_epoch`: the broker's epoch at that shutdown, -1 = unknown.
    """

    def __init__(
        self,
        disk: Disk,
        workers: Workers,
        path: str,
        on_failure: "Callable[[LogDir, OSError], None]",
    ) -> None:
        self.path = path
        self.directory_id = NO_UUID
        self.error: OSError | None = None
        self.was_clean = False
        self.previous_epoch = -1
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.duplicates: list[tuple[TopicPartition, str, str]] = []
        """Partitions of which a start found two directories, both paths; the first is loaded."""
        self.offline_replicas: dict[TopicPartition, set[Uuid]] = {}
        """Partitions that it may have held when it went offline, or is about to, with their topic
        ids: no copy may be created elsewhere, whatever the metadata says."""
        self.strays: set[str] = set()
        """Names of the stray partition directories, which are kept for the operator."""
        self.unusable: dict[str, OSError] = {}
        """Partition directories that could not be read at start, or cannot be renamed, and why.

        They and their checkpoint entries are kept as they are until the next start. No log of such
        a name is created: its data may be there, on a disk that was not mounted.
        """
        self.deleting: dict[tuple[Uuid, int], set[str]] = {}
        """The names of directories that wait for their removal, by topic id and partition."""
        self.durable_renames: set[str] = set()
        """Those of `deleting` whose rename is durable: a power loss cannot undo it."""
        self.stale_entries: dict[TopicPartition, int] = {}
        """Partitions whose checkpoint entries may be those of a log that is not here any more.

        The number differs for each log that gave up the name. A log that takes the name before the
        checkpoints are rewritten gets a marker file (`names.STALE_CHECKPOINTS`); else, after a
        crash in between, it would take over the former log's start and high watermark.
        """
        self.below_high_watermark: list[str] = []
        """Logs that ended below their checkpointed high watermark at start, or may have."""
        self.damaged_checkpoints: dict[str, str] = {}
        """Checkpoints that did not decode at start, and why: see `damaged_checkpoints`."""
        self.loaded = True
        """Whether all of its logs are loaded; only then may a shutdown be marked clean."""
        self._disk = disk
        self._workers = workers
        self._on_failure = on_failure
        self._stale_count = 0
        self._unusable_entries: dict[str, dict[TopicPartition, int]] = {
            name: {} for name in ALL_CHECKPOINTS
        }
        self._has_local_starts = False
        """Whether the checkpoint of local log starts may have entries."""
        self._starts_in_write: list[_StartInWrite] = []
        """Of the log start checkpoint that is being written, what its logs wait for."""
        self._durable_high_watermarks: dict[TopicPartition, int] | None = None
        """What that checkpoint holds, None = unknown: it is due every few seconds, and at rest
        nothing of it has changed."""
        self._high_watermarks_in_write: dict[TopicPartition, int] = {}
        self._release: Callable[[], None] | None = None
        self._writes = {name: self._writer(name) for name in (*ALL_CHECKPOINTS, names.RUNNING)}

    def __repr__(self) -> str:
        return f"LogDir({self.path}, {len(self.logs)} logs)"

    def _writer(self, name: str) -> CoalescedWrite:
        return CoalescedWrite(
            self._disk,
            self._workers,
            f"{self.path}/{name}",
            lambda error: self._on_failure(self, error),
            # `logs` of an offline directory is empty: the file would lose all entries.
            lambda: self.error,
            {
                names.LOG_STARTS: self._log_starts_durable,
                names.HIGH_WATERMARKS: self._high_watermarks_durable,
            }.get(name, lambda: None),
        )

    @property
    def is_online(self) -> bool:
        return self.error is None

    @property
    def may_be_clean(self) -> bool:
        """Whether every log here was recovered since the last crash.

        A log of an unusable directory with checkpoint entries was not: it may be on a disk that is
        not mounted.
        """
        return self.loaded and (self.was_clean or not any(self._unusable_entries.values()))

    def acquire(self, *, node_id: int, cluster_id: str | None) -> None:
        """Create, lock and identify the directory.

        Raises: DirectoryRefused; OSError.
        """
        if not self._disk.exists(self.path):
            mkdir_durably(self._disk, self.path)
        try:
            self._release = self._disk.lock(f"{self.path}/{names.LOCK}")
        except BlockingIOError:
            raise DirectoryRefused(
                f"Failed to acquire lock on file {names.LOCK} in {self.path}. Another node, in "
                "this process or in another, is using this directory."
            ) from None
        path = f"{self.path}/{names.META_PROPERTIES}"
        try:
            properties = decode_meta_properties(self._disk.read_bytes(path))
            check_meta_properties(path, properties, node_id=node_id, cluster_id=cluster_id)
        except FileNotFoundError:
            return
        except MalformedFile as error:
            raise OSError(5, str(error), path) from None
        except ValueError as error:
            self.release()
            raise DirectoryRefused(str(error)) from None
        if properties.directory_id is not None:
            self.directory_id = properties.directory_id

    def release(self) -> None:
        """Release the lock."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def may_come_back(self) -> frozenset[tuple[Uuid, int]]:
        """Return the deleted replicas that a power loss may bring back under their old names."""
        return frozenset(filter(self.may_bring_back, self.deleting))

    def may_bring_back(self, replica: tuple[Uuid, int]) -> bool:
        """Tell whether a power loss may bring a replica back under its old name."""
        return not self.deleting.get(replica, set()) <= self.durable_renames

    def deleting_names(self) -> frozenset[str]:
        """Return the names of the directories that wait for their removal now."""
        return frozenset(name for names in self.deleting.values() for name in names)

    def fail(self, error: OSError) -> None:
        """Take it offline through `LogDirs`, which notifies the broker."""
        self._on_failure(self, error)

    def add_offline_replica(self, key: TopicPartition, topic_id: Uuid) -> None:
        """Record that a replica is, or may be, in this directory, which is or goes offline."""
        self.offline_replicas.setdefault(key, set()).add(topic_id)

    def take_clean_shutdown_file(self) -> None:
        """Read and remove the clean shutdown file. Blocks.

        Raises: OSError.
        """
        path = f"{self.path}/{names.CLEAN_SHUTDOWN}"
        try:
            self.previous_epoch = decode_clean_shutdown(self._disk.read_bytes(path))
        except FileNotFoundError:
            return
        self.was_clean = True
        self._disk.remove(path)
        self._disk.sync_dir(self.path)

    def write_clean_shutdown_file(self, broker_epoch: int) -> None:
        """Write the clean shutdown file. Blocks. Raises: OSError."""
        path = f"{self.path}/{names.CLEAN_SHUTDOWN}"
        self._disk.write_atomic(path, encode_clean_shutdown(broker_epoch))

    def write_running(self, broker_epoch: int, boot_id: str) -> Written:
        """Write the broker epoch and boot id that use the directory now, in a worker."""
        if self.error is not None:
            return completed(self.error)
        written = self._writes[names.RUNNING].write(lambda: encode_running(broker_epoch, boot_id))
        known = len(self.below_high_watermark)
        # Meanwhile a log may have been found below its high watermark.
        written.then(
            lambda _: self.mark_unclean() if known < len(self.below_high_watermark) else None
        )
        return written

    def note_below_high_watermark(self, name: str) -> None:
        """Note a log that may have lost committed records: the broker is not unaffected.

        The next start must not either, if this process dies before it has registered.
        """
        self.below_high_watermark.append(name)
        self.mark_unclean()

    def mark_unclean(self) -> None:
        """Let the next start treat this as an unclean shutdown: writes may be lost."""
        path = f"{self.path}/{names.RUNNING}"
        try:
            self._disk.remove(path)
        except OSError:
            # If the disk fails here, too, the boot id will differ: such a disk needs a reboot.
            with contextlib.suppress(OSError):
                file = self._disk.open(path)
                file.truncate(0)
                file.close()

    def checkpoint(self, name: str) -> Written:
        """Write one of `CHECKPOINTS`, in a worker; after the log starts the local log starts.

        The promise completes when both are durable.
        """
        if self.error is not None:
            return completed(self.error)
        if name != names.LOG_STARTS:
            return self._writes[name].write(lambda: self._content(name))
        written = self._writes[name].write(self._log_starts)
        if not self._has_local_starts:
            # Kafka has no such file: it is there once a log of this directory needed it.
            self._has_local_starts = any(log.has_remote_prefix for log in self.logs.values())
        return self._then_local_starts(written) if self._has_local_starts else written

    def _content(self, name: str) -> bytes | None:
        """Return what one of the checkpoints is to hold; None = it is durable already."""
        offsets = self.offsets(name)
        if name == names.HIGH_WATERMARKS:
            if offsets == self._durable_high_watermarks:
                return None
            self._durable_high_watermarks, self._high_watermarks_in_write = None, offsets
        return encode_offsets(offsets)

    def _high_watermarks_durable(self) -> None:
        self._durable_high_watermarks = self._high_watermarks_in_write

    def _log_starts(self) -> bytes:
        self._starts_in_write = [
            _StartInWrite(log, log.log_start_offset, log.truncation_count, log.has_remote_prefix)
            for log in self.logs.values()
            if log.has_remote_prefix or log.epochs.keeps_in_file
        ]
        return encode_offsets(self.offsets(names.LOG_STARTS))

    def _log_starts_durable(self) -> None:
        for log, start, truncation_count, has_remote_prefix in self._starts_in_write:
            if log.truncation_count != truncation_count:
                continue
            if has_remote_prefix:
                log.offsets.is_log_start_stored = True
            if not log.truncation.may_be_limited:
                log.epochs.start_durable(start)
        self._starts_in_write.clear()

    def _then_local_starts(self, written: Written) -> Written:
        """Write the local log starts once the log starts are durable: see `remote_prefix`."""
        done: Written = Pending()
        name = names.LOCAL_LOG_STARTS

        def ended(error: OSError | None) -> None:
            done.complete(error)

        def stored(error: OSError | None) -> None:
            error = error or self.error
            if error is not None:
                done.complete(error)
            else:
                local = self._writes[name].write(lambda: encode_offsets(self.offsets(name)))
                local.then(ended)

        written.then(stored)
        return done

    def checkpoint_all(self) -> Written:
        """Write all of them, in workers; then they have no entry of a log that is not here."""
        if self.error is not None or not self.loaded:
            return completed(self.error)  # Logs that are not loaded yet would lose their entries.
        done: Written = Pending()
        stale = dict(self.stale_entries)
        limited = [(log, tuple(log.limits), log.truncation_count) for log in self._limited()]
        remaining = len(CHECKPOINTS)
        failure: OSError | None = None

        def written(error: OSError | None) -> None:
            nonlocal remaining, failure
            remaining -= 1
            failure = failure or error
            if remaining == 0:
                if failure is None:
                    self._remove_stale_markers(stale)
                    for log, numbers, truncation_count in limited:
                        self._lift_limits(log, numbers, truncation_count)
                done.complete(failure)

        for name in CHECKPOINTS:
            self.checkpoint(name).then(written)
        return done

    def _limited(self) -> list[PartitionLog]:
        """Return the logs with limits for their checkpoint entries, or a new remote prefix."""
        return [log for log in self.logs.values() if log.truncation.awaits_checkpoints]

    def _lift_limits(
        self, log: PartitionLog, numbers: tuple[int, ...], truncation_count: int
    ) -> None:
        """Remove a log's limits, which the durable checkpoints make superfluous."""
        if self.error is not None:
            return
        try:
            log.truncation.checkpointed(numbers, truncation_count)
        except OSError as error:
            self._on_failure(self, error)
            return

        def lifted() -> None:
            if log.truncation.checkpoints_durable(truncation_count):
                self._sync_log(log, lambda: log.truncation.beginning_durable(truncation_count))

        self._sync_log(log, lifted)

    def _sync_log(self, log: PartitionLog, then: Callable[[], None]) -> None:
        """Sync a log's directory in a worker; then go on, unless it was deleted meanwhile."""
        directory = log.directory

        def synced(result: BaseException | None) -> None:
            if isinstance(result, FileNotFoundError):
                return
            try:
                if result is not None:
                    raise result
                then()
            except OSError as error:
                self._on_failure(self, error)

        self._workers.submit(lambda: self._disk.sync_dir(directory), synced)

    def unusable_error(self, key: TopicPartition) -> OSError | None:
        """Return why a partition's directory cannot be used; None = it is not unusable."""
        return self.unusable.get(names.partition_dir_name(*key))

    def take_log_offline(self, log: PartitionLog, reason: OSError) -> None:
        """Take a log offline until the next start, which recovers it from its recovery point."""
        key = (log.topic, log.partition)
        for name, value in _CHECKPOINTED.items():
            self._unusable_entries[name][key] = value(log)
        local_start = log.checkpointed_local_start
        if local_start is not None:
            self._unusable_entries[names.LOCAL_LOG_STARTS][key] = local_start
        self.unusable[log.name] = reason
        self.was_clean = False  # No shutdown flushes its unflushed records.
        del self.logs[key]

    def keep_entries(self, checkpoints: dict[str, dict[TopicPartition, int]]) -> None:
        """Keep the entries of unusable partition directories in each checkpoint."""
        for name, entries in checkpoints.items():
            self._unusable_entries[name] = {
                key: entries[key] for key in entries if self.unusable_error(key)
            }
        self._has_local_starts = bool(checkpoints[names.LOCAL_LOG_STARTS])

    # --- entries of former logs ----------------------------------------------------------

    def mark_entries_stale(self, key: TopicPartition) -> None:
        """Note that a partition's checkpoint entries do not hold for a later log of its name."""
        self._stale_count += 1
        self.stale_entries[key] = self._stale_count

    def write_stale_marker(self, key: TopicPartition, path: str) -> bool:
        """Mark the log about to be created in `path`, so that a start ignores its stale entries.

        The marker is the first file in the directory, and is flushed with the log. A power loss
        before that removes it only together with the log's id, if the file system keeps the order
        of new names; otherwise the log, of which nothing is durable yet, starts where the former
        log did.
        Return whether a marker was needed: the checkpoints must be rewritten then. Raises: OSError.
        """
        if key not in self.stale_entries:
            return False
        self._disk.mkdir(path)
        self._disk.open(f"{path}/{names.STALE_CHECKPOINTS}", create=True).close()
        return True

    def _remove_stale_markers(self, stale: dict[TopicPartition, int]) -> None:
        """Remove the markers: the checkpoints have no entries of these former logs any more."""
        for key, number in stale.items():
            if self.stale_entries.get(key) != number:
                continue  # Another log gave up the name since.
            del self.stale_entries[key]
            log = self.logs.get(key)
            if log is not None:
                try:
                    self._disk.remove(f"{log.directory}/{names.STALE_CHECKPOINTS}")
                except OSError as error:
                    self._on_failure(self, error)
                    return
                log.local.names_changed = True

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        """Return the entries of a checkpoint written now."""
        if name == names.LOCAL_LOG_STARTS:
            found = {
                key: start
                for key, log in self.logs.items()
                if (start := log.checkpointed_local_start) is not None
            }
        else:
            value = _CHECKPOINTED[name]
            found = {key: value(log) for key, log in self.logs.items()}
        if name == names.CLEANER_OFFSETS:
            # Only logs that were ever cleaned have an entry, as in Kafka.
            found = {key: offset for key, offset in found.items() if offset > 0}
        kept = {
            key: offset
            for key, offset in self._unusable_entries[name].items()
            if self.unusable_error(key)
        }
        return kept | found


_CHECKPOINTED: dict[str, Callable[[PartitionLog], int]] = {
    names.RECOVERY_POINTS: lambda log: log.flusher.checkpointed_recovery_point,
    names.LOG_STARTS: lambda log: log.log_start_offset,
    names.HIGH_WATERMARKS: lambda log: log.high_watermark,
    names.CLEANER_OFFSETS: lambda log: log.clean_offset,
}

CHECKPOINTS = tuple(_CHECKPOINTED)
"""Those that are written by themselves, as Kafka's."""

ALL_CHECKPOINTS = (*CHECKPOINTS, names.LOCAL_LOG_STARTS)
