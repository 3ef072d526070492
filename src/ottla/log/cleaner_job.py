"""What a cleaning is told and what it answers: values that travel to another process.

A job names the segments to rewrite and all that the rewriting must know of the log. For each
group of segments the answer is one new segment, in files of their own with the ending `.tmp`,
which a start removes; only the log's owner turns them into segments (`cleaner_swap`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.base.ports import Disk
from ottla.log import names
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.compression import Codec


class CleaningFailed(Exception):
    """The log cannot be cleaned as it is: a batch is damaged, or a segment would grow too large."""


UNREADABLE_NAMED_MAX: Final = 10
"""Batches that a cleaning names where their records do not decode."""


class SegmentPlan(NamedTuple):
    """A sealed segment as the cleaning reads it; `end_offset` is the next one's base offset."""

    base_offset: int
    end_offset: int
    size: int


Group = tuple[SegmentPlan, ...]


class LastOfProducer(NamedTuple):
    """What must stay of an active producer; `last_offset` -1 = it has only markers here."""

    last_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningJob:
    """One cleaning of one log.

    Fields: `token`: tells this job's files from all others'; `first_dirty`: from where on keys
            were not compared yet; `now_ms`: when it began, which delete horizons count from.
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
    """All is rewritten: below `end_offset` no key is there twice.

    Fields: `unreadable`: base offsets of batches that were kept as they are, since their records
            do not decode: the first UNREADABLE_NAMED_MAX; `unreadable_count`: of all of them.
    """

    end_offset: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    unreadable: tuple[int, ...] = ()
    unreadable_count: int = 0


def remove_temporaries(disk: Disk, job: CleaningJob) -> None:
    """Remove what a job wrote that was never taken over. Blocks. Raises: OSError."""
    ending = f".{job.token}{names.TEMPORARY}"
    try:
        found = disk.listdir(job.directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in found:
        if name.endswith(ending):
            disk.remove(f"{job.directory}/{name}")
