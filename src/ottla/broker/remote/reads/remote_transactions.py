"""The aborted transactions of a fetched range: in remote segments, then in the local log.

A transaction's abort marker may lie far behind its records: in a later remote segment, or in the
local log. The search goes on until an index tells that everything before the range's end was
decided; the index of the fetched segment alone would show consumers records that were aborted.

Local retention may delete segments, with their indexes, while those of remote segments are read.
What the local log has lost by then is searched in the remote tier, too.

Source: Kafka's RemoteLogManager.collectAbortedTransactions; KIP-98.
"""

from ottla.broker.remote.dialogue import Dialogue
from ottla.broker.remote.reads.remote_segments import RemoteSegments, slices
from ottla.broker.remote.reads.segment_reader import SegmentReader
from ottla.log.indexes.transaction_index import AbortedTransaction, select
from ottla.log.partition_log import PartitionLog
from ottla.tiered.lineage import Lineage

Aborted = tuple[tuple[int, int], ...]
"""(producer id, first offset), in the order of the markers."""


def aborted_transactions(
    reader: SegmentReader, remote: RemoteSegments, log: PartitionLog, start: int, end: int
) -> Dialogue[Aborted]:
    """Return the aborted transactions with records in [start, end), which is below the local log.

    Raises: StoreFailed, RecordsError, OSError.
    """
    found: dict[AbortedTransaction, None] = {}
    lineage = Lineage(log.epochs.entries, log.log_end_offset)
    searched = start
    while searched < (local_start := log.local_log_start_offset):
        for each in slices(remote, lineage, searched, local_start):
            entries = yield from reader.aborted(each.segment)
            own = [entry for entry in entries if searched <= entry.last_offset < each.end_offset]
            some, complete = select(own, start, end)
            found.update(dict.fromkeys(some))
            searched = each.end_offset
            if complete:
                return _pairs(found)
        searched = local_start
    found.update(dict.fromkeys(log.aborted_transactions(searched, end)))
    return _pairs(found)


def _pairs(found: dict[AbortedTransaction, None]) -> Aborted:
    return tuple((entry.producer_id, entry.first_offset) for entry in found)
