"""A partition's whole log, drawn, and what two tiers hold of it: for a fake broker and a directory.

The log has plain batches, transactions of two producers, their markers, holes of compaction and
several leader epochs. Remote segments are cut out of it by several leaders, so they overlap; some
have a tail that an unclean election has cut off. What was copied is still local, in part.
"""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st

from ottla.base.ids import Uuid
from ottla.log.indexes.offset_index import ENTRY
from ottla.log.indexes.time_index import ENTRY as TIME_ENTRY
from ottla.log.indexes.transaction_index import AbortedTransaction, encode_entry
from ottla.log.producers.producer_snapshot import encode_snapshot
from ottla.log.producers.producer_state import ProducerEntry
from ottla.records.batch import BatchHeader, iter_headers
from ottla.records.builder import encode_batch, encode_retained
from ottla.records.control import build_marker
from ottla.records.record import read_records
from ottla.tiered.lineage import Lineage, Visible, visible_segments
from ottla.tiered.manifest import Manifest
from ottla.tiered.manifest_codec import encode_manifest
from ottla.tiered.object_names import ObjectKind, manifest_name, object_name
from ottla.tiered.segment_metadata import Epochs, SegmentMetadata, SegmentState
from ottla.wire.messages.describe_remote_log import RemoteLogSegment
from tests.unit.spark.fake_broker import ID, TOPIC, Log

Row = tuple[int, bytes]


class Batch(NamedTuple):
    data: bytes
    header: BatchHeader


