"""Finding and loading the logs of one log directory at start.

1. A worker lists the partition directories and reads their topic ids.
2. On the loop the broker decides about each: keep, stray (unknown topic id), or delete (a committed
   record says so). The kept ones are then loaded in workers, a few at a time.

- Without a topic id a directory is a stray (KAFKA-16814, KAFKA-13127). If it certainly has no
  record it is removed: a power loss right after a log was created leaves such directories.
- With a damaged `partition.metadata` it may be any topic's, also that of its name. It is kept and
  the partition is offline here: an empty log would take the place of its records.
- What cannot be read, or is a link to a place without a log (a disk that is not mounted yet), is
  kept as it is, and no log of its name is created (`LogDir.unusable`).
- A damaged checkpoint may take the log directory offline: see `damaged_checkpoints`.

Source: LogManager.{loadLogs, loadLog}; KAFKA-14616 (classify while loading).
"""

import errno
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

from ottla.base.ids import METADATA_TOPIC, Uuid
from ottla.base.pending import Pending
from ottla.base.ports import Disk
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.dirs.checkpoint_limits import NO_LIMITS, limits_number, lowest
from ottla.log.dirs.checkpoints import MalformedFile, TopicPartition
from ottla.log.dirs.damaged_checkpoints import failure_of, read_checkpoints, report
from ottla.log.dirs.log_dir import LogDir
from ottla.log.dirs.partition_metadata import decode_partition_metadata, is_unwritten
from ottla.log.dirs.undeletable_dirs import UndeletableDir
from ottla.log.names import PartitionDirKind
from ottla.log.partition_log import LogPorts, PartitionLog
from ottla.log.recovery.log_loader import LoadedLog, load_log


class Verdict(Enum):
    """What to do with a partition directory found at start."""

    KEEP = "keep"
    STRAY = "stray"
    DELETE = "delete"


class DamagedMetadata(OSError):
    """A `partition.metadata` file (`filename`) is damaged; the log directory stays online."""


class PartitionDir(NamedTuple):
    """A partition directory on disk.

    Fields: `topic_id`: None = `partition.metadata` is missing, unwritten or damaged; `is_empty`: it
            has no topic id and certainly no record, so it may be removed; `error`: why it could
            not be read, None = it was read.
    """

    name: str
    topic: str
    partition: int
    kind: PartitionDirKind
    topic_id: Uuid | None
    is_empty: bool = False
    error: OSError | None = None

    @property
    def is_readable(self) -> bool:
        """Whether its files can be read, be they damaged or not."""
        return self.error is None or isinstance(self.error, DamagedMetadata)


_WITHOUT_RECORDS: Final = frozenset(
    {
        names.PARTITION_METADATA + names.TEMPORARY,
        names.LEADER_EPOCHS,
        names.LEADER_EPOCHS + names.TEMPORARY,
        names.LEADER_EPOCHS + 2 * names.TEMPORARY,
        names.STALE_CHECKPOINTS,
        names.INCOMPLETE,
    }
)
_FIRST_SEGMENT: Final = frozenset((0, suffix) for suffix in names.SEGMENT_SUFFIXES)
_SUFFIXES: Final = frozenset((*names.SEGMENT_SUFFIXES, names.SNAPSHOT))

Decide = Callable[[str, int, Uuid], Verdict]
ConfigOf = Callable[[str], LogConfig]


class _DirContents(NamedTuple):
    """A log directory's content. `stale_entries`: the logs with entries of a former log;
    `damaged`: the checkpoints that did not decode, and why."""

    partition_dirs: list[PartitionDir]
    stale_entries: frozenset[TopicPartition]
    checkpoints: dict[str, dict[TopicPartition, int]]
    damaged: dict[str, str]

    def entry(self, checkpoint: str, key: TopicPartition) -> int:
        return 0 if key in self.stale_entries else self.checkpoints[checkpoint].get(key, 0)


def find_partition_dirs(disk: Disk, path: str) -> list[PartitionDir]:
    """Return the partition directories of a log directory. Blocks. Raises: OSError."""
    found: list[PartitionDir] = []
    for name in disk.listdir(path):
        parsed = names.parse_partition_dir_name(name)
        if parsed is None or parsed.topic == METADATA_TOPIC:
            continue
        partition_dir = read_partition_dir(disk, path, name)
        if partition_dir is None:
            continue
        may_be_empty = partition_dir.topic_id is None and partition_dir.error is None
        if may_be_empty and partition_dir.kind in (PartitionDirKind.LIVE, PartitionDirKind.STRAY):
            partition_dir = partition_dir._replace(is_empty=is_empty(disk, f"{path}/{name}"))
        found.append(partition_dir)
    return found


