"""Finding and loading the logs of one directory at start.

First a worker lists the folders and reads their topic ids. On the loop the broker then decides
of each: keep, set aside as stray (nobody knows the id), or delete (a committed record says so).
A folder without a readable topic id is never deleted: it is a stray (KAFKA-16814, KAFKA-13127).
Then the kept ones are loaded in workers, a few at a time.

Source: LogManager.{loadLogs, loadLog}; KAFKA-14616 (classify while loading).
"""

from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import NamedTuple

from ottla.base.ids import METADATA_TOPIC, Uuid
from ottla.base.pending import Pending
from ottla.base.ports import Disk
from ottla.log import names
from ottla.log.checkpoints import MalformedFile, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.log_dir import LogDir
from ottla.log.log_ports import LogPorts
from ottla.log.names import FolderKind
from ottla.log.partition_log import PartitionLog
from ottla.log.partition_metadata import decode_partition_metadata
from ottla.log.recovery import LoadedLog, load_log


class Verdict(Enum):
    """What becomes of a folder found at start."""

    KEEP = "keep"
    STRAY = "stray"
    DELETE = "delete"


class FoundFolder(NamedTuple):
    """A partition's folder; `topic_id` None = its metadata file is missing or damaged."""

    name: str
    topic: str
    partition: int
    kind: FolderKind
    topic_id: Uuid | None


Decide = Callable[[str, int, Uuid], Verdict]
ConfigOf = Callable[[str], LogConfig]


class _Survey(NamedTuple):
    folders: list[FoundFolder]
    recovery_points: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    cleaned: dict[TopicPartition, int]


def find_folders(disk: Disk, path: str) -> list[FoundFolder]:
    """Return the partitions' folders of a log directory. Blocks. Raises: OSError."""
    found: list[FoundFolder] = []
    for name in disk.listdir(path):
        folder = names.parse_folder_name(name)
        if folder is None or folder.topic == METADATA_TOPIC or not disk.is_dir(f"{path}/{name}"):
            continue
        found.append(FoundFolder(name, *folder, read_topic_id(disk, f"{path}/{name}")))
    return found


def read_topic_id(disk: Disk, path: str) -> Uuid | None:
    """Return the topic id of a partition's folder; None = its file is missing or damaged.

    Raises: OSError.
    """
    try:
        return decode_partition_metadata(disk.read_bytes(f"{path}/{names.PARTITION_METADATA}"))
    except (FileNotFoundError, MalformedFile):
        return None


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
        mark: Callable[[LogDir, FoundFolder, FolderKind], str],
        failed: Callable[[LogDir, OSError], None],
    ) -> None:
        self.done: Pending[list[str] | None] = Pending()
        self._ports = ports
        self._directory = directory
        self._decide = decide
        self._config_of = config_of
        self._threads = threads
        self._mark = mark
        self._failed = failed
        self._strays: list[str] = []
        self._waiting: list[FoundFolder] = []
        self._running = 0
        self._survey = _Survey([], {}, {}, {}, {})

    def start(self) -> None:
        """Begin; everything else follows from the workers' answers."""
        self._directory.loaded = False
        self._ports.workers.submit(self._look, self._looked)

    def _look(self) -> _Survey:
        directory = self._directory
        directory.take_clean_marker()
        return _Survey(
            find_folders(self._ports.disk, directory.path),
            directory.read_checkpoint(names.RECOVERY_POINTS),
            directory.read_checkpoint(names.LOG_STARTS),
            directory.read_checkpoint(names.HIGH_WATERMARKS),
            directory.read_checkpoint(names.CLEANER_OFFSETS),
        )

    def _looked(self, result: _Survey | BaseException) -> None:
        if isinstance(result, BaseException):
            self._give_up(result)
            return
        self._survey = result
        try:
            self._waiting = [folder for folder in reversed(result.folders) if self._keep(folder)]
        except OSError as error:
            self._give_up(error)
            return
        self._go_on()

    def _keep(self, folder: FoundFolder) -> bool:
        if folder.kind is FolderKind.DELETE:
            self._mark(self._directory, folder, FolderKind.DELETE)
            return False
        if folder.kind is not FolderKind.LIVE:
            self._strays.append(folder.name)
            return False
        verdict = Verdict.STRAY
        if folder.topic_id is not None:
            verdict = self._decide(folder.topic, folder.partition, folder.topic_id)
        if verdict is Verdict.KEEP:
            return True
        kind = FolderKind.STRAY if verdict is Verdict.STRAY else FolderKind.DELETE
        name = self._mark(self._directory, folder, kind)
        if kind is FolderKind.STRAY:
            self._strays.append(name)
        return False

    def _go_on(self) -> None:
        while self._waiting and self._running < self._threads:
            folder = self._waiting.pop()
            self._running += 1
            config = self._config_of(folder.topic)
            self._ports.workers.submit(
                partial(self._load, folder, config), partial(self._loaded, folder, config)
            )
        if not self._waiting and self._running == 0 and not self.done.done:
            self._directory.loaded = True
            if self._directory.offsets(names.CLEANER_OFFSETS) != self._survey.cleaned:
                # A later log of the same name must not be taken for as clean as this one was.
                self._directory.checkpoint(names.CLEANER_OFFSETS)
            self.done.complete(self._strays)

    def _load(self, folder: FoundFolder, config: LogConfig) -> LoadedLog:
        key = (folder.topic, folder.partition)
        return load_log(
            self._ports.disk,
            f"{self._directory.path}/{folder.name}",
            folder.name,
            config,
            clean=self._directory.was_clean,
            recovery_point=self._survey.recovery_points.get(key, 0),
            log_start_offset=self._survey.log_starts.get(key, 0),
            now_ms=self._ports.clock.now_ms(),
        )

    def _loaded(
        self, folder: FoundFolder, config: LogConfig, result: LoadedLog | BaseException
    ) -> None:
        self._running -= 1
        if isinstance(result, BaseException):
            self._give_up(result)
            return
        if self.done.done:
            return
        key = (folder.topic, folder.partition)
        assert folder.topic_id is not None
        log = self._directory.logs[key] = PartitionLog(
            self._ports,
            f"{self._directory.path}/{folder.name}",
            topic=folder.topic,
            partition=folder.partition,
            topic_id=folder.topic_id,
            config=config,
            loaded=result,
            high_watermark=self._survey.high_watermarks.get(key, 0),
            clean_offset=self._survey.cleaned.get(key, 0),
        )
        if not self._directory.was_clean:
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
            if folder.kind is FolderKind.LIVE and folder.topic_id is not None:
                key = (folder.topic, folder.partition)
                self._directory.lost[key] = folder.topic_id
        self._failed(self._directory, error)
        self.done.complete(None)


def duplicates(directories: Iterable[LogDir]) -> list[tuple[TopicPartition, str, str]]:
    """Return the partitions that two directories hold, with both paths."""
    seen: dict[TopicPartition, str] = {}
    found: list[tuple[TopicPartition, str, str]] = []
    for directory in directories:
        for key in directory.logs:
            if key in seen:
                found.append((key, seen[key], directory.path))
            seen[key] = directory.path
    return found
