"""What a consumer takes from the records of a fetch: the common part of simulated consumers."""

from dataclasses import dataclass, field

from ottla.base.ports import Buffer
from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import check_crc, iter_headers
from ottla.records.record import Record, read_records


@dataclass(slots=True)
class Fetched:
    """Fields: `records`: from the position on. `gaps`: offsets, half-open, that are in no batch
    though later ones are. `next_offset`: where the consumer continues. `epoch`: the leader epoch of
    the last batch, -1 = there is none.
    """

    records: list[Record] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    next_offset: int = 0
    epoch: int = -1


def take(batches: Buffer, position: int, aborted: AbortedTransactions | None = None) -> Fetched:
    """Return what whole batches have from a position on, without transaction markers.

    A response has whole batches, also for an offset within one. `aborted`: drops the batches of
    aborted transactions, as a read_committed consumer does.
    """
    found = Fetched(next_offset=position)
    end = position
    for at, header in iter_headers(batches):
        check_crc(batches, at, header)
        found.epoch = header.partition_leader_epoch
        end = max(end, header.last_offset + 1)
        is_dropped = aborted is not None and aborted.drops(batches, at, header)
        if header.is_control or is_dropped:
            if header.base_offset > found.next_offset:
                found.gaps.append((found.next_offset, header.base_offset))
            found.next_offset = max(found.next_offset, header.last_offset + 1)
            continue
        for record in read_records(batches, at, header):
            if record.offset < found.next_offset:
                continue
            if record.offset > found.next_offset:
                found.gaps.append((found.next_offset, record.offset))
            found.records.append(record)
            found.next_offset = record.offset + 1
    # Compaction may have left empty batches.
    found.next_offset = max(found.next_offset, end)
    return found
