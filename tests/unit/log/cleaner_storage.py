"""A broker's storage with a compacted log and its cleaner, on a disk in memory that can die.

The cleaner's heavy work runs inline, or waits until a test lets it go on result by result.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ottla.log.cleaner.cleaner_job import CleanedSegment, CleaningEnd, CleaningJob
from ottla.log.cleaner.cleaner_rewrite import clean
from ottla.log.cleaner.log_cleaner import CleanerSettings, LogCleaner, Result
from ottla.log.config import LogConfig
from ottla.log.dirs.dir_loading import Verdict
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import iter_headers
from ottla.records.record import Record, iter_records
from tests.unit.log.support import TOPIC_ID, Environment, content

DELETE_RETENTION_MS = 5_000
COMPACT = LogConfig(
    segment_bytes=600,
    index_interval_bytes=100,
    segment_index_bytes=4096,
    retention_ms=-1,
    timestamp_after_max_ms=2**62,
    deletes=False,
    compacts=True,
    min_cleanable_ratio=0.0,
    delete_retention_ms=DELETE_RETENTION_MS,
    file_delete_delay_ms=100,
)
SETTINGS = CleanerSettings(threads=1, backoff_ms=1_000, map_bytes=1 << 16, write_bytes=300)


class Died(BaseException):
    """The process is no more; nothing may catch it."""


def dying_at(operation: int | None) -> Callable[[str, str], None]:
    """Return what lets a disk's operation of that number from now on be the one that never
    happens; None = all do."""
    left = operation

    def count(name: str, path: str) -> None:
        nonlocal left
        if left is None:
            return
        if left == 0:
            raise Died
        left -= 1

    return count


def dies(work: Callable[[], object]) -> bool:
    """Tell whether the process dies in some work."""
    try:
        work()
    except Died:
        return True
    return False


class Dice:
    """Different bytes each time."""

    def __init__(self) -> None:
        self.number = 0

    def random_bytes(self, count: int) -> bytes:
        self.number += 1
        return self.number.to_bytes(count, "big")

    def below(self, bound: int) -> int:
        return 0


class InlineRunner:
    """Runs a cleaning at once; with `hold`, one result at each `step`.

    `results`: what the cleanings of a directory end with, at once.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        self.hold = False
        self.jobs: list[CleaningJob] = []
        self.results: dict[str, Result] = {}
        self.cancelled = 0
        self._waiting: list[tuple[Iterator[CleanedSegment | CleaningEnd], Callable[..., None]]] = []

    def run(self, job: CleaningJob, on_result: Callable[[Result], None]) -> Callable[[], None]:
        self.jobs.append(job)
        if job.directory in self.results:
            on_result(self.results[job.directory])
            return self._cancel
        self._waiting.append((clean(self._env.disk, job), on_result))
        if not self.hold:
            while self._waiting:
                self.step()
        return self._cancel

    def _cancel(self) -> None:
        self.cancelled += 1
        self._waiting.clear()

    def step(self) -> None:
        results, on_result = self._waiting[0]
        result: Result
        try:
            result = next(results)
        except Exception as error:
            result = error
        if not isinstance(result, CleanedSegment):
            self._waiting.pop(0)
        on_result(result)

    @property
    def busy(self) -> bool:
        return bool(self._waiting)


class Storage:
    """Restarted as often as a test likes; `log` is the one compacted log."""

    def __init__(
        self,
        config: LogConfig = COMPACT,
        settings: CleanerSettings = SETTINGS,
        *,
        env: Environment | None = None,
    ) -> None:
        self.env = env or Environment()
        self.disk = self.env.disk
        self.config = config
        self.settings = settings
        self.disk.mkdir("/d1")
        self.disk.sync_dir("/")
        self.dice = Dice()
        self.epoch = 0
        self.start()

    def start(self) -> None:
        self.env.timers = type(self.env.timers)()
        self.dirs = LogDirs(self.disk, self.env.workers, self.env.clock, self.env.timers, ["/d1"])
        self.dirs.acquire(node_id=1, cluster_id=None)
        loaded = self.dirs.load(lambda *_: Verdict.KEEP, lambda _topic: self.config)
        assert loaded.done
        self.log: PartitionLog = self.dirs.get_or_create("t", TOPIC_ID, 0, self.config)
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.log.assign_epoch(self.epoch)
        self.runner = InlineRunner(self.env)
        self.cleaner = LogCleaner(self.dirs, self.runner, self.dice, lambda: self.settings)
        self.cleaner.start()

    def stop(self) -> None:
        self.cleaner.stop()
        assert self.dirs.shutdown(5).done

    def append(self, data: bytes | bytearray, **options: Any) -> int:
        info = self.log.append_as_leader(
            data, leader_epoch=self.epoch, now_ms=self.env.clock.ms, **options
        )
        self.log.advance_high_watermark(self.log.log_end_offset)
        return info.first_offset

    def roll(self) -> None:
        self.log.roll(self.env.clock.ms)

    def clean(self) -> None:
        """Seal what there is and clean it."""
        self.roll()
        self.cleaner.start_cleanings()

    def reconfigure(self, **changes: Any) -> None:
        self.config = replace(self.config, **changes)
        self.log.reconfigure(self.config)

    def records(self) -> list[Record]:
        """Return what a reader from the start gets, markers left out."""
        start = self.log.log_start_offset
        return [each for each in iter_records(content(self.log)) if each.offset >= start]

    def rows(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(each.offset, each.key, each.value) for each in self.records()]

    def batch_count(self) -> int:
        return sum(1 for _ in iter_headers(content(self.log)))

    def names(self) -> list[str]:
        return self.disk.listdir(self.log.directory)

    def die_at(self, operation: int | None) -> None:
        """Let the disk's operation of that number from now on be the one that never happens."""
        self.disk.on_operation = dying_at(operation)
