"""Rebuilding the producer state of a log from the newest sound snapshot and the batches since.

Source: UnifiedLog.rebuildProducerState, ProducerStateManager.loadFromSnapshot.
"""

import logging
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import chain
from typing import NamedTuple

from ottla.base.ports import Disk, File
from ottla.log import names
from ottla.log.dirs.checkpoints import MalformedFile
from ottla.log.indexes.transaction_index import AbortedTransaction
from ottla.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.log.producers.producer_state import ProducerEntry, ProducerState
from ottla.log.recovery.scan import marker_of, scan_batches, scan_headers
from ottla.records.batch import BatchHeader
from ottla.records.errors import RecordsError

logger = logging.getLogger(__name__)


class Extent(NamedTuple):
    """A segment as replay sees it: where it starts, and its sound bytes."""

    base_offset: int
    size: int


def list_snapshots(disk: Disk, directory: str) -> list[int]:
    """Return the offsets of a log's snapshots, ascending."""
    parsed = map(names.parse_segment_name, disk.listdir(directory))
    return sorted(item[0] for item in parsed if item and item[1] == names.SNAPSHOT)


def prune_snapshots(disk: Disk, directory: str, end: int) -> list[int]:
    """Remove the snapshots above the log's end; return the others."""
    kept: list[int] = []
    for offset in list_snapshots(disk, directory):
        if offset <= end:
            kept.append(offset)
        else:
            disk.remove(f"{directory}/{names.segment_name(offset, names.SNAPSHOT)}")
    return kept


def remove_stray_snapshots(
    disk: Disk, directory: str, segments: Sequence[Extent], end: int
) -> list[int]:
    """Remove the snapshots above the log's end, and those within segments but for the latest one;
    return the others.

    A clean shutdown leaves one within the active segment, and compaction deletes no segment by
    which it would go. Truncations and copies to remote storage read those where segments begin.
    Source: ProducerStateManager.removeStraySnapshots.
    """
    found = prune_snapshots(disk, directory, end)
    wanted = {segment.base_offset for segment in segments} | set(found[-1:])
    for offset in found:
        if offset not in wanted:
            disk.remove(f"{directory}/{names.segment_name(offset, names.SNAPSHOT)}")
    return [offset for offset in found if offset in wanted]


def write_snapshot(disk: Disk, directory: str, offset: int, producers: ProducerState) -> str:
    """Write the snapshot of `offset` without a sync; return its path. Raises: OSError."""
    path = f"{directory}/{names.segment_name(offset, names.SNAPSHOT)}"
    with closing(disk.open(path, create=True)) as file:
        file.truncate(0)
        file.append([encode_snapshot(producers.entries.values())])
    return path


def rebuild_producers(
    disk: Disk, directory: str, log_name: str, segments: Sequence[Extent], end: int
) -> ProducerState:
    """Return the state at offset `end`; damaged snapshots are logged and removed.

    A snapshot from before the first segment is not used: what the producers wrote in between is not
    known, and their next batches would be refused as out of order. It can also be of a log that has
    begun again elsewhere since. A damaged batch ends the replay. Raises: OSError.
    """
    first = segments[0].base_offset if segments else end
    start, entries = _newest_snapshot(disk, directory, log_name, first, end)
    producers = ProducerState(log_name, entries)
    for index, segment in enumerate(segments):
        next_index = index + 1
        segment_end = segments[next_index].base_offset if next_index < len(segments) else end
        if segment_end > start:
            _replay_segment(disk, directory, producers, segment, start, end)
    return producers


def store_producers_before(
    disk: Disk, directory: str, log_name: str, segments: Sequence[Extent], end: int
) -> None:
    """Make the snapshot of offset `end` durable: the segments before it are about to be removed.

    After a power loss it can be missing, if the log start was checkpointed before the flush that
    follows a roll. Then it is rebuilt from the segments, unless they do not reach `end` without a
    gap, because they are of a former log. Raises: OSError.
    """
    first = segments[0].base_offset
    start, entries = _newest_snapshot(disk, directory, log_name, first, end)
    path = f"{directory}/{names.segment_name(end, names.SNAPSHOT)}"
    if start < end:
        producers = ProducerState(log_name, entries)
        ends = chain((segment.base_offset for segment in segments[1:]), (end,))
        try:
            for segment, segment_end in zip(segments, ends, strict=True):
                if segment_end > start:
                    reached = _replay_whole(disk, directory, producers, segment, start)
                    if reached != segment_end:
                        return
        except RecordsError as error:
            logger.warning(
                "%s: the producers before offset %d are not known: their snapshot is missing and "
                "the segments before it are damaged: %s",
                *(log_name, end, error),
            )
            return
        write_snapshot(disk, directory, end, producers)
    with closing(disk.open(path)) as file:
        file.sync()
    disk.sync_dir(directory)


