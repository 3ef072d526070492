"""Finding and loading the logs of one directory at start.

First a worker lists the folders and reads their topic ids. On the loop the broker then decides
of each: keep, set aside as stray (nobody knows the id), or delete (a committed record says so).
A folder whose topic id never reached the disk is a stray (KAFKA-16814, KAFKA-13127), unless it is
certain that there is no record in it: a power loss right after a log was made leaves such, and they
go. One whose `partition.metadata` is damaged may be any topic's, also the one that has its name: it
stays, and the partition is offline here, or an empty log would take the place of its records.
Of what may not be read, and of links to where nothing of a log is, as before a disk is mounted,
nothing can be said: they stay as they are, and no log of such a name is made (`LogDir.unusable`).
Then the kept ones are loaded in workers, a few at a time.

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
from ottla.log.checkpoint_limits import limits_number, lowest
from ottla.log.checkpoints import MalformedFile, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.log_dir import CHECKPOINTS, LogDir
from ottla.log.log_ports import LogPorts
from ottla.log.names import PartitionDirKind
from ottla.log.partition_log import PartitionLog
from ottla.log.partition_metadata import decode_partition_metadata, is_unwritten
from ottla.log.recovery import LoadedLog, load_log
from ottla.log.undeletable_dirs import UndeletableDir


class Verdict(Enum):
    """What becomes of a folder found at start."""

    KEEP = "keep"
    STRAY = "stray"
    DELETE = "delete"


class DamagedMetadata(OSError):
    """A partition's `partition.metadata`, which `filename` names, holds something else than an id.

    Its directory is well.
    """


class PartitionDir(NamedTuple):
    """A partition's folder; `topic_id` None = its metadata file is missing, unwritten or damaged.

    `is_empty`: a start has found that it has no id and, for certain, no record. It may go.
    `error`: why it could not be read, None = it was read.
    """

    name: str
    topic: str
    partition: int
    kind: PartitionDirKind
    topic_id: Uuid | None
    is_empty: bool = False
    error: OSError | None = None


_WITHOUT_RECORDS: Final = frozenset(
    {
        names.PARTITION_METADATA + names.TEMPORARY,
        names.LEADER_EPOCHS,
        names.LEADER_EPOCHS + names.TEMPORARY,
        names.STALE_CHECKPOINTS,
    }
)
_FIRST_SEGMENT: Final = frozenset((0, suffix) for suffix in names.SEGMENT_SUFFIXES)
_SUFFIXES: Final = frozenset((*names.SEGMENT_SUFFIXES, names.SNAPSHOT))

Decide = Callable[[str, int, Uuid], Verdict]
ConfigOf = Callable[[str], LogConfig]


class _Survey(NamedTuple):
    """What a directory holds. `untold`: the logs of which the checkpoints say nothing true."""

    folders: list[PartitionDir]
    untold: frozenset[TopicPartition]
    checkpoints: dict[str, dict[TopicPartition, int]]

    def entry(self, checkpoint: str, key: TopicPartition) -> int:
        return 0 if key in self.untold else self.checkpoints[checkpoint].get(key, 0)


def find_partition_dirs(disk: Disk, path: str) -> list[PartitionDir]:
    """Return the partitions' folders of a log directory. Blocks. Raises: OSError."""
    found: list[PartitionDir] = []
    for name in disk.listdir(path):
        parsed = names.parse_partition_dir_name(name)
        if parsed is None or parsed.topic == METADATA_TOPIC:
            continue
        folder = read_partition_dir(disk, path, name)
        if folder is None:
            continue
        may_be_empty = folder.topic_id is None and folder.error is None
        if may_be_empty and folder.kind in (PartitionDirKind.LIVE, PartitionDirKind.STRAY):
            folder = folder._replace(is_empty=is_empty(disk, f"{path}/{name}"))
        found.append(folder)
    return found


def read_partition_dir(disk: Disk, path: str, name: str) -> PartitionDir | None:
    """Return what a log directory has under a name; None = it is no partition's folder. Blocks.

    People may have put it there, so that it cannot be read is no failure of the directory. Raises:
    OSError.
    """
    folder = names.parse_partition_dir_name(name)
    if folder is None:
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
        # A folder that was set aside is nobody's, whoever's it was.
        return PartitionDir(
            name, *folder, None, error=damage if folder.kind is PartitionDirKind.LIVE else None
        )
    except OSError as error:
        if is_link or isinstance(error, PermissionError):
            unread = OSError(error.errno, error.strerror, below)
            return PartitionDir(name, *folder, None, error=unread)
        raise
    return PartitionDir(name, *folder, topic_id)