def read_partition_dir(disk: Disk, path: str, name: str) -> PartitionDir | None:
    """Return the partition directory of this name; None = it is none. Blocks.

    An unreadable link, or missing permissions, are reported in `error`, and are no failure of the
    log directory. Raises: OSError.
    """
    parsed = names.parse_partition_dir_name(name)
    if parsed is None:
        return None
    below = f"{path}/{name}"
    is_link = disk.is_link(below)
    try:
        topic_id = read_topic_id(disk, below)
        if topic_id is None and is_link and not any(map(is_log_file, disk.listdir(below))):
            raise FileNotFoundError(errno.ENOENT, "The link leads to no log", below)
    except NotADirectoryError:
        return None
    except MalformedFile as error:
        damage = DamagedMetadata(errno.EBADMSG, str(error), f"{below}/{names.PARTITION_METADATA}")
        # With a suffix it is no partition's any more, so the damage does not matter.
        return PartitionDir(
            name, *parsed, None, error=damage if parsed.kind is PartitionDirKind.LIVE else None
        )
    except OSError as error:
        if is_link or isinstance(error, PermissionError):
            unreadable = OSError(error.errno, error.strerror, below)
            return PartitionDir(name, *parsed, None, error=unreadable)
        raise
    return PartitionDir(name, *parsed, topic_id)


def is_log_file(name: str) -> bool:
    """Return whether a file of this name in a partition directory belongs to the log."""
    for suffix in (names.DELETED, names.SWAP, names.CLEANED, names.TEMPORARY):
        name = name.removesuffix(suffix)
    if name in _WITHOUT_RECORDS or name == names.PARTITION_METADATA:
        return True
    if limits_number(name) is not None:
        return True
    segment = names.parse_segment_name(name)
    return segment is not None and segment[1] in _SUFFIXES


def is_empty(disk: Disk, path: str) -> bool:
    """Return whether a partition directory without a readable id certainly never had a record.

    A first segment above offset 0 shows that there were records. A complete metadata file has an
    id, though an unreadable one. Unknown files may be the operator's. At a link's target a disk
    may be mounted at any moment. Blocks. Raises: OSError.
    """
    if disk.is_link(path):
        return False
    try:
        return all(_is_without_records(disk, path, name) for name in disk.listdir(path))
    except (FileNotFoundError, PermissionError):
        return False


def _is_without_records(disk: Disk, path: str, name: str) -> bool:
    file = f"{path}/{name}"
    if disk.is_link(file) or disk.is_dir(file):
        return False
    if name == names.PARTITION_METADATA:
        return is_unwritten(disk.read_bytes(file))
    if name in _WITHOUT_RECORDS:
        return True
    return names.parse_segment_name(name) in _FIRST_SEGMENT and disk.size(file) == 0


def read_topic_id(disk: Disk, path: str) -> Uuid | None:
    """Return the topic id of a partition directory; None = the file is missing or unwritten.

    Raises: MalformedFile where it is damaged; OSError.
    """
    try:
        data = disk.read_bytes(f"{path}/{names.PARTITION_METADATA}")
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise MalformedFile(f"{names.PARTITION_METADATA} is a directory") from None
    try:
        return decode_partition_metadata(data)
    except MalformedFile:
        if is_unwritten(data):
            return None
        raise