def estimate_append_times(
    disk: Disk, directory: str, segments: Sequence[Extent], producers: ProducerState, now_ms: int
) -> None:
    """Set the append times of producers that were read from files. Raises: OSError.

    No file has the time of an append. Its upper bound is the modification time of the segment's
    file, or of the first segment's if that one is deleted. So no producer expires too early, and
    none is kept for ever by a broker that restarts every day.
    """
    bases = [segment.base_offset for segment in segments]
    known: dict[int, int] = {}

    def appended_ms(entry: ProducerEntry) -> int:
        if not bases:
            return now_ms
        # Of one that has written a marker only, the offset is not known.
        found = bisect_right(bases, entry.last_offset) - 1 if entry.last_offset >= 0 else -1
        base = bases[0 if found < 0 <= entry.last_offset else found]
        if base not in known:
            path = f"{directory}/{names.segment_name(base, names.LOG)}"
            known[base] = min(disk.modified_ms(path), now_ms)
        return known[base]

    producers.fill_append_times(appended_ms)


def replay_batch(
    producers: ProducerState, header: BatchHeader, buffer: bytes, start: int
) -> AbortedTransaction | None:
    """Apply a batch with a producer id; return the aborted transaction that it ends, if any."""
    if not header.is_control:
        producers.appended(header)
        return None
    found = marker_of(buffer, start, header)
    if found is None:
        return None
    completed = producers.marker_appended(header, *found)
    if completed is None or not completed.aborted:
        return None
    return AbortedTransaction(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        producers.stable_after(completed),
    )


def _newest_snapshot(
    disk: Disk, directory: str, log_name: str, first: int, end: int
) -> tuple[int, list[ProducerEntry]]:
    """Return the newest sound snapshot of an offset in [first, end], and that offset.

    Where all are damaged the batches from `first` on are all there is to replay.
    """
    damage: MalformedFile | None = None
    for offset in reversed(list_snapshots(disk, directory)):
        if not first <= offset <= end:
            continue
        name = names.segment_name(offset, names.SNAPSHOT)
        path = f"{directory}/{name}"
        try:
            return offset, decode_snapshot(disk.read_bytes(path))
        except MalformedFile as error:
            damage = error
            logger.warning(
                "%s: %s is damaged (%s); removing it, and rebuilding the producers from an older "
                "snapshot and the batches after it",
                *(log_name, name, error),
            )
            disk.remove(path)
    if damage is not None and first > 0:
        logger.warning(
            "%s: the producers before offset %d are not known: no snapshot of them is sound",
            *(log_name, first),
        )
    return 0, []


def _replay_segment(
    disk: Disk, directory: str, producers: ProducerState, segment: Extent, start: int, end: int
) -> None:
    with suppress(RecordsError), closing(_open(disk, directory, segment)) as file:
        for position, header in scan_headers(file, 0, segment.size):
            if header.base_offset >= end:
                return
            if header.last_offset >= start and header.producer_id >= 0:
                replay_batch(producers, header, _body(file, position, header), 0)


def _replay_whole(
    disk: Disk, directory: str, producers: ProducerState, segment: Extent, start: int
) -> int:
    """Replay a segment from offset `start` on; return its end. Raises: OSError; RecordsError."""
    end = segment.base_offset
    with closing(_open(disk, directory, segment)) as file:
        for _, header, buffer, position in scan_batches(file, 0, segment.size):
            if header.last_offset >= start and header.producer_id >= 0:
                replay_batch(producers, header, buffer, position)
            end = header.next_offset
    return end


def _open(disk: Disk, directory: str, segment: Extent) -> File:
    return disk.open(f"{directory}/{names.segment_name(segment.base_offset, names.LOG)}")


def _body(file: File, position: int, header: BatchHeader) -> bytes:
    # Of data batches the header is enough.
    return file.read_at(position, header.size_in_bytes) if header.is_control else b""
