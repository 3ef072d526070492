"""Replacing segments of a log by the cleaned segment made from them.

| step | renames                                    | after a crash the next start uses          |
|------|--------------------------------------------|--------------------------------------------|
| 1    | `*.tmp` -> `*.cleaned`, file by file       | the old segments; the rest is removed      |
| 2    | `*.cleaned` -> `*.swap`, file by file      | the same, until the last one is renamed    |
| 3    | the old segments' files -> `*.deleted`     | the new segment: it is swapped in          |
| 4    | the log file's `*.swap` -> its own name    | the new segment, with all its records      |
| 5    | the other `*.swap` -> their own names      | the same                                   |

The new files are durable before step 1, and each step's names before the next one; a power loss may
undo any rename that is not durable. Without these syncs an old segment could come back within the
range of the new one, which recovery treats as damage. Step 5 becomes durable with the next flush.
`startup_cleanup` handles unfinished swaps.

The steps run on the loop, the syncs between them in workers. A truncation calls `settle` first: a
start must not find a swap that replaces records appended later.

Source: LocalLog.replaceSegments, which syncs the directory twice; Cleaner.cleanSegments.
"""

from collections.abc import Callable, Sequence

from ottla.log import names
from ottla.log.cleaner.cleaner_job import CleanedSegment, CleaningJob
from ottla.log.indexes.time_index import TimestampOffset
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment

Ended = Callable[[bool | OSError], None]
"""Called once with True: the new segment is swapped in; False: the log was changed meanwhile; or
the disk's error: the log must go offline then, and the next start cleans its directory up."""


def is_as_planned(
    log: PartitionLog, job: CleaningJob, truncation_count: int, old_segments: Sequence[Segment]
) -> bool:
    """Return whether the log still has the job's segments, and is still compacted."""
    if log.failed or not log.config.compacts:
        return False
    if log.directory != job.directory or log.truncation_count != truncation_count:
        return False
    index = log.segments.floor(old_segments[0].base_offset)
    if index + len(old_segments) >= len(log.segments):
        return False
    return all(log.segments[index + number] is old for number, old in enumerate(old_segments))


class Swap:
    """One swap. `is_replaced`: the old segments are deleted, and the log has the new one."""

    def __init__(
        self,
        log: PartitionLog,
        job: CleaningJob,
        cleaned: CleanedSegment,
        old_segments: Sequence[Segment],
        *,
        truncation_count: int,
        ended: Ended,
    ) -> None:
        assert log.local.swap is None
        self.is_replaced = False
        self.group = cleaned.group
        self._log = log
        self._job = job
        self._cleaned = cleaned
        self._olds = old_segments
        self._truncation_count = truncation_count
        self._on_end = ended
        self._ending = ""
        """The current suffix of the new files' names."""
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
        """Start the first step."""
        self._log.local.swap = self
        self._step(self._name_cleaned, self._named_cleaned)

    def settle(self) -> None:
        """Cancel, or finish now if the old segments are deleted. Syncs. Raises: OSError."""
        if self._over:
            return
        if not self.is_replaced:
            self.cancel()
            return
        if not self._is_kept():
            self._end(False)
            return
        log = self._log
        if self._ending:  # Else the log file has its own name, durably or not.
            log.ports.disk.sync_dir(log.directory)
            self._name_log()
            log.ports.disk.sync_dir(log.directory)
        self._name_indexes()
        self._end(True)

    def cancel(self) -> None:
        """Remove the new files, unless the old segments are deleted. Raises: OSError."""
        if self._over or self.is_replaced:
            return
        if self._is_here() and self._ending:
            for suffix in self._suffixes:
                self._log.ports.disk.remove(self._path(suffix) + self._ending)
            self._log.local.names_changed = True
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
        log, segment, old_segments = self._log, self._segment, self._olds
        self.is_replaced = True
        # Readers of the old segments can go on.
        log.delete_segments(old_segments)
        segment.moved(log.directory, names.SWAP)
        log.local.replace_segments(old_segments, segment)
        # Those at the base offsets of segments that are gone.
        log.producer_manager.remove_snapshots({old.base_offset for old in old_segments[1:]})

    def _replaced(self) -> None:
        if self._is_kept():
            self._step(self._name_log, self._named_log)
        else:
            self._end(False)

    def _name_log(self) -> None:
        self._rename(names.LOG)
        self._ending = ""

    def _named_log(self) -> None:
        if self._is_kept():
            self._name_indexes()
        self._end(True)

    def _name_indexes(self) -> None:
        for suffix in self._suffixes:
            if suffix != names.LOG:
                self._rename(suffix)
        self._log.local.names_changed = True

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
        """Return whether the log is here and has the new segment, which may expire meanwhile: its
        files are deleted then, whatever they are called."""
        return self._is_here() and any(each is self._segment for each in self._log.segments)

    def _is_wanted(self) -> bool:
        """Return whether to go on; otherwise cancel."""
        if is_as_planned(self._log, self._job, self._truncation_count, self._olds):
            return True
        self.cancel()
        return False

    def _step(self, rename: Callable[[], None], then: Callable[[], None]) -> None:
        """Run the renames of a step, and the next step once they are durable."""
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
            self._log.local.swap = None
            self._on_end(outcome)
