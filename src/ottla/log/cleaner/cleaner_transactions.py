"""Which batches belong to aborted transactions, for a cleaning that reads a log in order.

Data of an aborted transaction is removed. A marker is kept as long as the log has data of its
transaction. After that it is removed like a tombstone, once its delete horizon has passed, so that
a consumer in the middle of the transaction still gets it.

Source: CleanedTransactionMetadata; KIP-98, KIP-534.
"""

from collections.abc import Iterable
from heapq import heapify, heappop

from ottla.log.indexes.transaction_index import AbortedTransaction
from ottla.log.recovery.scan import marker_of
from ottla.records.batch import BatchHeader


class CleanedTransactions:
    """Must get every batch once, in the order of offsets.

    Fields: `kept`: aborted transactions with remaining data: the entries of the new transaction
            index. The segment's writer takes and clears them.
    """

    __slots__ = ("_aborted", "_committed", "_met", "_waiting", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = [(entry.first_offset, entry) for entry in set(aborted)]
        heapify(self._waiting)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._met: set[int] = set()
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []

    def may_discard(self, header: BatchHeader, buffer: bytes, start: int) -> bool:
        """Return whether the batch can be removed as far as transactions are concerned.

        Raises: RecordsError.
        """
        while self._waiting and self._waiting[0][0] <= header.last_offset:
            _, entry = heappop(self._waiting)
            self._aborted[entry.producer_id] = entry
        if header.is_control:
            return self._may_discard_marker(header, buffer, start)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._met.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def _may_discard_marker(self, header: BatchHeader, buffer: bytes, start: int) -> bool:
        if header.record_count == 0:
            return True
        found = marker_of(buffer, start, header)
        if found is None:
            return False  # Another kind of control record.
        if found[0].committed:
            was_met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not was_met
        entry = self._aborted.pop(header.producer_id, None)
        if entry is None or header.producer_id not in self._met:
            return True
        self._met.discard(header.producer_id)
        self.kept.append(entry)
        return False