class DirLoader:
    """Loads one log directory; `done` completes with its strays, None = it went offline.

    `mark` renames a partition directory (STRAY or DELETE); `failed` takes the log directory
    offline.
    """

    def __init__(
        self,
        ports: LogPorts,
        directory: LogDir,
        *,
        decide: Decide,
        config_of: ConfigOf,
        threads: int,
        mark: Callable[[LogDir, PartitionDir, PartitionDirKind], str],
        failed: Callable[[LogDir, OSError], None],
    ) -> None:
        self.done: Pending[list[str] | None] = Pending()
        self._ports = ports
        self.directory = directory
        self._decide = decide
        self._config_of = config_of
        self._threads = threads
        self._mark = mark
        self._failed = failed
        self._waiting: list[PartitionDir] = []
        self._running = 0
        self._contents = _DirContents([], frozenset(), {}, {})

    def start(self) -> None:
        """Begin; the rest runs in callbacks of the workers."""
        self.directory.loaded = False
        self._ports.workers.submit(self._scan, self._scanned)

    def _scan(self) -> _DirContents:
        directory, disk = self.directory, self._ports.disk
        checkpoints = read_checkpoints(disk, directory.path)
        if failure_of(directory.path, checkpoints.damaged) is None:
            directory.take_clean_shutdown_file()  # Else the start after a repair needs it.
        partition_dirs = find_partition_dirs(disk, directory.path)
        stale_entries = frozenset(
            (partition_dir.topic, partition_dir.partition)
            for partition_dir in partition_dirs
            if partition_dir.kind is PartitionDirKind.LIVE
            and partition_dir.is_readable
            and disk.exists(f"{directory.path}/{partition_dir.name}/{names.STALE_CHECKPOINTS}")
        )
        return _DirContents(partition_dirs, stale_entries, *checkpoints)

    def _scanned(self, result: _DirContents | BaseException) -> None:
        if isinstance(result, BaseException):
            self._fail(result)
            return
        self._contents = result
        path = self.directory.path
        self.directory.damaged_checkpoints = result.damaged
        report(path, result.damaged)
        failure = failure_of(path, result.damaged)
        if failure is not None:
            self._fail(failure)
            return
        try:
            self._waiting = self._without_duplicates(
                filter(self._is_loadable, reversed(result.partition_dirs))
            )
        except OSError as error:
            self._fail(error)
            return
        self._load_next()

    def _without_duplicates(self, partition_dirs: Iterable[PartitionDir]) -> list[PartitionDir]:
        """Return one directory of each partition; note further ones in `LogDir.duplicates`."""
        kept: dict[TopicPartition, PartitionDir] = {}
        for partition_dir in partition_dirs:
            key = (partition_dir.topic, partition_dir.partition)
            first = kept.setdefault(key, partition_dir)
            if first is not partition_dir:
                path = self.directory.path
                self.directory.duplicates.append(
                    (key, f"{path}/{first.name}", f"{path}/{partition_dir.name}")
                )
        return list(kept.values())

    def _is_loadable(self, partition_dir: PartitionDir) -> bool:
        try:
            return self._classify(partition_dir)
        except UndeletableDir:
            return False  # It could not be renamed, and is kept as it is.

    def _classify(self, partition_dir: PartitionDir) -> bool:
        if partition_dir.error is not None:
            self.directory.unusable[partition_dir.name] = partition_dir.error
            return False
        if partition_dir.is_empty:
            # Not DELETE: it is inspected again before it is removed.
            self._mark(self.directory, partition_dir, PartitionDirKind.STRAY)
            return False
        verdict = Verdict.STRAY
        if partition_dir.kind is PartitionDirKind.DELETE:
            verdict = Verdict.DELETE
        elif partition_dir.topic_id is not None:
            # Also of strays: the metadata may have a deletion of their topic by now.
            verdict = self._decide(
                partition_dir.topic, partition_dir.partition, partition_dir.topic_id
            )
        if verdict is Verdict.DELETE:
            self._mark(self.directory, partition_dir, PartitionDirKind.DELETE)
            return False
        if partition_dir.kind is not PartitionDirKind.LIVE:
            self.directory.strays.add(partition_dir.name)
            return False
        if verdict is Verdict.STRAY:
            self._mark(self.directory, partition_dir, PartitionDirKind.STRAY)
        return verdict is Verdict.KEEP

    def _load_next(self) -> None:
        while self._waiting and self._running < self._threads:
            partition_dir = self._waiting.pop()
            self._running += 1
            config = self._config_of(partition_dir.topic)
            self._ports.workers.submit(
                partial(self._load, partition_dir, config),
                partial(self._loaded, partition_dir, config),
            )
        if not self._waiting and self._running == 0 and not self.done.done:
            self.directory.loaded = True
            self._correct_checkpoints()
            self.done.complete(sorted(self.directory.strays))

    def _correct_checkpoints(self) -> None:
        """Rewrite them if they have entries of logs that are not here, or of former logs.

        Otherwise a later log of the same name would take these entries for its own.
        """
        contents = self._contents
        self.directory.keep_entries(contents.checkpoints)
        listed = {key for entries in contents.checkpoints.values() for key in entries}
        missing = {
            key
            for key in listed - self.directory.logs.keys()
            if not self.directory.unusable_error(key)
        }
        for key in sorted(contents.stale_entries | missing):
            self.directory.mark_entries_stale(key)
        cleaned = contents.checkpoints[names.CLEANER_OFFSETS]
        limited = any(log.limits for log in self.directory.logs.values())
        if (
            limited
            or self.directory.stale_entries
            or self.directory.offsets(names.CLEANER_OFFSETS) != cleaned
        ):
            self.directory.checkpoint_all()

    def _load(self, partition_dir: PartitionDir, config: LogConfig) -> LoadedLog:
        key = (partition_dir.topic, partition_dir.partition)
        return load_log(
            self._ports.disk,
            f"{self.directory.path}/{partition_dir.name}",
            partition_dir.name,
            config,
            clean=self.directory.was_clean,
            recovery_point=self._contents.entry(names.RECOVERY_POINTS, key),
            log_start_offset=self._contents.entry(names.LOG_STARTS, key),
            local_log_start_offset=self._contents.entry(names.LOCAL_LOG_STARTS, key),
            now_ms=self._ports.clock.now_ms(),
        )

    def _loaded(
        self, partition_dir: PartitionDir, config: LogConfig, result: LoadedLog | BaseException
    ) -> None:
        self._running -= 1
        if isinstance(result, BaseException):
            self._fail(result)
            return
        if self.done.done:
            return
        key = (partition_dir.topic, partition_dir.partition)
        assert partition_dir.topic_id is not None
        assert key not in self.directory.logs
        checkpointed = self._contents.entry(names.HIGH_WATERMARKS, key)
        # A truncation below it happens after an unclean election only; nothing was lost here.
        limit = lowest(result.limits.values()).high_watermark
        high_watermark = min(checkpointed, limit)
        may_be_below = result.log_end_offset < max(
            high_watermark, _start_of_truncated(result, limit)
        )
        if names.HIGH_WATERMARKS in self._contents.damaged:
            may_be_below = not self.directory.was_clean or result.cut_from is not None
        if may_be_below:
            self.directory.note_below_high_watermark(partition_dir.name)
        log = self.directory.logs[key] = PartitionLog(
            self._ports,
            f"{self.directory.path}/{partition_dir.name}",
            topic=partition_dir.topic,
            partition=partition_dir.partition,
            topic_id=partition_dir.topic_id,
            config=config,
            loaded=result,
            high_watermark=high_watermark,
            clean_offset=self._contents.entry(names.CLEANER_OFFSETS, key),
        )
        if not self.directory.was_clean:
            # The process that wrote it may have crashed before its first flush. Without the file
            # the directory would be a stray after a power loss, whatever is flushed from now on.
            path = f"{log.directory}/{names.PARTITION_METADATA}"
            log.local.note_unsynced(path)
        self._load_next()

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, OSError):
            raise error
        self._waiting.clear()
        # These replicas are offline, not absent: no second copy may be created elsewhere.
        for partition_dir in self._contents.partition_dirs:
            if partition_dir.kind is PartitionDirKind.LIVE and partition_dir.topic_id is not None:
                self.directory.add_offline_replica(
                    (partition_dir.topic, partition_dir.partition), partition_dir.topic_id
                )
        self._failed(self.directory, error)
        self.done.complete(None)


def _start_of_truncated(found: LoadedLog, limit: int) -> int:
    """Return where an empty log was to start whose process was killed in its truncation, or 0.

    Its replica had all records up to there, or was not in sync. `limit`: of the high watermark.
    """
    is_empty = not any(segment.size for segment in found.segments)
    return limit if is_empty and limit < NO_LIMITS.high_watermark else 0


def duplicates(directories: Iterable[LogDir]) -> list[tuple[TopicPartition, str, str]]:
    """Return the partitions that have two directories, with both paths."""
    seen: dict[TopicPartition, str] = {}
    found: list[tuple[TopicPartition, str, str]] = []
    for directory in directories:
        found += directory.duplicates
        for key in directory.logs:
            if key in seen:
                found.append((key, seen[key], directory.path))
            seen[key] = directory.path
    return found
