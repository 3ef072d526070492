"""The batches of aborted transactions, which a read_committed reader skips.

A broker returns the aborted transactions of a range as pairs (producer id, first offset); they end
at the abort markers in the log. Source: KIP-98; Kafka's CompletedFetch.
"""

from collections import deque
from collections.abc import Iterable

from ottla.records.batch import BatchHeader
from ottla.records.compression import Buffer
from ottla.records.control import ControlType, decode_key
from ottla.records.record import read_records


class AbortedTransactions:
    """Decides batch by batch, in offset order, which ones belong to aborted transactions.

    It keeps state from batch to batch, so one object is for one reader of one partition, over any
    number of buffers. Control batches must be passed to it, too.
    """

    __slots__ = ("_aborted_now", "_waiting")

    def __init__(self, transactions: Iterable[tuple[int, int]] = ()) -> None:
        by_offset = sorted(
            (first_offset, producer_id) for producer_id, first_offset in transactions
        )
        self._waiting = deque(by_offset)
        self._aborted_now: set[int] = set()

    def drops(self, buffer: Buffer, position: int, header: BatchHeader) -> bool:
        """Whether the batch holds records of an aborted transaction.

        Raises: CorruptBatch where a control batch of one of the producers cannot be read.
        """
        last_offset = header.last_offset
        while self._waiting and self._waiting[0][0] <= last_offset:
            self._aborted_now.add(self._waiting.popleft()[1])
        if header.producer_id not in self._aborted_now:
            return False
        if header.is_control:
            if _is_abort(buffer, position, header):
                self._aborted_now.discard(header.producer_id)
            return False
        return header.is_transactional


def _is_abort(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    records = read_records(buffer, position, header)
    return bool(records) and decode_key(records[0].key) is ControlType.ABORT
