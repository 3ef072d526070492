"""The state of a log's idempotent and transactional producers.

Per producer: epoch, the last five batches (a retry of one of these is not appended again), the
coordinator epoch of its last marker and the first offset of its open transaction. The open
transactions determine the last stable offset, up to which read_committed consumers may read.

| batch of a client                               | result                        |
|-------------------------------------------------|-------------------------------|
| same epoch and sequences as one of the last 5   | duplicate: its offsets        |
| epoch below the known one                       | INVALID_PRODUCER_EPOCH        |
| epoch above, sequence 0                         | appended; the old epoch ends  |
| epoch above, other sequence                     | OUT_OF_ORDER_SEQUENCE_NUMBER  |
| same epoch, next sequence (0 follows 2^31 - 1)  | appended                      |
| same epoch, other sequence                      | OUT_OF_ORDER_SEQUENCE_NUMBER  |
| producer not known (new, expired, log deleted)  | appended, whatever sequence   |
| not transactional within an open transaction    | INVALID_TXN_STATE             |

Batches of coordinators skip the sequence checks. Batches from replication or recovery are never
refused.

A producer expires `producer.id.expiration.ms` after this broker appended its last batch. In Kafka
the batch's own timestamp counts, so a producer of historic data expires at once, and its retries
are appended twice.

Source: ProducerStateManager, ProducerStateEntry.findDuplicateBatch, ProducerAppendInfo; KIP-98,
KIP-360.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, NO_OFFSET
from ottla.records.batch import INT32_MAX, BatchHeader
from ottla.records.control import Marker

Origin = Literal["client", "coordinator", "replication"]

BATCHES_KEPT: Final = 5
"""ProducerStateEntry.NUM_BATCHES_TO_RETAIN = max.in.flight.requests of an idempotent producer."""

NO_SEQUENCE: Final = -1


class BatchMetadata(NamedTuple):
    """What is kept of an appended batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & INT32_MAX

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class CompletedTransaction(NamedTuple):
    """A transaction that its marker ended; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


@dataclass(slots=True)
class ProducerEntry:
    """One producer. `epoch` -1 = nothing known yet; `transaction_start` -1 = none open.

    Fields: `last_timestamp`: of the last batch's records, as Kafka's files and tools have it.
            `appended_ms`: when this broker appended that batch, by its wall clock; None = not
            known, set to the time of the first expiration check.
    """

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = NO_EPOCH
    last_timestamp: int = -1
    transaction_start: int = NO_OFFSET
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    appended_ms: int | None = None

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_offset_delta(self) -> int:
        return self.batches[-1].offset_delta if self.batches else 0

    def take_epoch(self, epoch: int) -> None:
        """Set the epoch; batches of an older one can no longer be duplicates."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class ProducerState:
    """All producers of one log. Its methods do not touch the disk."""

    __slots__ = ("_entries", "_log_name", "_open", "_unreplicated")

    def __init__(self, log_name: str, entries: Iterable[ProducerEntry] = ()) -> None:
        self._log_name = log_name
        self._entries: dict[int, ProducerEntry] = {}
        self._open: list[tuple[int, int]] = []
        """(First offset, producer id) of open transactions, ascending."""
        self._unreplicated: list[tuple[int, int]] = []
        """(First, last offset) of ended transactions whose marker is not replicated yet."""
        for entry in entries:
            self._entries[entry.producer_id] = entry
            if entry.transaction_start != NO_OFFSET:
                insort(self._open, (entry.transaction_start, entry.producer_id))

    @property
    def entries(self) -> Mapping[int, ProducerEntry]:
        """The producers by id; not to be changed."""
        return self._entries

    # --- before an append ----------------------------------------------------------------

    def check(self, header: BatchHeader, origin: Origin) -> BatchMetadata | None:
        """Return the duplicate, a batch with the same sequence numbers; None = it may be appended.

        Raises: ApiError as the module's table says.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None
        if origin == "client" and header.producer_epoch == entry.epoch:
            first, last = header.base_sequence, header.last_sequence
            for batch in entry.batches:
                if batch.last_sequence == last and batch.first_sequence == first:
                    return batch
        self._check_epoch(entry, header.producer_epoch)
        if origin == "client":
            self._check_sequence(entry, header)
        if entry.transaction_start != NO_OFFSET and not header.is_transactional:
            raise ApiError(
                Error.INVALID_TXN_STATE,
                f"Expected a transactional write from producer {entry.producer_id} "
                f"in {self._log_name}.",
            )
        return None

    def check_marker(self, header: BatchHeader, marker: Marker) -> None:
        """Raise ApiError if the marker's producer epoch or coordinator epoch is stale."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return
        self._check_epoch(entry, header.producer_epoch)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise ApiError(
                Error.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {marker.coordinator_epoch} for producer {entry.producer_id} "
                f"in {self._log_name} is below {entry.coordinator_epoch}, which was seen before.",
            )

    def _check_epoch(self, entry: ProducerEntry, epoch: int) -> None:
        if epoch < entry.epoch:
            raise ApiError(
                Error.INVALID_PRODUCER_EPOCH,
                f"Epoch {epoch} of producer {entry.producer_id} in {self._log_name} is below "
                f"{entry.epoch}, which was seen before.",
            )

    def _check_sequence(self, entry: ProducerEntry, header: BatchHeader) -> None:
        sequence = header.base_sequence
        if entry.epoch == NO_EPOCH:
            return
        if header.producer_epoch != entry.epoch:
            expected = 0
        elif entry.batches:
            expected = (entry.last_sequence + 1) & INT32_MAX
        else:
            expected = 0
        if sequence != expected:
            raise ApiError(
                Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {entry.producer_id} epoch "
                f"{header.producer_epoch} in {self._log_name}: {sequence} (incoming sequence "
                f"number), {expected} (expected sequence number).",
            )

    # --- after an append -----------------------------------------------------------------

    def appended(self, header: BatchHeader, now_ms: int | None = None) -> None:
        """Apply a data batch that is in the log, at the header's offsets.

        `now_ms`: when it was appended; None = unknown.
        """
        entry = self._entry(header.producer_id)
        entry.appended_ms = now_ms
        entry.take_epoch(header.producer_epoch)
        entry.batches.append(
            BatchMetadata(
                header.last_sequence,
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp,
            )
        )
        entry.last_timestamp = header.max_timestamp
        if header.is_transactional and entry.transaction_start == NO_OFFSET:
            entry.transaction_start = header.base_offset
            insort(self._open, (header.base_offset, entry.producer_id))

    def marker_appended(
        self, header: BatchHeader, marker: Marker, timestamp: int, now_ms: int | None = None
    ) -> CompletedTransaction | None:
        """Apply a marker in the log; return the transaction it ended, None = none was open."""
        entry = self._entry(header.producer_id)
        entry.appended_ms = now_ms
        start = entry.transaction_start
        entry.take_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        entry.transaction_start = NO_OFFSET
        if start == NO_OFFSET:
            return None
        self._open.remove((start, entry.producer_id))
        insort(self._unreplicated, (start, header.base_offset))
        return CompletedTransaction(
            entry.producer_id, start, header.base_offset, not marker.committed
        )

    def _entry(self, producer_id: int) -> ProducerEntry:
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id)
        return entry

    # --- the last stable offset ----------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or whose end is not replicated."""
        first = None
        if self._open:
            first = self._open[0][0]
        if self._unreplicated and (first is None or self._unreplicated[0][0] < first):
            first = self._unreplicated[0][0]
        return first

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of a transaction without its marker."""
        return self._open[0][0] if self._open else None

    def stable_after(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset once `completed`'s marker is replicated."""
        return self._open[0][0] if self._open else completed.last_offset + 1

    def replicated_to(self, offset: int) -> None:
        """Drop the ended transactions whose marker is below `offset`."""
        if self._unreplicated:
            self._unreplicated = [pair for pair in self._unreplicated if pair[1] >= offset]

    # --- upkeep --------------------------------------------------------------------------

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers idle for that long and without a transaction; return how many."""
        gone: list[int] = []
        for producer_id, entry in self._entries.items():
            if entry.appended_ms is None:
                entry.appended_ms = now_ms
            if entry.transaction_start == NO_OFFSET and now_ms - entry.appended_ms >= expiration_ms:
                gone.append(producer_id)
        for producer_id in gone:
            del self._entries[producer_id]
        return len(gone)

    def fill_append_times(self, appended_ms: Callable[[ProducerEntry], int | None]) -> None:
        """Set the append times of producers that have none."""
        for entry in self._entries.values():
            if entry.appended_ms is None:
                entry.appended_ms = appended_ms(entry)

    def clear(self) -> None:
        """Remove all producers."""
        self._entries.clear()
        self._open.clear()
        self._unreplicated.clear()
