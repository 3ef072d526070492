"""The steps of an append: producer checks, offsets, the write, the state after it.

Functions on a `PartitionLog`; they run on the loop. Batches of one segment are written with one
call. The state in memory changes only after the write, so a failed write leaves it unchanged.

Source: UnifiedLog.append, LocalLog.append.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.log.offset_index import RELATIVE_OFFSET_MAX
from ottla.log.producer_state import Origin
from ottla.log.recovery.scan import marker_of
from ottla.log.results import AppendInfo, UnexpectedOffset
from ottla.log.segment import Segment
from ottla.log.transaction_index import AbortedTransaction
from ottla.log.validation import NewBatch, Writable, api_error
from ottla.records.batch import LOG_OVERHEAD, BatchHeader, check_crc, iter_headers, restamp
from ottla.records.control import Marker
from ottla.records.errors import RecordsError

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog


def append_plain(
    log: "PartitionLog", batch: NewBatch, leader_epoch: int, now_ms: int
) -> AppendInfo:
    """Append one checked batch of a client: the hot path of `append_checked`."""
    data, header, _ = batch
    if header.producer_id >= 0:
        duplicate = _check_producer(log, header, None, "client")
        if duplicate is not None:
            return duplicate
    offset = log.log_end_offset
    restamp(data, 0, base_offset=offset, leader_epoch=leader_epoch)
    last_offset = offset + header.last_offset_delta
    timestamp = header.max_timestamp
    size = header.batch_length + LOG_OVERHEAD
    config = log.config
    segment = log.segments.active
    if not segment.fits(last_offset, timestamp, size, config, now_ms):
        log.roll(now_ms, offset)
        segment = log.segments.active
    try:
        segment.append_one(data, last_offset, timestamp, size, config.index_interval_bytes)
    except OSError:
        _append_failed(log, segment)
        raise
    log.size_bytes += size
    log.log_end_offset = end = last_offset + 1
    if leader_epoch > log.epochs.latest_epoch:
        log.epochs.assign(leader_epoch, offset)
    if header.producer_id >= 0:
        log.producers.appended(header._replace(base_offset=offset), now_ms)
    flush_due = end - log.recovery_point >= config.flush_messages
    return AppendInfo(
        offset,
        last_offset,
        -1,
        log.log_start_offset,
        False,
        header.record_count,
        size,
        flush_due,
    )


def append_checked(
    log: "PartitionLog",
    batches: Sequence[NewBatch],
    leader_epoch: int,
    now_ms: int,
    origin: Origin,
) -> AppendInfo:
    """Append batches that `check_batches` returned."""
    offset = first = log.log_end_offset
    new: list[NewBatch] = []
    count = size = 0
    for batch in batches:
        header = batch.header
        if header.producer_id >= 0:
            duplicate = _check_producer(log, header, batch.marker, origin)
            if duplicate is not None:
                return duplicate
        restamp(batch.data, 0, base_offset=offset, leader_epoch=leader_epoch)
        header = header._replace(base_offset=offset, partition_leader_epoch=leader_epoch)
        new.append(NewBatch(batch.data, header, batch.marker))
        offset = header.next_offset
        count += header.record_count
        size += header.size_in_bytes
    _write(log, new, now_ms)
    return AppendInfo(
        first,
        offset - 1,
        now_ms if log.config.log_append_time else -1,
        log.log_start_offset,
        False,
        count,
        size,
        offset - log.recovery_point >= log.config.flush_messages,
    )


def append_replicated(
    log: "PartitionLog", data: bytes | Writable, now_ms: int, leader_epoch: int
) -> AppendInfo:
    """Append what a leader has sent: see `PartitionLog.append_as_follower`."""
    new: list[NewBatch] = []
    expected = log.log_end_offset
    count = 0
    view = memoryview(data)
    try:
        for start, header in iter_headers(view, allow_partial=True):
            check_crc(view, start, header)
            if header.base_offset < expected:
                raise UnexpectedOffset(
                    f"{log.name}: expected a batch at offset {expected} or above, "
                    f"got {header.base_offset}"
                )
            if header.partition_leader_epoch > leader_epoch:
                break  # Appending it would hide that the logs diverge here (KAFKA-18723).
            expected = header.next_offset
            count += header.record_count
            body = view[start : start + header.size_in_bytes]
            new.append(NewBatch(body, header, _marker_in(body, header)))
    except RecordsError as error:
        raise api_error(error) from None
    size = sum(batch.header.size_in_bytes for batch in new)
    _write(log, new, now_ms)
    return AppendInfo(
        new[0].header.base_offset if new else log.log_end_offset,
        log.log_end_offset - 1,
        -1,
        log.log_start_offset,
        False,
        count,
        size,
        log.log_end_offset - log.recovery_point >= log.config.flush_messages,
    )


def _marker_in(body: memoryview, header: BatchHeader) -> tuple[Marker, int] | None:
    if header.is_control and header.producer_id >= 0:
        return marker_of(body, 0, header)
    return None


def _check_producer(
    log: "PartitionLog", header: BatchHeader, marker: tuple[Marker, int] | None, origin: Origin
) -> AppendInfo | None:
    if marker is not None:
        log.producers.check_marker(header, marker[0])
        return None
    found = log.producers.check(header, origin)
    if found is None:
        return None
    return AppendInfo(
        found.first_offset,
        found.last_offset,
        found.timestamp if log.config.log_append_time else -1,
        log.log_start_offset,
        True,
        header.record_count,
        header.size_in_bytes,
        log.log_end_offset - log.recovery_point >= log.config.flush_messages,
    )


def _write(log: "PartitionLog", batches: Sequence[NewBatch], now_ms: int) -> None:
    """Append batches, rolling where needed, with one write for each segment."""
    start = 0
    while start < len(batches):
        segment = _segment_for(log, batches[start].header, now_ms)
        end = start + 1
        size = batches[start].header.size_in_bytes
        while end < len(batches):
            header = batches[end].header
            more = header.size_in_bytes
            if not segment.fits(
                header.last_offset, header.max_timestamp, more, log.config, now_ms, size
            ):
                break
            size += more
            end += 1
        _write_run(log, segment, batches[start:end], now_ms)
        start = end


def _write_run(log: "PartitionLog", segment: Segment, run: Sequence[NewBatch], now_ms: int) -> None:
    before = segment.size
    headers = [batch.header for batch in run]
    try:
        segment.append([batch.data for batch in run], headers, log.config.index_interval_bytes)
    except OSError:
        _append_failed(log, segment)
        raise
    log.size_bytes += segment.size - before
    for batch in run:
        header = batch.header
        if header.partition_leader_epoch > log.epochs.latest_epoch:
            # At the log's end, not the batch's base offset: compaction may have removed earlier
            # batches of the epoch on the leader, and a lagging replica may have others there.
            log.epochs.assign(header.partition_leader_epoch, log.log_end_offset)
        log.log_end_offset = header.next_offset
        if header.producer_id >= 0:
            _note_producer(log, segment, batch, now_ms)


def _append_failed(log: "PartitionLog", segment: Segment) -> None:
    try:
        segment.truncate_torn_append()
    except OSError:
        log.failed = True


def _note_producer(log: "PartitionLog", segment: Segment, batch: NewBatch, now_ms: int) -> None:
    if not batch.header.is_control:
        log.producers.appended(batch.header, now_ms)
    elif batch.marker is not None:
        done = log.producers.marker_appended(batch.header, *batch.marker, now_ms)
        if done is not None and done.aborted:
            stable = log.producers.stable_after(done)
            segment.add_aborted(AbortedTransaction(*done[:3], stable))


def _segment_for(log: "PartitionLog", header: BatchHeader, now_ms: int) -> Segment:
    size = header.size_in_bytes
    if not log.segments.active.fits(
        header.last_offset, header.max_timestamp, size, log.config, now_ms
    ):
        # At the log's end, also before a gap in the offsets: recovery takes a gap between segments
        # for lost records.
        is_near = header.last_offset - log.log_end_offset <= RELATIVE_OFFSET_MAX
        log.roll(now_ms, log.log_end_offset if is_near else header.base_offset)
    return log.segments.active
