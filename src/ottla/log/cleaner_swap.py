"""Putting a rewritten segment in the place of those that it was made of, on the loop.

| step | names                                      | who dies here finds at the next start      |
|------|--------------------------------------------|--------------------------------------------|
| 1    | `*.tmp` -> `*.cleaned`, file by file       | the old segments; the rest is removed      |
| 2    | `*.cleaned` -> `*.swap`, file by file      | the same, until the last one is renamed    |
| 3    | the old segments' files -> `*.deleted`     | the new one: it takes the old ones' place  |
| 4    | `*.swap` -> their own names, the log first | the new one, of which nothing is missing   |

The new files are durable before step 1. The names become durable with the flush that follows;
until then a machine that loses power may go back to any moment of this order, all of which are
sound: journaling file systems keep the order of renames within one folder. `leftovers` is the
other half of this.

Source: LocalLog.replaceSegments, Cleaner.cleanSegments.
"""

from collections.abc import Sequence

from ottla.log import names
from ottla.log.cleaner_job import CleanedSegment, CleaningJob
from ottla.log.maintenance import delete_segments
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.log.time_index import TimestampOffset


def is_as_planned(
    log: PartitionLog, job: CleaningJob, shortened: int, olds: Sequence[Segment]
) -> bool:
    """Tell whether the log still has the segments as the job read them, and is to be cleaned."""
    if log.failed or not log.config.compacts:
        return False
    if log.directory != job.directory or log.shortened != shortened:
        return False
    index = log.segments.floor(olds[0].base_offset)
    if index + len(olds) >= len(log.segments):
        return False
    return all(log.segments[index + number] is old for number, old in enumerate(olds))


def take_over(
    log: PartitionLog, job: CleaningJob, cleaned: CleanedSegment, olds: Sequence[Segment]
) -> None:
    """Put the new segment in the place of the old ones, which `is_as_planned` has looked at.

    Raises: OSError, after which the log must go offline: a start puts its folder in order.
    """
    disk = log.ports.disk
    base = cleaned.base_offset
    paths = {
        suffix: f"{log.directory}/{names.segment_name(base, suffix)}"
        for suffix in names.SEGMENT_SUFFIXES
        if suffix in cleaned.suffixes
    }
    for suffix, path in paths.items():
        disk.rename(job.temporary(base, suffix), path + names.CLEANED)
    for path in paths.values():
        disk.rename(path + names.CLEANED, path + names.SWAP)
    # Whoever reads the old segments goes on reading them.
    delete_segments(log, olds)
    for path in paths.values():
        disk.rename(path + names.SWAP, path)
    segment = Segment(
        log.ports.files,
        log.directory,
        base,
        size=cleaned.size,
        created_ms=log.ports.clock.now_ms(),
        max_timestamp=TimestampOffset(cleaned.max_timestamp, cleaned.max_timestamp_offset),
    )
    log.segments.replace(log.segments.floor(base), len(olds), segment)
    log.size_bytes += segment.size - sum(old.size for old in olds)
    log.names_changed = True
    _remove_snapshots(log, {old.base_offset for old in olds[1:]})


def _remove_snapshots(log: PartitionLog, offsets: set[int]) -> None:
    """Remove the producers' snapshots of starts of segments that are no more."""
    for offset in offsets.intersection(log.snapshots):
        log.ports.disk.remove(f"{log.directory}/{names.segment_name(offset, names.SNAPSHOT)}")
        log.snapshots.remove(offset)
