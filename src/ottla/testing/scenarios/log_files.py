"""Reads the log of every replica from its files at the end of a history: see `history_log`.

The files are read from the simulated disk directly, past all caches of the node; damage ends the
reading of a segment and is recorded.
"""

from collections.abc import Iterator

from ottla.base.ids import Uuid
from ottla.log import names
from ottla.log.dirs.checkpoints import MalformedFile
from ottla.log.epoch_cache import EpochCache
from ottla.log.indexes import offset_index, time_index
from ottla.log.indexes.transaction_index import AbortedTransaction, decode_entries
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery.scan import marker_of
from ottla.log.segment import Segment
from ottla.records.batch import BatchHeader, check_crc, parse_header
from ottla.records.errors import RecordsError
from ottla.records.record import read_records
from ottla.testing.history.log import (
    BatchSeen,
    ProducerSeen,
    RecordSeen,
    ReplicaLog,
    SegmentSeen,
)
from ottla.testing.scenarios.settling import brokers_of
from ottla.testing.sim import Sim

EXPIRATION_MS = 3_600_000
"""Longer than any history, with all clock jumps: producers do not expire then."""

Indexes = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]


def read_replica_logs(sim: Sim) -> Iterator[ReplicaLog]:
    """Yield every log that is assigned to a running broker, internal topics included."""
    assigned = {
        (node_id, (topic.id, number))
        for topic in sim.image.topics
        for number, state in topic.in_order()
        for node_id in state.replicas
    }
    for node_id, broker in brokers_of(sim):
        for partition in broker.replicas.hosted():
            key = (partition.topic_id, partition.partition_id)
            log = partition.log
            if log is not None and not log.failed and (node_id, key) in assigned:
                files = sim.nodes[node_id].disk.files_in(log.directory)
                yield _log(node_id, key, log, files, sim.now_ms)


def _log(
    node: int, key: tuple[Uuid, int], log: PartitionLog, files: dict[str, bytes], at_ms: int
) -> ReplicaLog:
    compacted = log.config.compacts or log.clean_offset > 0
    bases = {segment.base_offset for segment in log.segments}
    strange = []
    for name in sorted(files):
        parsed = names.parse_segment_name(name)
        if parsed is not None and parsed[1] == names.LOG and parsed[0] not in bases:
            strange.append(name)
    entries = log.producers.entries
    return ReplicaLog(
        node=node,
        partition=key,
        start=log.local_log_start_offset,
        end=log.log_end_offset,
        high_watermark=log.high_watermark,
        segments=tuple(_segment(each, files, compacted) for each in log.segments),
        compacted=compacted,
        strange=tuple(strange),
        epochs=tuple((epoch, start) for epoch, start in log.epochs.entries),
        epochs_stored=_stored_epochs(log, files),
        producers=tuple(
            ProducerSeen(
                producer_id,
                entry.epoch,
                tuple((each.last_sequence, each.last_offset) for each in entry.batches),
                entry.coordinator_epoch >= 0,
            )
            for producer_id, entry in sorted(entries.items())
        ),
        forgets=log.config.producer_id_expiration_ms < EXPIRATION_MS,
        at_ms=at_ms,
    )


def _stored_epochs(
    log: PartitionLog, files: dict[str, bytes]
) -> tuple[tuple[int, int], ...] | None:
    if log.epochs.dirty or log.flusher.is_flushing:
        return None
    try:
        stored = EpochCache.decode(files[names.LEADER_EPOCHS])
    except KeyError:
        return ()
    except MalformedFile:
        return ((-1, -1),)
    # Below the log start the file may keep those that an earlier, durable log start needs.
    stored.truncate_from_start(log.log_start_offset)
    return tuple((epoch, start) for epoch, start in stored.entries)


def _segment(segment: Segment, files: dict[str, bytes], compacted: bool) -> SegmentSeen:
    base = segment.base_offset
    data = _data_of(segment, names.LOG, files)
    batches: list[BatchSeen] = []
    damage = None if data is not None else "its file does not exist"
    if data is not None:
        position, size = 0, min(segment.size, len(data))
        try:
            while position < size:
                header = parse_header(data, position)
                check_crc(data, position, header)
                batches.append(_batch(data, position, header, compacted))
                position += header.size_in_bytes
        except RecordsError as error:
            damage = f"at position {position}, {error}"
    offsets, times = _indexes(segment, files)
    largest = segment._max_timestamp
    return SegmentSeen(
        base_offset=base,
        size=segment.size,
        file_size=-1 if data is None else len(data),
        batches=tuple(batches),
        damage=damage,
        offset_index=offsets,
        time_index=times,
        is_active=segment.is_active,
        largest=None if largest is None else largest.timestamp,
        aborted=_aborted(segment, files),
    )


def _data_of(segment: Segment, suffix: str, files: dict[str, bytes]) -> bytes | None:
    """Return a file by its current name: a cleaned segment is renamed at the end."""
    return files.get(segment._handles[suffix].path.rpartition("/")[2])


def _batch(data: bytes, position: int, header: BatchHeader, compacted: bool) -> BatchSeen:
    marker = marker_of(data, position, header) if header.is_control else None
    records: tuple[RecordSeen, ...] = ()
    if compacted and not header.is_control:
        records = tuple(
            RecordSeen(each.offset, each.key, each.value, each.timestamp)
            for each in read_records(data, position, header)
        )
    return BatchSeen(
        header.base_offset,
        header.last_offset,
        header.partition_leader_epoch,
        header.crc,
        header.record_count,
        header.producer_id,
        header.producer_epoch,
        header.last_sequence,
        header.max_timestamp,
        position,
        header.size_in_bytes,
        header.is_control,
        records,
        header.is_transactional,
        marker is not None and not marker[0].committed,
    )


def _aborted(segment: Segment, files: dict[str, bytes]) -> tuple[AbortedTransaction, ...] | None:
    data = _data_of(segment, names.TRANSACTION_INDEX, files) or b""
    try:
        return tuple(decode_entries(data, segment.base_offset))
    except ValueError:
        return None


def _indexes(segment: Segment, files: dict[str, bytes]) -> Indexes:
    base = segment.base_offset
    offsets, times = segment._offset_index, segment._time_index
    if offsets is not None and times is not None:
        return (
            tuple((base + o, p) for o, p in offsets.entries()),
            tuple((t, base + o) for t, o in times.entries()),
        )
    data = _data_of(segment, names.OFFSET_INDEX, files) or b""
    data = data[: len(data) - len(data) % offset_index.ENTRY_SIZE]
    found = tuple((base + o, p) for o, p in offset_index.ENTRY.iter_unpack(data))
    data = _data_of(segment, names.TIME_INDEX, files) or b""
    data = data[: len(data) - len(data) % time_index.ENTRY_SIZE]
    return found, tuple((t, base + o) for t, o in time_index.ENTRY.iter_unpack(data))
