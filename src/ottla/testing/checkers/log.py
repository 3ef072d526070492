"""Checkers for the log of every replica, batch by batch, as its files are at the end.

- log is damaged: batches or segments do not follow each other, or cannot be read.
- logs differ: two replicas of a partition hold different committed records.
- index wrong: an index, the leader epochs or the producer state do not match the batches.

In a compacted log offsets may be missing, and one replica may lack records that another still has.
Below its log start a replica may have gaps. Indexes, leader epochs and producers are checked by
`checkers_log_files`.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

from ottla.testing.checkers.promises import Promises
from ottla.testing.checkers.records import Witness, name_of
from ottla.testing.history.history import History
from ottla.testing.history.log import BatchSeen, RecordSeen, ReplicaLog, SegmentSeen
from ottla.testing.history.topics import TopicPartition


def log_name(log: ReplicaLog) -> str:
    """Return the name of a replica's log in witness texts."""
    return f"{name_of(log.partition)} on node {log.node}"


# -- log is damaged ----------------------------------------------------------------------------


def damaged_logs(history: History) -> list[Witness]:
    """Return what is wrong with each log by itself."""
    return [
        Witness(f"{log_name(log)} [{log.start}, {log.end}): {text}", log.at_ms)
        for log in history.replica_logs
        for text in _damages(log)
    ]


def _damages(log: ReplicaLog) -> Iterator[str]:
    for name in log.strange:
        yield f"file {name} is of none of its segments"
    bases = [segment.base_offset for segment in log.segments]
    if bases and log.start < bases[0]:
        yield f"its first segment begins at {bases[0]}"
    if not log.start <= log.high_watermark <= log.end:
        yield f"its high watermark is {log.high_watermark}"
    for index, segment in enumerate(log.segments):
        next_base = bases[index + 1] if index + 1 < len(bases) else log.end
        yield from _segment_damages(segment, next_base)
    yield from _order_damages(log)


def _segment_damages(segment: SegmentSeen, next_base: int) -> Iterator[str]:
    base = segment.base_offset
    if segment.damage is not None:
        yield f"segment {base}: {segment.damage}"
    if segment.file_size != segment.size:
        yield f"segment {base} has {segment.file_size} bytes, in memory {segment.size}"
    if not segment.batches:
        return
    first, last = segment.batches[0].base_offset, segment.batches[-1].last_offset
    # A replica whose log start lies within a batch has the whole batch.
    if first < base:
        yield f"segment {base} begins with offset {first}"
    if last >= next_base:
        yield f"segment {base} holds offset {last}, the next one begins at {next_base}"


def _order_damages(log: ReplicaLog) -> Iterator[str]:
    before: BatchSeen | None = None
    due = log.start
    """The offset that must come next, or has been there."""
    for batch in log.batches():
        if batch.last_offset < batch.base_offset or batch.record_count > _span(batch):
            place = f"[{batch.base_offset}, {batch.last_offset}]"
            yield f"a batch {place} has {batch.record_count} records"
        if before is not None:
            if batch.base_offset <= before.last_offset:
                yield f"offset {batch.base_offset} follows offset {before.last_offset}"
            if batch.epoch < before.epoch:
                yield (
                    f"offset {batch.base_offset} of epoch {batch.epoch} follows offset "
                    f"{before.last_offset} of epoch {before.epoch}"
                )
        if not log.compacted:
            if batch.base_offset > due:
                yield f"offsets {due} to {batch.base_offset} are missing"
            if batch.record_count != _span(batch):
                yield f"the batch at {batch.base_offset} has {batch.record_count} of {_span(batch)}"
        before = batch
        due = max(due, batch.last_offset + 1)
    if due > log.end or (due < log.end and not log.compacted):
        yield f"its batches end at {due}"


def _span(batch: BatchSeen) -> int:
    return batch.last_offset - batch.base_offset + 1


# -- logs differ -------------------------------------------------------------------------------


def logs_that_differ(history: History) -> list[Witness]:
    """Return where two replicas of a partition hold different committed records.

    Only the first difference of each pair is reported.
    """
    promises = Promises(history)
    replicas: defaultdict[TopicPartition, list[ReplicaLog]] = defaultdict(list)
    for log in history.replica_logs:
        replicas[log.partition].append(log)
    found = []
    for logs in replicas.values():
        compacted = any(log.compacted for log in logs)
        for one, other in combinations(logs, 2):
            if compacted:
                text = _values_differ(one, other, promises)
            else:
                text = _batches_differ(one, other)
            if text is not None:
                place = f"{name_of(one.partition)} on nodes {one.node} and {other.node}"
                found.append(Witness(f"{place}: {text}", max(one.at_ms, other.at_ms)))
    return found


def _batches_differ(one: ReplicaLog, other: ReplicaLog) -> str | None:
    start, end = _common(one, other)
    ours, theirs = _identities(one, start, end), _identities(other, start, end)
    if ours == theirs:
        return None
    for mine, its in zip(ours, theirs, strict=False):
        if mine != its:
            return f"(first and last offset, epoch, CRC) {mine} and {its}"
    longer = max(ours, theirs, key=len)
    return f"only one has {longer[min(len(ours), len(theirs))]} (offsets, epoch, CRC)"


def _identities(log: ReplicaLog, start: int, end: int) -> list[tuple[int, int, int, int]]:
    return [
        (batch.base_offset, batch.last_offset, batch.epoch, batch.crc)
        for batch in log.batches()
        if batch.last_offset >= start and batch.base_offset < end
    ]


def _common(one: ReplicaLog, other: ReplicaLog) -> tuple[int, int]:
    """Return the offsets that both hold and know to be committed."""
    end = min(one.high_watermark, other.high_watermark)
    return max(one.start, other.start), end


def _values_differ(one: ReplicaLog, other: ReplicaLog, promises: Promises) -> str | None:
    start, end = _common(one, other)
    ours, theirs = _records(one, start, end), _records(other, start, end)
    for offset in sorted(ours.keys() & theirs.keys()):
        if ours[offset] != theirs[offset]:
            return f"offset {offset} is {ours[offset]} and {theirs[offset]} (epoch, record)"
    # No cleaning may remove the newest record of a key, unless it is a tombstone.
    latest: dict[bytes, tuple[int, bytes | None]] = {}
    for offset in sorted(ours.keys() | theirs.keys()):
        record = (ours.get(offset) or theirs[offset])[1]
        if record.key is not None:
            latest[record.key] = offset, record.value
    for key, (offset, value) in latest.items():
        if value is not None and not (offset in ours and offset in theirs):
            if promises.is_deleted(one.partition[0], key, offset, value):
                continue
            holder = one if offset in ours else other
            return f"only node {holder.node} has offset {offset}, the newest of key {key!r}"
    return None


def _records(log: ReplicaLog, start: int, end: int) -> dict[int, tuple[int, RecordSeen]]:
    return {
        record.offset: (batch.epoch, record)
        for batch in log.batches()
        if not batch.is_control
        for record in batch.records
        if start <= record.offset < end
    }