@dataclass
class TieredLog:
    """Fields: `rows`: offset and value of all records; `aborted_rows`: offsets of those aborted.

    `segments`: all that are COPY_FINISHED. `first_open`: where the first open transaction begins.
    """

    batches: list[Batch] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    rows: list[Row] = field(default_factory=list)
    aborted_rows: set[int] = field(default_factory=set)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)
    end: int = 0
    start: int = 0
    segments: list[SegmentMetadata] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    is_compacted: bool = False

    @property
    def first_open(self) -> int | None:
        return min(self.open.values(), default=None)

    @property
    def stable_end(self) -> int:
        return self.end if self.first_open is None else self.first_open

    def expected(self, start: int, end: int, *, committed: bool = False) -> list[Row]:
        """Return what a reader of [start, end) finds."""
        if committed:
            end = min(end, self.stable_end)
        return [
            row
            for row in self.rows
            if max(start, self.start) <= row[0] < end
            and not (committed and row[0] in self.aborted_rows)
        ]

    def lineage(self) -> Lineage:
        return Lineage(self.epochs, self.end)

    def visible(self) -> list[Visible]:
        return visible_segments(self.segments, self.lineage())

    # -- growth --------------------------------------------------------------------------------

    def append(self, count: int, producer_id: int = -1, dropped: int = -1) -> None:
        """Append a batch; compaction has dropped the record number `dropped`."""
        base = self.end
        values = [b"%d" % (base + number) for number in range(count)]
        data = encode_batch(
            [(None, value, (), base + number) for number, value in enumerate(values)],
            base_offset=base,
            leader_epoch=self.epochs[-1][0],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
        )
        kept = list(enumerate(values))
        if 0 <= dropped < count:
            [(_, header)] = iter_headers(data)
            records = read_records(data, 0, header)
            data = encode_retained(header, [*records[:dropped], *records[dropped + 1 :]])
            del kept[dropped]
            self.is_compacted = True
        if producer_id >= 0:
            self.open.setdefault(producer_id, base)
        self.rows += [(base + number, value) for number, value in kept]
        self._add(data)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Append a marker."""
        first = self.open.pop(producer_id, None)
        marker = self.end
        if first is not None and not committed:
            mine = range(first, marker)
            for each in self.batches:
                header = each.header
                is_its = header.producer_id == producer_id and header.base_offset in mine
                if is_its and not header.is_control:
                    self.aborted_rows |= set(range(header.base_offset, header.next_offset))
            stable = min(self.open.values(), default=marker + 1)
            self.aborted.append(AbortedTransaction(producer_id, first, marker, stable))
        self._add(
            build_marker(
                committed=committed,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=marker,
                base_offset=marker,
                leader_epoch=self.epochs[-1][0],
            )
        )

    def skip(self, count: int) -> None:
        """Leave offsets without a batch, as compaction does; never at the end of a log."""
        self.end += count
        self.is_compacted = True
        self.append(1)

    def elect(self) -> None:
        """Begin a leader epoch."""
        epoch, start = self.epochs[-1]
        if start < self.end:
            self.epochs.append((epoch + 1, self.end))

    def _add(self, data: bytes) -> None:
        [(_, header)] = iter_headers(data)
        self.batches.append(Batch(data, header))
        self.end = header.next_offset

    # -- remote segments -----------------------------------------------------------------------

    def copy(self, first: int, last: int, *, diverged: int = 0, indexed: int = 1) -> None:
        """Copy the batches [first, last) as one segment, which begins where the one before ends.

        `diverged`: so many batches follow which the log does not have: their leader lost an
        election. `indexed`: every so manieth batch is in the offset index.
        """
        some = [each.data for each in self.batches[first:last]]
        start = self.batches[first - 1].header.next_offset if first else 0
        end = self.batches[last].header.base_offset if last < len(self.batches) else self.end
        epoch = self.batches[last - 1].header.partition_leader_epoch
        aborted = [each for each in self.aborted if start <= each.last_offset < end]
        is_open = {each.producer_id: each.transaction_start for each in self.open_at(end)}
        for _ in range(diverged):
            lost = [(None, b"lost", (), 0)] * 2
            some.append(encode_batch(lost, base_offset=end, leader_epoch=epoch))
            end += 2
        if diverged:
            # That history aborted what the log's may have committed.
            aborted += (
                AbortedTransaction(producer, begun, end - 1, end)
                for producer, begun in is_open.items()
            )
        number = len(self.segments)
        segment = SegmentMetadata(
            topic=TOPIC,
            topic_id=ID,
            partition=0,
            segment_id=Uuid(number.to_bytes(16, "big")),
            start_offset=start,
            end_offset=end - 1,
            max_timestamp_ms=max(each.header.max_timestamp for each in self.batches[first:last]),
            broker_id=1,
            event_timestamp_ms=1,
            size_bytes=sum(map(len, some)),
            epochs=self._epochs_of(start, end, epoch),
            state=SegmentState.COPY_FINISHED,
            leader_epoch=epoch,
            tiered_epoch=1,
            txn_index_empty=not aborted,
        )
        self.segments.append(segment)
        contents = {
            ObjectKind.LOG: b"".join(some),
            ObjectKind.OFFSET_INDEX: _offset_index(some, start, indexed),
            ObjectKind.TIME_INDEX: _time_index(some, start, indexed),
            ObjectKind.TXN_INDEX: b"".join(map(encode_entry, aborted)),
            ObjectKind.PRODUCER_SNAPSHOT: encode_snapshot(self.open_at(end)),
        }
        for kind, content in contents.items():
            if aborted or kind is not ObjectKind.TXN_INDEX:
                self.objects[object_name(segment, kind)] = content

    def _epochs_of(self, start: int, end: int, last_epoch: int) -> Epochs:
        entries = [each for each in self.epochs if each[1] < end and each[0] <= last_epoch]
        before = [epoch for epoch, first in entries if first <= start]
        return ((before[-1], start), *(each for each in entries if each[1] > start))

    def open_at(self, offset: int) -> list[ProducerEntry]:
        """Return the producers whose transactions are open at an offset."""
        found: dict[int, int] = {}
        for each in self.batches:
            header = each.header
            if header.base_offset >= offset:
                break
            if header.is_control:
                found.pop(header.producer_id, None)
            elif header.is_transactional:
                found.setdefault(header.producer_id, header.base_offset)
        return [
            ProducerEntry(producer_id=each, epoch=0, transaction_start=first)
            for each, first in found.items()
        ]

    def expire(self, start: int) -> None:
        """Move the log start, and delete the segments below it with their objects."""
        self.start = start
        for each in list(self.segments):
            if each.end_offset < start:
                self.segments.remove(each)
                for kind in ObjectKind:
                    self.objects.pop(object_name(each, kind), None)

    # -- for readers ---------------------------------------------------------------------------

    def write(self, root: Path, sequence: int = 0) -> None:
        """Write the objects, and a manifest of all segments; remove other objects."""
        manifest = Manifest(
            topic=TOPIC,
            topic_id=ID,
            partition=0,
            sequence=sequence,
            leader_epoch=self.epochs[-1][0],
            tiered_epoch=1,
            floor=0,
            log_start_offset=self.start,
            epochs=tuple(self.epochs),
            is_base=True,
            added=tuple(self.segments),
            partition_count=1,
        )
        name = manifest_name(TOPIC, ID, 0, sequence)
        contents = self.objects | {name: encode_manifest(manifest)}
        for path in root.glob("*/*/*"):
            if path.is_file() and str(path.relative_to(root)) not in contents:
                path.unlink()
        for name, content in contents.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def served(self) -> Log:
        """Return it as a broker serves it."""
        return Log(
            data=bytearray(b"".join(each.data for each in self.batches)),
            start=self.start,
            end=self.end,
            aborted=self.aborted,
            first_open=self.first_open,
            remote=tuple(
                RemoteLogSegment(
                    segment_id=each.segment.segment_id,
                    start_offset=each.segment.start_offset,
                    end_offset=each.end_offset,
                    leader_epoch=each.segment.leader_epoch,
                    tiered_epoch=each.segment.tiered_epoch,
                    max_timestamp_ms=each.segment.max_timestamp_ms,
                    size_bytes=each.segment.size_bytes,
                    txn_index_empty=each.segment.txn_index_empty,
                )
                for each in self.visible()
            ),
            local_start=self.start,
        )


def half_copied(count: int) -> TieredLog:
    """Return a log of so many batches with five records each; the first four are copied."""
    log = TieredLog()
    for _ in range(count):
        log.append(5)
    for first in (0, 2):
        log.copy(first, first + 2)
    return log


def _offset_index(batches: list[bytes], start: int, every: int) -> bytes:
    entries, position = [], 0
    for number, data in enumerate(batches):
        [(_, header)] = iter_headers(data)
        if number % every == every - 1 and header.last_offset > start:
            entries.append(ENTRY.pack(header.last_offset - start, position))
        position += len(data)
    return b"".join(entries)


def _time_index(batches: list[bytes], start: int, every: int) -> bytes:
    entries, latest = [], -1
    for number, data in enumerate(batches):
        [(_, header)] = iter_headers(data)
        if header.max_timestamp > latest and number % every == every - 1:
            entries.append(TIME_ENTRY.pack(header.max_timestamp, header.last_offset - start))
        latest = max(latest, header.max_timestamp)
    return b"".join(entries)


PRODUCERS = (11, 12)


def tiered_logs(*, compacted: bool = True) -> st.SearchStrategy[TieredLog]:
    """Draw a log with its remote segments by a seed: drawn piece by piece they stay small."""
    return st.integers(0, 2**32).map(lambda seed: drawn_log(Random(seed), compacted=compacted))


def drawn_log(dice: Random, *, compacted: bool) -> TieredLog:
    """Return a log with its remote segments."""
    log = TieredLog()
    kinds = ["append", "write", "write", "abort", "abort", "commit", "elect"]
    kinds += ["skip", "thin"] if compacted else []
    for kind in dice.choices(kinds, k=dice.randint(1, 30)):
        count = dice.randint(1, 3)
        producer = dice.choice(PRODUCERS)
        if kind == "append":
            log.append(count)
        elif kind == "write":
            log.append(count, producer)
        elif kind in ("abort", "commit"):
            log.end_transaction(producer, committed=kind == "commit")
        elif kind == "elect":
            log.elect()
        elif kind == "skip":
            log.skip(count)
        else:
            log.append(count + 1, dropped=dice.randint(0, count))
    if dice.random() < 0.7:
        for producer in PRODUCERS:
            if producer in log.open:
                log.end_transaction(producer, committed=dice.random() < 0.5)
    if not log.batches or log.end == log.batches[-1].header.base_offset:
        log.append(2)
    _copy_segments(dice, log)
    starts = [0, *(each.end_offset + 1 for each in log.segments[:3]), dice.randint(0, log.end)]
    if dice.random() < 0.5:
        log.expire(dice.choice(starts))
    return log


def _copy_segments(dice: Random, log: TieredLog) -> None:
    # What is copied is closed, and was decided when it was copied.
    closed = sum(each.header.next_offset <= log.stable_end for each in log.batches)
    copied = dice.randint(closed // 2, closed)
    first = 0
    while first < copied:
        last = min(copied, first + dice.randint(1, 6))
        if dice.random() < 0.9:  # Else nobody copied it, or the copy was lost: a hole.
            log.copy(first, last, indexed=dice.randint(1, 3))
        first = last
    elections = [start for _, start in log.epochs[1:]]
    for _ in range(dice.randint(0, 2) if copied else 0):
        first = dice.randint(0, copied - 1)
        last = min(copied, first + dice.randint(1, 8))
        for number in range(first + 1, last + 1):
            # A leader that went on after the others had elected another one.
            if number < len(log.batches) and log.batches[number].header.base_offset in elections:
                log.copy(first, number, diverged=dice.randint(0, 2))
                break
        else:
            log.copy(first, last)
