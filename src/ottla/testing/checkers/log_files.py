"""Checks indexes, leader epochs and producer state: "index wrong" of `checkers_log`.

- An entry of the offset index is the last offset of a batch, and the batch's position.
- An entry of the time index is the timestamp of a batch that ends there; none before it in the
  segment has a larger one. A sealed segment's last entry is its largest.
- The leader epoch cache has each batch's epoch for its offsets; without compaction every epoch but
  one at the log's end begins with a batch. The checkpoint file holds the same epochs, unless it is
  not up to date.
- A segment's transaction index has an entry for each marker of an aborted transaction in it, with
  the transaction's first offset, and with a last stable offset that nothing open precedes.
- A producer's last batches are those of its last epoch in the log.
"""

from bisect import bisect_right
from collections.abc import Iterator

from ottla.log.indexes.transaction_index import AbortedTransaction
from ottla.testing.checkers.log import log_name
from ottla.testing.checkers.records import Witness
from ottla.testing.history.history import History
from ottla.testing.history.log import BatchSeen, ProducerSeen, ReplicaLog, SegmentSeen

BATCHES_KEPT = 5
"""Of each producer: as many as it may have in flight."""


def indexes_wrong(history: History) -> list[Witness]:
    """Return where indexes, epochs and producers of a replica differ from its batches."""
    return [
        Witness(f"{log_name(log)} [{log.start}, {log.end}): {text}", log.at_ms)
        for log in history.replica_logs
        for texts in (_segments(log), _aborted(log), _epochs(log), _producers(log))
        for text in texts
    ]


# -- indexes -----------------------------------------------------------------------------------


def _segments(log: ReplicaLog) -> Iterator[str]:
    for segment in log.segments:
        for text in (*_offset_index(segment), *_time_index(segment)):
            yield f"segment {segment.base_offset}: {text}"


def _offset_index(segment: SegmentSeen) -> Iterator[str]:
    places = {batch.last_offset: batch.position for batch in segment.batches}
    before = (-1, -1)
    for offset, position in segment.offset_index:
        if places.get(offset) != position:
            yield f"the offset index has {offset} at {position}, the file at {places.get(offset)}"
        if offset <= before[0] or position <= before[1]:
            yield f"the offset index has {(offset, position)} behind {before}"
        before = offset, position


def _time_index(segment: SegmentSeen) -> Iterator[str]:
    largest: dict[int, int] = {}
    """By each batch's last offset, the largest timestamp of records up to there."""
    newest = -1
    own = {}
    for batch in segment.batches:
        own[batch.last_offset] = batch.max_timestamp
        if batch.record_count:
            newest = max(newest, batch.max_timestamp)
        largest[batch.last_offset] = newest
    for timestamp, offset in segment.time_index:
        if own.get(offset) != timestamp:
            yield f"the time index has {timestamp} at {offset}, the file {own.get(offset)}"
        elif largest[offset] > timestamp:
            yield f"the time index has {timestamp} at {offset}, behind {largest[offset]}"
    last = segment.time_index[-1][0] if segment.time_index else -1
    if not segment.is_active and segment.damage is None and last < newest:
        yield f"the time index ends with {last}, the largest timestamp is {newest}"
    if segment.largest is not None and segment.largest < newest:
        yield f"its largest timestamp in memory is {segment.largest}, in the file {newest}"


# -- aborted transactions ----------------------------------------------------------------------


def _aborted(log: ReplicaLog) -> Iterator[str]:
    if log.compacted:
        return  # A cleaning leaves markers out, and batches of which nothing is left.
    opened: dict[int, int] = {}
    """The first offset of each producer's open transaction, as far as the log has it."""
    is_whole = not log.segments or log.segments[0].base_offset == 0
    ended: set[int] = set()
    """The producers of which the log has a marker: it has all of what they write next."""
    for segment in log.segments:
        if segment.aborted is None:
            yield f"segment {segment.base_offset}: the transaction index cannot be decoded"
            return
        entries = {each.last_offset: each for each in segment.aborted}
        for batch in segment.batches:
            producer = batch.producer_id
            if not batch.is_control:
                if batch.is_transactional:
                    opened.setdefault(producer, batch.base_offset)
                continue
            first = opened.pop(producer, None)
            if batch.aborts:
                entry = entries.pop(batch.base_offset, None)
                is_known = is_whole or producer in ended
                least = min(opened.values(), default=batch.base_offset + 1)
                for text in _entry(entry, batch, first, is_known, least):
                    yield f"segment {segment.base_offset}: {text}"
            ended.add(producer)
        for entry in entries.values():
            yield f"segment {segment.base_offset}: {entry} is of no marker"