def is_log_file(name: str) -> bool:
    """Tell whether a file of this name in a partition's folder is the log's, not people's."""
    for suffix in (names.DELETED, names.SWAP, names.CLEANED, names.TEMPORARY):
        name = name.removesuffix(suffix)
    if name in _WITHOUT_RECORDS or name == names.PARTITION_METADATA:
        return True
    if limits_number(name) is not None:
        return True
    segment = names.parse_segment_name(name)
    return segment is not None and segment[1] in _SUFFIXES


def is_empty(disk: Disk, path: str) -> bool:
    """Tell whether a folder without a readable id holds for certain only that a log was made.

    A later first segment says that there were records once, a whole metadata file has an id that
    others may be able to read, and what is not known may be people's. A link says nothing: where
    it leads another disk may be mounted any moment. Blocks. Raises: OSError.
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
    """Return the topic id of a partition's folder; None = its file is missing or unwritten.

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
    """Loads one directory; `done` completes with the folders set aside, None = it went offline.

    `mark` renames a folder (STRAY or DELETE); `failed` takes the directory offline.
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
        self._survey = _Survey([], frozenset(), {})

    def start(self) -> None:
        """Begin; everything else follows from the workers' answers."""
        self.directory.loaded = False
        self._ports.workers.submit(self._look, self._looked)

    def _look(self) -> _Survey:
        directory, disk = self.directory, self._ports.disk
        directory.take_clean_shutdown_file()
        folders = find_partition_dirs(disk, directory.path)
        untold = frozenset(
            (folder.topic, folder.partition)
            for folder in folders
            if folder.kind is PartitionDirKind.LIVE
            and disk.exists(f"{directory.path}/{folder.name}/{names.STALE_CHECKPOINTS}")
        )
        checkpoints = {name: directory.read_checkpoint(name) for name in CHECKPOINTS}
        return _Survey(folders, untold, checkpoints)

    def _looked(self, result: _Survey | BaseException) -> None:
        if isinstance(result, BaseException):
            self._give_up(result)
            return
        self._survey = result
        try:
            self._waiting = self._each_once(filter(self._keep, reversed(result.folders)))
        except OSError as error:
            self._give_up(error)
            return
        self._go_on()

    def _each_once(self, folders: Iterable[PartitionDir]) -> list[PartitionDir]:
        """Pass on one folder of each partition, and note those that another one is there of."""
        kept: dict[TopicPartition, PartitionDir] = {}
        for folder in folders:
            key = (folder.topic, folder.partition)
            first = kept.setdefault(key, folder)
            if first is not folder:
                path = self.directory.path
                self.directory.duplicates.append(
                    (key, f"{path}/{first.name}", f"{path}/{folder.name}")
                )
        return list(kept.values())

    def _keep(self, folder: PartitionDir) -> bool:
        try:
            return self._judge(folder)
        except UndeletableDir:
            return False  # It is to go, or to be set aside, and lies where it lay.

    def _judge(self, folder: PartitionDir) -> bool:
        if folder.error is not None:
            self.directory.unusable[folder.name] = folder.error
            return False
        if folder.is_empty:
            # Not as one that is to be deleted: were something in it by then, it would be lost.
            self._mark(self.directory, folder, PartitionDirKind.STRAY)
            return False
        verdict = Verdict.STRAY
        if folder.kind is PartitionDirKind.DELETE:
            verdict = Verdict.DELETE
        elif folder.topic_id is not None:
            # Of strays, too: what nobody knew of then, the metadata may say is to go by now.
            verdict = self._decide(folder.topic, folder.partition, folder.topic_id)
        if verdict is Verdict.DELETE:
            self._mark(self.directory, folder, PartitionDirKind.DELETE)
            return False
        if folder.kind is not PartitionDirKind.LIVE:
            self.directory.strays.add(folder.name)
            return False
        if verdict is Verdict.STRAY:
            self._mark(self.directory, folder, PartitionDirKind.STRAY)
        return verdict is Verdict.KEEP

    def _go_on(self) -> None:
        while self._waiting and self._running < self._threads:
            folder = self._waiting.pop()
            self._running += 1
            config = self._config_of(folder.topic)
            self._ports.workers.submit(
                partial(self._load, folder, config), partial(self._loaded, folder, config)
            )
        if not self._waiting and self._running == 0 and not self.done.done:
            self.directory.loaded = True
            self._correct_checkpoints()
            self.done.complete(sorted(self.directory.strays))

    def _correct_checkpoints(self) -> None:
        """Write them anew where they speak of logs that are not here, or of former ones.

        A later log of the same name must not be taken for what this one was.
        """
        survey = self._survey
        self.directory.keep_entries(survey.checkpoints)
        told = {key for entries in survey.checkpoints.values() for key in entries}
        gone = {
            key
            for key in told - self.directory.logs.keys()
            if not self.directory.unusable_error(key)
        }
        for key in sorted(survey.untold | gone):
            self.directory.mark_entries_stale(key)
        cleaned = survey.checkpoints[names.CLEANER_OFFSETS]
        limited = any(log.limits for log in self.directory.logs.values())
        if (
            limited
            or self.directory.stale_entries
            or self.directory.offsets(names.CLEANER_OFFSETS) != cleaned
        ):
            self.directory.checkpoint_all()

    def _load(self, folder: PartitionDir, config: LogConfig) -> LoadedLog:
        key = (folder.topic, folder.partition)
        return load_log(
            self._ports.disk,
            f"{self.directory.path}/{folder.name}",
            folder.name,
            config,
            clean=self.directory.was_clean,
            recovery_point=self._survey.entry(names.RECOVERY_POINTS, key),
            log_start_offset=self._survey.entry(names.LOG_STARTS, key),
            now_ms=self._ports.clock.now_ms(),
        )

    def _loaded(
        self, folder: PartitionDir, config: LogConfig, result: LoadedLog | BaseException
    ) -> None:
        self._running -= 1
        if isinstance(result, BaseException):
            self._give_up(result)
            return
        if self.done.done:
            return
        key = (folder.topic, folder.partition)
        assert folder.topic_id is not None
        assert key not in self.directory.logs
        checkpointed = self._survey.entry(names.HIGH_WATERMARKS, key)
        # A truncation below it, which only an unclean election brings about, lost nothing here.
        high_watermark = min(checkpointed, lowest(result.limits.values()).high_watermark)
        if result.log_end_offset < high_watermark:
            self.directory.note_below_high_watermark(folder.name)
        log = self.directory.logs[key] = PartitionLog(
            self._ports,
            f"{self.directory.path}/{folder.name}",
            topic=folder.topic,
            partition=folder.partition,
            topic_id=folder.topic_id,
            config=config,
            loaded=result,
            high_watermark=high_watermark,
            clean_offset=self._survey.entry(names.CLEANER_OFFSETS, key),
        )
        if not self.directory.was_clean:
            # The life that wrote it may have died before its first flush; without it, all that
            # this one flushes would be a stray's after a power loss.
            path = f"{log.directory}/{names.PARTITION_METADATA}"
            log.unsynced_handles.append(self._ports.files.handle(path))
        self._go_on()

    def _give_up(self, error: BaseException) -> None:
        if not isinstance(error, OSError):
            raise error
        self._waiting.clear()
        # What could not be loaded is lost, not absent: no second copy may begin elsewhere.
        for folder in self._survey.folders:
            if folder.kind is PartitionDirKind.LIVE and folder.topic_id is not None:
                self.directory.add_offline_replica(
                    (folder.topic, folder.partition), folder.topic_id
                )
        self._failed(self.directory, error)
        self.done.complete(None)


def duplicates(directories: Iterable[LogDir]) -> list[tuple[TopicPartition, str, str]]:
    """Return the partitions that are there twice, with both paths."""
    seen: dict[TopicPartition, str] = {}
    found: list[tuple[TopicPartition, str, str]] = []
    for directory in directories:
        found += directory.duplicates
        for key in directory.logs:
            if key in seen:
                found.append((key, seen[key], directory.path))
            seen[key] = directory.path
    return found
