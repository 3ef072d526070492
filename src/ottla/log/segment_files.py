"""The local segments as the copier to remote storage sees them, and the files of one.

The files are named by path and size, and are read later, in other threads. Nothing holds them:
meanwhile the log may delete the segment (then its files are renamed, and the copy fails), may be
deleted as a whole, or may be truncated and appended to, which puts other bytes at the same place,
even of the same size. So the copier asks `SegmentFiles.is_intact` when its copy has ended, before
it says that the copy is finished.

Source: KIP-405 (LogSegmentData); RemoteLogManager.RLMCopyTask.copyLogSegment.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ottla.base.object_store import FileSource
from ottla.base.ports import Disk
from ottla.log import names
from ottla.log.epoch_cache import EpochCache, EpochEntry
from ottla.log.producers.producer_snapshot import encode_snapshot
from ottla.log.recovery.producer_replay import Extent, rebuild_producers
from ottla.log.segment import Segment
from ottla.log.segment_check import SegmentCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSegment:
    """A segment here. `end_offset`: exclusive; `size_bytes`: of its batches."""

    base_offset: int
    end_offset: int
    size_bytes: int
    is_active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFiles:
    """What is copied of a sealed segment.

    Fields: `end_offset`: exclusive; `max_timestamp_ms`: -1 = its records have none; `epochs`: the
            leader epochs of its offsets from the log start on; `leader_epochs`: the
            content of a leader epoch checkpoint, from the log start to the segment's end;
            `transaction_index`: None = no transaction was aborted in it; `producer_snapshot`: at
            its end, None = there is no such file, see `rebuild_snapshot`.
            `is_intact`: returns whether the files are still those that were named here, or gone.
            `rebuild_snapshot`: returns the content of the producer snapshot. It reads the log's
            segments: for a worker thread. Raises: OSError.
            `read`: returns the content of one of the files, for a worker thread. Raises: OSError.
            `begin_check`: returns a check of the batches in `log`.
    """

    base_offset: int
    end_offset: int
    max_timestamp_ms: int
    epochs: tuple[EpochEntry, ...]
    leader_epochs: bytes
    log: FileSource
    offset_index: FileSource
    time_index: FileSource
    transaction_index: FileSource | None
    producer_snapshot: FileSource | None
    is_intact: Callable[[], bool]
    rebuild_snapshot: Callable[[], bytes]
    read: Callable[[FileSource], bytes]
    begin_check: Callable[[], SegmentCheck]


def files_of(
    disk: Disk,
    segment: Segment,
    end_offset: int,
    *,
    epochs: EpochCache,
    snapshots: list[int],
    earlier: list[Extent],
    is_intact: Callable[[], bool],
) -> SegmentFiles:
    """Return the files of a sealed segment; `earlier`: the segments up to this one.

    Raises: OSError, DamagedSegment.
    """
    transactions = segment.path(names.TRANSACTION_INDEX) if segment.aborted() else None
    snapshot = None
    if end_offset in snapshots:
        path = f"{segment.directory}/{names.segment_name(end_offset, names.SNAPSHOT)}"
        snapshot = _source(disk, path)
    return SegmentFiles(
        base_offset=segment.base_offset,
        end_offset=end_offset,
        max_timestamp_ms=segment.max_timestamp.timestamp,
        epochs=epochs.between(segment.base_offset, end_offset),
        leader_epochs=_epochs_until(epochs, end_offset),
        log=FileSource(segment.path(names.LOG), segment.size),
        offset_index=_source(disk, segment.path(names.OFFSET_INDEX)),
        time_index=_source(disk, segment.path(names.TIME_INDEX)),
        transaction_index=None if transactions is None else _source(disk, transactions),
        producer_snapshot=snapshot,
        is_intact=is_intact,
        rebuild_snapshot=partial(_rebuild, disk, segment.directory, earlier, end_offset),
        read=partial(_read, disk),
        begin_check=partial(
            SegmentCheck,
            disk,
            segment.path(names.LOG),
            size_bytes=segment.size,
            base_offset=segment.base_offset,
            end_offset=end_offset,
            latest_epoch=epochs.latest_epoch,
        ),
    )


def _source(disk: Disk, path: str) -> FileSource:
    return FileSource(path, disk.size(path))


def _read(disk: Disk, source: FileSource) -> bytes:
    return disk.read_bytes(source.path)


def _epochs_until(epochs: EpochCache, end_offset: int) -> bytes:
    part = EpochCache(epochs.entries)
    part.truncate_from_end(end_offset)
    return part.encode()


def _rebuild(disk: Disk, directory: str, segments: list[Extent], end_offset: int) -> bytes:
    producers = rebuild_producers(disk, directory, directory, segments, end_offset)
    return encode_snapshot(producers.entries.values())
