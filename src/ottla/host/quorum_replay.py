"""From the metadata log's bytes to images.

Source: MetadataLoader, MetadataBatchLoader of Kafka; KIP-631.
"""

from collections.abc import Iterator

from ottla.host.quorum_storage import READ_BYTES_MAX, MetadataDamaged, QuorumStorage
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import Record, decode_entry, decode_record, settled
from ottla.raft.batches import LogBatch, read_batches
from ottla.raft.snapshots import CorruptSnapshot, SnapshotContent
from ottla.raft.values import OffsetAndEpoch
from ottla.records.errors import RecordsError
from ottla.wire.errors import WireError


def records_of(batch: LogBatch) -> list[Record]:
    """Return the metadata records of a batch; a control batch has none."""
    return settled(decode_entry(value) for value in batch.values)


def image_of(snapshot: OffsetAndEpoch, content: SnapshotContent) -> ClusterImage:
    """Return the state that a snapshot holds."""
    records = (decode_record(value) for value in content.values)
    return replay(EMPTY, records, offset=snapshot.offset - 1, epoch=snapshot.epoch).image


def read_log(storage: QuorumStorage, start: int) -> Iterator[list[LogBatch]]:
    """Yield the log's batches from `start` to its end, a read at a time."""
    end = storage.log.end_offset
    while start < end:
        data = storage.log.read(start, end, READ_BYTES_MAX)
        batches = [batch for batch in read_batches(data) if batch.base_offset >= start]
        assert batches, f"the metadata log has a hole at offset {start}"
        assert batches[0].base_offset == start, f"the metadata log has a hole at offset {start}"
        yield batches
        start = batches[-1].next_offset


def load_image(storage: QuorumStorage) -> ClusterImage:
    """Return the state at the end of the log: the newest snapshot and what follows it.

    Raises: MetadataDamaged, OSError.
    """
    try:
        return _load_image(storage)
    except (CorruptSnapshot, RecordsError, WireError, AssertionError, KeyError) as error:
        # Replaying asserts that every record makes sense after those before it.
        raise MetadataDamaged(f"{storage.folder} cannot be read: {error}") from error


def _load_image(storage: QuorumStorage) -> ClusterImage:
    image, start = EMPTY, 0
    if storage.snapshots:
        latest = storage.snapshots[-1].id
        image, start = image_of(latest, storage.read_snapshot(latest)), latest.offset
    if storage.log.start_offset > start:
        raise MetadataDamaged(
            f"{storage.folder}: the log begins at offset {storage.log.start_offset} and there is "
            "no snapshot of what came before"
        )
    for batches in read_log(storage, start):
        # One replay for many batches: an idle hour leaves thousands that say nothing.
        records = [record for batch in batches for record in records_of(batch)]
        last = batches[-1]
        image = replay(image, records, offset=last.next_offset - 1, epoch=last.epoch).image
    return image
