"""Putting a rewritten segment in the place of those that it was made of.

| step | names                                      | who dies here finds at the next start      |
|------|--------------------------------------------|--------------------------------------------|
| 1    | `*.tmp` -> `*.cleaned`, file by file       | the old segments; the rest is removed      |
| 2    | `*.cleaned` -> `*.swap`, file by file      | the same, until the last one is renamed    |
| 3    | the old segments' files -> `*.deleted`     | the new one: it takes the old ones' place  |
| 4    | the log's `*.swap` -> its own name         | the new one, of which nothing is missing   |
| 5    | the other `*.swap` -> their own names      | the same                                   |

The new files are durable before step 1, and each step's names before the next one: of the names
that are not, a loss of power leaves any. Without that an old segment could come back within the
range of the new one, which recovery takes for damage. Step 5 becomes durable with the flush that
follows. `leftovers` is the other half of this.

The steps run on the loop, the syncs between them in workers. A log that is truncated meanwhile
calls `settle` first: nothing of a swap may be left that a start would take for newer than what is
appended then.

Source: LocalLog.replaceSegments, which syncs the folder twice; Cleaner.cleanSegments.
"""

from collections.abc import Callable, Sequence

from ottla.log import names
from ottla.log.cleaner_job import CleanedSegment, CleaningJob
from ottla.log.maintenance import delete_segments
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.log.time_index import TimestampOffset

Ended = Callable[[bool | OSError], None]
"""Called once with True: the new segment is in its place; False: the log was changed meanwhile;
or the disk's error, after which the log must go offline: a start puts its folder in order."""


def is_as_planned(
    log: PartitionLog, job: CleaningJob, truncation_count: int, olds: Sequence[Segment]
) -> bool:
    """Tell whether the log still has the segments as the job read them, and is to be cleaned."""
    if log.failed or not log.config.compacts:
        return False
    if log.directory != job.directory or log.truncation_count != truncation_count:
        return False
    index = log.segments.floor(olds[0].base_offset)
    if index + len(olds) >= len(log.segments):
        return False
    return all(log.segments[index + number] is old for number, old in enumerate(olds))


