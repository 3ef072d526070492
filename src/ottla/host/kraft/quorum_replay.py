"""Decodes and replays the metadata log.

A record that cannot be decoded or replayed is never skipped: the image without it would be written
to snapshots, served to clients and used by a leader. `MetadataDamaged` names file, offset and
record type, and ends the node.

Source: MetadataLoader, MetadataBatchLoader, FaultHandler (fatal for loading) of Kafka; KIP-631.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.host.kraft.quorum_storage import READ_BYTES_MAX, MetadataDamaged, QuorumStorage
from ottla.metadata.delta import ClusterDelta, replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import Marker, Record, decode_entry, decode_record, without_aborted
from ottla.raft.batches import LogBatch, read_batches
from ottla.raft.snapshots import CorruptSnapshot, SnapshotContent
from ottla.raft.values import OffsetAndEpoch
from ottla.records.errors import RecordsError


class DecodedBatch(NamedTuple):
    """A batch of the log and the metadata records in it; a control batch has none."""

    batch: LogBatch
    records: list[Record]


def decode_batches(storage: QuorumStorage, data: bytes) -> list[DecodedBatch]:
    """Return the batches in `data`, which is in the log. Raises: MetadataDamaged."""
    decoded: list[DecodedBatch] = []
    at = -1
    try:
        for batch in read_batches(data):
            at = batch.base_offset
            decoded.append(DecodedBatch(batch, records_of(batch, storage.log.file_of(at))))
    except RecordsError as error:
        where = "the log" if at < 0 else storage.log.file_of(at)
        raise MetadataDamaged(f"{where}: behind offset {at}: {error}") from error
    return decoded


def records_of(batch: LogBatch, file: str = "the metadata log") -> list[Record]:
    """Return the metadata records of a batch. Raises: MetadataDamaged, which names `file`."""
    entries: list[Record | Marker] = []
    try:
        entries.extend(map(decode_entry, batch.values))  # Those before a failure stay.
        return without_aborted(entries)
    except Exception as error:
        # If all records decode, the transaction is invalid: that is an error of the whole batch.
        whole = len(entries) == len(batch.values)
        offset = batch.base_offset + (0 if whole else len(entries))
        raise MetadataDamaged(
            f"{file}: the metadata record at offset {offset} cannot be decoded by this version of "
            f"Ottla: {error}"
        ) from error


def replay_batches(
    image: ClusterImage, batches: Sequence[DecodedBatch], storage: QuorumStorage
) -> ClusterDelta:
    """Apply batches as one change. Raises: MetadataDamaged."""
    last = batches[-1].batch
    # One replay for many batches: an idle hour leaves thousands of NoOpRecords.
    records = [record for each in batches for record in each.records]
    try:
        return replay(image, records, offset=last.next_offset - 1, epoch=last.epoch)
    except Exception as error:
        where = _first_that_fails(image, batches, storage)
        raise MetadataDamaged(f"{where} cannot be replayed: {_text(error)}") from error


def _first_that_fails(
    image: ClusterImage, batches: Sequence[DecodedBatch], storage: QuorumStorage
) -> str:
    for batch, records in batches:
        # In a batch with transaction markers only the base offset is known.
        exact = len(records) == len(batch.values)
        for index, record in enumerate(records):
            offset = batch.base_offset + (index if exact else 0)
            try:
                image = replay(image, (record,), offset=offset, epoch=batch.epoch).image
            except Exception:
                file = storage.log.file_of(offset)
                return f"{file}: the {type(record).__name__} at offset {offset}"
    return f"{storage.directory}: the records up to offset {batches[-1].batch.next_offset}"


def image_of(
    snapshot: OffsetAndEpoch, content: SnapshotContent, storage: QuorumStorage
) -> ClusterImage:
    """Return the state that a snapshot holds. Raises: MetadataDamaged."""
    records: list[Record] = []
    try:
        records.extend(map(decode_record, content.values))
        return replay(EMPTY, records, offset=snapshot.offset - 1, epoch=snapshot.epoch).image
    except Exception as error:
        decoded = len(records) == len(content.values)
        what = "its records cannot be replayed" if decoded else f"record {len(records)} of it"
        raise MetadataDamaged(
            f"{storage.snapshot_file(snapshot)}: the snapshot cannot be loaded: {what}: "
            f"{_text(error)}"
        ) from error


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def read_log(storage: QuorumStorage, start: int) -> Iterator[list[LogBatch]]:
    """Yield the log's batches from `start` to its end, a read at a time.

    Raises: MetadataDamaged where one is missing; RecordsError; OSError.
    """
    end = storage.log.end_offset
    while start < end:
        data = storage.log.read(start, end, READ_BYTES_MAX)
        batches = [batch for batch in read_batches(data) if batch.base_offset >= start]
        read_start = start
        for batch in batches:
            # The checksum does not cover a batch's offset.
            if batch.base_offset != start:
                break
            start = batch.next_offset
        if start == read_start or start != batches[-1].next_offset:
            file = storage.log.file_of(start)
            raise MetadataDamaged(f"{file}: the metadata log has a hole at offset {start}")
        yield batches


def load_image(storage: QuorumStorage) -> ClusterImage:
    """Return the state at the end of the log: the newest snapshot and what follows it.

    Raises: MetadataDamaged, OSError.
    """
    try:
        return _load_image(storage)
    except MetadataDamaged as error:
        raise MetadataDamaged(f"{error}; {storage.remedy}") from error
    except (CorruptSnapshot, RecordsError, AssertionError) as error:
        raise MetadataDamaged(
            f"{storage.directory} cannot be read: {error}; {storage.remedy}"
        ) from (error)


def _load_image(storage: QuorumStorage) -> ClusterImage:
    image, start = EMPTY, 0
    if storage.snapshots:
        latest = storage.snapshots[-1].id
        image, start = image_of(latest, storage.read_snapshot(latest), storage), latest.offset
    if storage.log.start_offset > start:
        damaged = "".join(f"; {path} is damaged" for path in storage.corrupt_snapshots)
        raise CorruptSnapshot(
            f"the log begins at offset {storage.log.start_offset} and there is no snapshot "
            f"of what came before{damaged}"
        )
    for batches in read_log(storage, start):
        decoded = [
            DecodedBatch(each, records_of(each, storage.log.file_of(each.base_offset)))
            for each in batches
        ]
        image = replay_batches(image, decoded, storage).image
    return image
