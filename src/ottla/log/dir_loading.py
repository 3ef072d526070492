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
from ottla.log.log_dir import CHECKPOINTS, LogDir
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
    """What a directory holds. `untold`: the logs of which the checkpoints say nothing true."""

    folders: list[FoundFolder]
    untold: frozenset[TopicPartition]
    checkpoints: dict[str, dict[TopicPartition, int]]

    def entry(self, checkpoint: str, key: TopicPartition) -> int:
        return 0 if key in self.untold else self.checkpoints[checkpoint].get(key, 0)


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
        self.directory = directory
        self._decide = decide
        self._config_of = config_of
        self._threads = threads
        self._mark = mark
        self._failed = failed
        self._waiting: list[FoundFolder] = []
        self._running = 0
        self._survey = _Survey([], frozenset(), {})

    def start(self) -> None:
        """Begin; everything else follows from the workers' answers."""
        self.directory.loaded = False
        self._ports.workers.submit(self._look, self._looked)

    def _look(self) -> _Survey:
        directory, disk = self.directory, self._ports.disk
        directory.take_clean_marker()
        folders = find_folders(disk, directory.path)
        untold = frozenset(
            (folder.topic, folder.partition)
            for folder in folders
            if folder.kind is FolderKind.LIVE
            and disk.exists(f"{directory.path}/{folder.name}/{names.UNTOLD}")
        )
        checkpoints = {name: directory.read_checkpoint(name) for name in CHECKPOINTS}
        return _Survey(folders, untold, checkpoints)

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
        verdict = Verdict.STRAY
        if folder.kind is FolderKind.DELETE:
            verdict = Verdict.DELETE
        elif folder.topic_id is not None:
            # Of strays, too: what nobody knew of then, the metadata may say is to go by now.
            verdict = self._decide(folder.topic, folder.partition, folder.topic_id)
        if verdict is Verdict.DELETE:
            self._mark(self.directory, folder, FolderKind.DELETE)
            return False
        if folder.kind is not FolderKind.LIVE:
            self.directory.strays.add(folder.name)
            return False
        if verdict is Verdict.STRAY:
            self._mark(self.directory, folder, FolderKind.STRAY)
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
        told = {key for entries in survey.checkpoints.values() for key in entries}
        for key in sorted(survey.untold | (told - self.directory.logs.keys())):
            self.directory.forget(key)
        cleaned = survey.checkpoints[names.CLEANER_OFFSETS]
        if self.directory.stale or self.directory.offsets(names.CLEANER_OFFSETS) != cleaned:
            self.directory.checkpoint_all()

    def _load(self, folder: FoundFolder, config: LogConfig) -> LoadedLog:
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
        log = self.directory.logs[key] = PartitionLog(
            self._ports,
            f"{self.directory.path}/{folder.name}",
            topic=folder.topic,
            partition=folder.partition,
            topic_id=folder.topic_id,
            config=config,
            loaded=result,
            high_watermark=self._survey.entry(names.HIGH_WATERMARKS, key),
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
            if folder.kind is FolderKind.LIVE and folder.topic_id is not None:
                key = (folder.topic, folder.partition)
                self.directory.lost[key] = folder.topic_id
        self._failed(self.directory, error)
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
