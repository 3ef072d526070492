"""The input and the results of a cleaning: values that are sent to and from another process.

A job has the segments to rewrite and the state of the log that this needs. The result for each
group of segments is one new segment in `.tmp` files, which a start removes; the log's owner swaps
them in (`cleaner_swap`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.base.ports import Disk
from ottla.log import names
from ottla.log.indexes.transaction_index import AbortedTransaction
from ottla.records.compression import Codec


class CleaningFailed(Exception):
    """The log cannot be cleaned as it is: a batch is damaged, or a segment would grow too large."""


class CleanerDied(Exception):
    """The work ended before its job did, for want of memory, say; it may succeed another time.

    No OSError: that would be one of the log's disk.
    """


UNREADABLE_NAMED_MAX: Final = 10
"""Batches that do not decode and are reported by base offset."""


class SegmentPlan(NamedTuple):
    """A sealed segment as the cleaning reads it; `end_offset` is the next one's base offset."""

    base_offset: int
    end_offset: int
    size: int


Group = tuple[SegmentPlan, ...]


class LastOfProducer(NamedTuple):
    """The last batch of an active producer; `last_offset` -1 = it has only markers here."""

    last_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningJob:
    """One cleaning of one log.

    Fields: `token`: makes the names of this job's files unique; `first_dirty`: the first offset
            that was not cleaned yet; `now_ms`: when it began; delete horizons count from then.
    """

    directory: str
    token: str
    groups: tuple[Group, ...]
    first_dirty: int
    now_ms: int
    delete_retention_ms: int
    map_bytes: int
    map_load_factor: float
    index_interval_bytes: int
    write_bytes: int
    bytes_per_second: float
    aborted: tuple[AbortedTransaction, ...] = ()
    producers: Mapping[int, LastOfProducer] = field(default_factory=dict)
    levels: Mapping[Codec, int] = field(default_factory=dict)

    def temporary(self, base_offset: int, suffix: str) -> str:
        """Return the path under which a new segment's file is written."""
        name = names.segment_name(base_offset, suffix)
        return f"{self.directory}/{name}.{self.token}{names.TEMPORARY}"


class CleanedSegment(NamedTuple):
    """A new segment, durable in its temporary files, for the group of that number."""

    group: int
    base_offset: int
    size: int
    max_timestamp: int
    max_timestamp_offset: int
    suffixes: tuple[str, ...]
    """Which files it has."""


class CleaningEnd(NamedTuple):
    """The end of a cleaning: below `end_offset` every key is unique.

    Fields: `unreadable`: base offsets of the first UNREADABLE_NAMED_MAX batches that were kept as
            they are, since their records do not decode; `unreadable_count`: the number of all.
    """

    end_offset: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    unreadable: tuple[int, ...] = ()
    unreadable_count: int = 0


def remove_temporaries(disk: Disk, job: CleaningJob) -> None:
    """Remove a job's files that were not swapped in. Blocks. Raises: OSError."""
    ending = f".{job.token}{names.TEMPORARY}"
    try:
        found = disk.listdir(job.directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in found:
        if name.endswith(ending):
            disk.remove(f"{job.directory}/{name}")