class Swap:
    """One swap. Fields: `is_replaced`: the old segments are gone, and the log has the new one."""

    def __init__(
        self,
        log: PartitionLog,
        job: CleaningJob,
        cleaned: CleanedSegment,
        olds: Sequence[Segment],
        *,
        truncation_count: int,
        ended: Ended,
    ) -> None:
        self.is_replaced = False
        self.group = cleaned.group
        self._log = log
        self._job = job
        self._cleaned = cleaned
        self._olds = olds
        self._truncation_count = truncation_count
        self._on_end = ended
        self._ending = ""
        """What the new files are called beyond their own names."""
        self._over = False
        base = cleaned.base_offset
        self._segment = Segment(
            log.ports.files,
            log.directory,
            base,
            size=cleaned.size,
            created_ms=log.ports.clock.now_ms(),
            max_timestamp=TimestampOffset(cleaned.max_timestamp, cleaned.max_timestamp_offset),
        )
        self._suffixes = [each for each in names.SEGMENT_SUFFIXES if each in cleaned.suffixes]

    def begin(self) -> None:
        """Do the first step; the others follow."""
        assert self._log.swap is None
        self._log.swap = self
        self._step(self._name_cleaned, self._named_cleaned)

    def settle(self) -> None:
        """Give up, or end at once where the old segments are gone. Syncs. Raises: OSError."""
        if self._over:
            return
        if not self.is_replaced:
            self.cancel()
            return
        log = self._log
        if self._ending:  # Else the log has its own name, durably or not, and nothing overlaps it.
            log.ports.disk.sync_dir(log.directory)
            self._name_log()
            log.ports.disk.sync_dir(log.directory)
        self._name_indexes()
        self._end(True)

    def cancel(self) -> None:
        """Give up, as long as the old segments are there. Raises: OSError."""
        if self._over or self.is_replaced:
            return
        if self._is_here() and self._ending:
            for suffix in self._suffixes:
                self._log.ports.disk.remove(self._path(suffix) + self._ending)
            self._log.names_changed = True
        self._end(False)

    # --- the steps -----------------------------------------------------------------------

    def _name_cleaned(self) -> None:
        disk, base = self._log.ports.disk, self._cleaned.base_offset
        self._ending = names.CLEANED
        for suffix in self._suffixes:
            disk.rename(self._job.temporary(base, suffix), self._path(suffix) + names.CLEANED)

    def _named_cleaned(self) -> None:
        if self._is_wanted():
            self._step(self._name_swap, self._named_swap)

    def _name_swap(self) -> None:
        disk = self._log.ports.disk
        for suffix in self._suffixes:
            path = self._path(suffix)
            disk.rename(path + names.CLEANED, path + names.SWAP)
        self._ending = names.SWAP

    def _named_swap(self) -> None:
        if self._is_wanted():
            self._step(self._replace, self._replaced)

    def _replace(self) -> None:
        log, segment, olds = self._log, self._segment, self._olds
        self.is_replaced = True
        # Whoever reads the old segments goes on reading them.
        delete_segments(log, olds)
        segment.moved(log.directory, names.SWAP)
        log.segments.replace(log.segments.floor(segment.base_offset), len(olds), segment)
        log.size_bytes += segment.size - sum(old.size for old in olds)
        log.names_changed = True
        _remove_snapshots(log, {old.base_offset for old in olds[1:]})

    def _replaced(self) -> None:
        if not self._is_here():
            self._end(False)
        elif self._is_kept():
            self._step(self._name_log, self._named_log)
        else:
            # It expired: a start removes what lies below the log start.
            for suffix in self._suffixes:
                self._log.ports.disk.remove(self._path(suffix) + names.SWAP)
            self._end(False)

    def _name_log(self) -> None:
        self._rename(names.LOG)
        self._ending = ""

    def _named_log(self) -> None:
        if self._is_here():
            self._name_indexes()
        self._end(True)

    def _name_indexes(self) -> None:
        for suffix in self._suffixes:
            if suffix != names.LOG:
                self._rename(suffix)
        self._log.names_changed = True

    def _rename(self, suffix: str) -> None:
        path = self._path(suffix)
        self._log.ports.disk.rename(path + names.SWAP, path)
        self._segment.file_moved(suffix, path)

    # --- within --------------------------------------------------------------------------

    def _path(self, suffix: str) -> str:
        return f"{self._job.directory}/{names.segment_name(self._cleaned.base_offset, suffix)}"

    def _is_here(self) -> bool:
        return not self._log.failed and self._log.directory == self._job.directory

    def _is_kept(self) -> bool:
        return any(each is self._segment for each in self._log.segments)

    def _is_wanted(self) -> bool:
        """Tell whether to go on; else give up."""
        if is_as_planned(self._log, self._job, self._truncation_count, self._olds):
            return True
        self.cancel()
        return False

    def _step(self, rename: Callable[[], None], then: Callable[[], None]) -> None:
        """Give names, and go on once they are durable."""
        log, directory = self._log, self._job.directory

        def synced(result: BaseException | None) -> None:
            if self._over:
                return
            if isinstance(result, FileNotFoundError):
                self._end(False)  # The log was deleted.
                return
            if isinstance(result, OSError):
                self._end(result)
            elif result is not None:
                raise result
            else:
                self._try(then)

        if self._try(rename):
            log.ports.workers.submit(lambda: log.ports.disk.sync_dir(directory), synced)

    def _try(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except OSError as error:
            self._end(error)
            return False
        return True

    def _end(self, outcome: bool | OSError) -> None:
        if not self._over:
            self._over = True
            self._log.swap = None
            self._on_end(outcome)


def _remove_snapshots(log: PartitionLog, offsets: set[int]) -> None:
    """Remove the producers' snapshots of starts of segments that are no more."""
    for offset in offsets.intersection(log.snapshots):
        log.ports.disk.remove(f"{log.directory}/{names.segment_name(offset, names.SNAPSHOT)}")
        log.snapshots.remove(offset)