def _entry(
    entry: AbortedTransaction | None,
    marker: BatchSeen,
    first: int | None,
    is_known: bool,
    stable_offset: int,
) -> Iterator[str]:
    """Yield what is wrong with the entry of a marker. `first`: see `opened` above."""
    where = f"producer {marker.producer_id} aborts at {marker.base_offset}"
    if entry is None:
        if first is not None:
            yield f"{where} what it began at {first}, and the transaction index has no entry of it"
    elif entry.producer_id != marker.producer_id:
        yield f"{where}, the transaction index has {entry}"
    elif entry.first_offset != first and (
        is_known or (first is not None and entry.first_offset > first)
    ):
        yield f"{where} what it began at {first}, the transaction index has {entry}"
    elif entry.last_stable_offset > stable_offset:
        yield f"{where}, where {stable_offset} is the last stable offset, not that of {entry}"


# -- leader epochs -----------------------------------------------------------------------------


def _epochs(log: ReplicaLog) -> Iterator[str]:
    if log.epochs_stored is not None and log.epochs_stored != log.epochs:
        yield f"the leader epochs are {log.epochs}, their file has {log.epochs_stored}"
    starts = [start for _, start in log.epochs]
    bases = {log.start, log.end}
    for batch in log.batches():
        if batch.last_offset < log.start:
            continue
        bases.add(batch.base_offset)
        for offset in (max(batch.base_offset, log.start), batch.last_offset):
            slot = bisect_right(starts, offset)
            epoch = log.epochs[slot - 1][0] if slot else -1
            if epoch != batch.epoch:
                yield f"offset {offset} of epoch {batch.epoch} is in epoch {epoch} of the cache"
                break
    if log.compacted:
        return
    for epoch, start in log.epochs:
        if start >= log.start and start not in bases:  # Those below are of remote segments.
            yield f"epoch {epoch} begins at {start} in the cache, where no batch begins"


# -- producers ---------------------------------------------------------------------------------


def _producers(log: ReplicaLog) -> Iterator[str]:
    replayed = _replay(log)
    known = {each.producer_id: each for each in log.producers}
    for producer_id, (epoch, batches) in replayed.items():
        entry = known.get(producer_id)
        if entry is None:
            if not log.forgets and batches[-1][1] >= log.start:
                yield f"producer {producer_id} is forgotten, its last batch {batches[-1]}"
        elif not entry.in_transactions:
            yield from _producer(log, entry, epoch, batches)
    # A cleaning keeps each producer's last batch, possibly without records.
    for producer_id, entry in known.items():
        if producer_id not in replayed and entry.batches and entry.batches[-1][1] >= log.start:
            yield f"producer {producer_id} has batch {entry.batches[-1]}, which is not in the log"


def _producer(
    log: ReplicaLog, entry: ProducerSeen, epoch: int, batches: list[tuple[int, int]]
) -> Iterator[str]:
    state = f"producer {entry.producer_id} (last sequence, last offset): epoch {entry.epoch}"
    if entry.epoch != epoch or not entry.batches or entry.batches[-1] != batches[-1]:
        yield f"{state}, {entry.batches}; its batches are {batches} of epoch {epoch}"
    elif not log.compacted:
        first = batches[0][1]
        if any(each not in batches for each in entry.batches if each[1] >= max(first, log.start)):
            yield f"{state}, {entry.batches}; its batches are {batches}"


def _replay(log: ReplicaLog) -> dict[int, tuple[int, list[tuple[int, int]]]]:
    """Return each producer's last epoch and its last batches in it."""
    found: dict[int, tuple[int, list[tuple[int, int]]]] = {}
    for batch in log.batches():
        if batch.producer_id < 0 or batch.is_control:
            continue
        entry = found.get(batch.producer_id)
        if entry is None or entry[0] != batch.producer_epoch:
            entry = found[batch.producer_id] = batch.producer_epoch, []
        entry[1].append((batch.last_sequence, batch.last_offset))
        del entry[1][:-BATCHES_KEPT]
    return found
