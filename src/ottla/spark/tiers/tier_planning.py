"""Which offsets of a tiered partition a task reads from which place. Pure.

    visible segments  [ 1        ][ 2     ][ 3              ]
    offsets           |-- own 1 --|- own 2 -|---- own 3 ----|~~~~ broker ~~~~>
    places            |           |         |               |               (open)
    splits            |     |     |         |     |    |    |               |

Where the remote tier has an offset it is read from there, also if brokers still have it locally:
that spares them. The rest is asked of brokers. Places are cut by bytes: within a segment at
positions of its offset index. Small neighbours are read by one task.

Which segments are visible is decided by `tiered.lineage`, for brokers and here alike.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from ottla.base.ids import Uuid
from ottla.client.partitions import TopicPartition
from ottla.spark.planning import SPLIT_BYTES, PartitionFacts
from ottla.spark.splits import RemotePlace, Split
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.tiered.read_plan import own_ranges
from ottla.tiered.segment_files import AbortedTransaction, SegmentPositions, aborted_in

Pairs = tuple[tuple[int, int], ...]
"""Aborted transactions: (producer id, first offset)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegment:
    """A visible segment, as far as readers need it.

    Fields: `start_offset`, `end_offset`: of its visible records, the end exclusive.
            `own`: the offsets [from, to) to read from it: its neighbours have the others.
            `txn_index_empty`: no transaction of it was aborted. `may_lack_txn_index`: the same,
            or that is not known.
    """

    topic: str
    topic_id: Uuid
    partition: int
    segment_id: Uuid
    start_offset: int
    end_offset: int
    own: tuple[int, int]
    size_bytes: int
    max_timestamp_ms: int
    txn_index_empty: bool = False
    may_lack_txn_index: bool = False

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    def object(self, kind: ObjectKind) -> str:
        """Return the name of one of its objects."""
        return object_name(self, kind)

    def bytes_of(self, offsets: int) -> int:
        """Return about how many bytes so many of its offsets have."""
        return self.size_bytes * offsets // (self.end_offset - self.start_offset)


def with_own_ranges(segments: Sequence[RemoteSegment]) -> tuple[RemoteSegment, ...]:
    """Return visible segments of a partition, by offset, with what to read from each."""
    owned = own_ranges((each.start_offset, each.end_offset - 1) for each in segments)
    return tuple(replace(each, own=own) for each, own in zip(segments, owned, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """A partition's two tiers when a query is planned.

    Fields: `segments`: the visible ones, by offset; `local_start`, `local_end`, `local_bytes`: what
            its leader has on local disk.
    """

    segments: tuple[RemoteSegment, ...] = ()
    local_start: int = 0
    local_end: int = 0
    local_bytes: int = 0

    def local_bytes_of(self, offsets: int) -> int:
        """Return about how many bytes so many local offsets have."""
        span = self.local_end - self.local_start
        return self.local_bytes * offsets // span if span > 0 else 0


class Place(NamedTuple):
    """Offsets [start, end) at one place; `segment` None = ask brokers. `size_bytes`: about."""

    start: int
    end: int
    segment: RemoteSegment | None
    size_bytes: int


class Cutting(NamedTuple):
    """Into how many pieces a place is cut."""

    place: Place
    pieces: int

    @property
    def needs_index(self) -> bool:
        """Tell whether the segment's offset index says where to read."""
        segment = self.place.segment
        if segment is None:
            return False
        begins_inside = self.place.start > segment.start_offset
        ends_inside = self.place.end < segment.end_offset
        return begins_inside or ends_inside or self.pieces > 1


# What is where


def places_of(start: int, end: int, tiers: Tiers) -> list[Place]:
    """Return the places of offsets [start, end), in order: disjoint, and their union is that."""
    places: list[Place] = []
    reached = start
    for segment in tiers.segments:
        own_start, own_end = max(segment.own[0], reached), min(segment.own[1], end)
        if own_start >= own_end:
            continue
        if own_start > reached:
            places.append(_broker_place(reached, own_start, tiers))
        size = segment.bytes_of(own_end - own_start)
        places.append(Place(own_start, own_end, segment, size))
        reached = own_end
    if reached < end:
        places.append(_broker_place(reached, end, tiers))
    return places


def _broker_place(start: int, end: int, tiers: Tiers) -> Place:
    return Place(start, end, None, tiers.local_bytes_of(end - start))


# How it is cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one task of a partition: bytes, about, and records, at most."""

    size_bytes: int
    records: int | None


def limits_of(
    places: Sequence[Place],
    *,
    tasks_min: int,
    max_records: int | None,
    split_bytes: int = SPLIT_BYTES,
) -> Limits:
    """Return the limits by which a partition has at least `tasks_min` tasks, about."""
    total = sum(max(each.size_bytes, 1) for each in places)
    return Limits(
        size_bytes=max(1, min(split_bytes, -(-total // tasks_min))) if places else split_bytes,
        records=max_records,
    )


def cuttings(places: Sequence[Place], limits: Limits) -> list[Cutting]:
    """Return into how many pieces each place is cut."""
    found = []
    for each in places:
        count = each.end - each.start
        pieces = -(-each.size_bytes // limits.size_bytes)
        if limits.records is not None:
            pieces = max(pieces, -(-count // limits.records))
        found.append(Cutting(each, max(1, min(pieces, count))))
    return found


class Piece(NamedTuple):
    """A part of a place, for one task. `position`, `end_position`: see `RemotePlace`."""

    start: int
    end: int
    segment: RemoteSegment | None
    size_bytes: int
    position: int = 0
    end_position: int = 0


def whole_piece(place: Place) -> Piece:
    """Return all of a place, to be read without an index."""
    end_position = 0 if place.segment is None else place.segment.size_bytes
    return Piece(*place, end_position=end_position)


def cut_place(
    cutting: Cutting, positions: SegmentPositions | None, limits: Limits
) -> Iterator[Piece]:
    """Yield the pieces of a place; `positions`: of its segment, None = not known."""
    place = cutting.place
    bounds = [place.start, *_inner_bounds(cutting, positions, limits), place.end]
    for start, end in pairwise(bounds):
        share = place.size_bytes * (end - start) // (place.end - place.start)
        piece = whole_piece(Place(start, end, place.segment, share))
        if positions is not None:
            begin, stop = positions.position_of(start), positions.end_position_of(end)
            piece = piece._replace(size_bytes=stop - begin, position=begin, end_position=stop)
        yield piece


def _inner_bounds(
    cutting: Cutting, positions: SegmentPositions | None, limits: Limits
) -> list[int]:
    place, pieces = cutting
    if pieces == 1:
        return []
    start, end = place.start, place.end
    even = [start + (end - start) * number // pieces for number in range(1, pieces)]
    if positions is None:
        return even
    first, last = positions.position_of(start), positions.end_position_of(end)
    found = {
        positions.cut_at(first + (last - first) * number // pieces) for number in range(1, pieces)
    }
    bounds = sorted(each for each in found if start < each < end)
    is_within = limits.records is None or all(
        behind - before <= limits.records for before, behind in pairwise([start, *bounds, end])
    )
    # An index with few entries, or batches of many records, cannot cut often enough.
    return bounds if len(bounds) == pieces - 1 and is_within else even


def packed(pieces: Iterable[Piece], limits: Limits) -> list[list[Piece]]:
    """Return the pieces of each task: neighbours, as many as the limits allow."""
    tasks: list[list[Piece]] = []
    size = records = 0
    for each in pieces:
        size += each.size_bytes
        records += each.end - each.start
        is_full = size > limits.size_bytes or (
            limits.records is not None and records > limits.records
        )
        if not tasks or is_full:
            tasks.append([])
            size, records = each.size_bytes, each.end - each.start
        tasks[-1].append(each)
    return tasks


# Aborted transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """The aborted transactions of a partition, as far as they concern the offsets that are read.

    Fields: `entries`: those whose markers are in remote segments.
            `open_at`: for offsets that brokers have, the aborted transactions that brokers name
            when they are asked for these offsets: they end there, or behind.
    """

    entries: tuple[AbortedTransaction, ...] = ()
    open_at: tuple[tuple[int, Pairs], ...] = ()

    def within(self, start: int, end: int) -> Pairs:
        """Return those with records in [start, end)."""
        pairs = {
            (each.producer_id, each.first_offset)
            for each in self.entries
            if each.last_offset >= start and each.first_offset < end
        }
        for offset, open_ones in self.open_at:
            if offset >= end:
                pairs |= {each for each in open_ones if each[1] < end}
        return tuple(sorted(pairs, key=lambda each: (each[1], each[0])))


class AbortedSearch:
    """Finds the aborted transactions of [start, end) in the segments of a partition.

    Their markers may be in later segments than their records: the search goes on behind `end`, and
    over its broker places, until everything that began before `end` is known to have ended.
    """

    def __init__(self, start: int, end: int, tiers: Tiers) -> None:
        self._range = (start, end)
        behind = [each for each in tiers.segments if each.own[1] > start]
        self._to_read = [each for each in behind if not each.txn_index_empty]
        self._entries: dict[AbortedTransaction, None] = {}
        self._is_complete = start >= end

    def next_segments(self) -> list[RemoteSegment]:
        """Return the segments whose transaction indexes are to be read; empty = it is over.

        First all that have offsets of the range, then one after the other.
        """
        if self._is_complete or not self._to_read:
            return []
        inside = [each for each in self._to_read if each.own[0] < self._range[1]]
        return inside or self._to_read[:1]

    def found(self, segment: RemoteSegment, entries: Sequence[AbortedTransaction]) -> None:
        """Take the content of a transaction index."""
        self._to_read.remove(segment)
        some, complete = aborted_in(entries, segment.own, *self._range)
        self._entries.update(dict.fromkeys(some))
        # Only behind all that have offsets of the range: these come in any order.
        self._is_complete |= complete and segment.own[1] >= self._range[1]

    @property
    def entries(self) -> tuple[AbortedTransaction, ...]:
        return tuple(self._entries)


def offsets_to_ask(places: Sequence[Place], tiers: Tiers, latest: int) -> list[int]:
    """Return the offsets at which brokers know what the transaction indexes cannot say.

    A transaction of remote records may end where only brokers have the marker: between remote
    segments, or behind the last of them. What is open there is what brokers name there.

    `latest`: the last stable offset. Also behind it there may be markers, of transactions that
    began before it, as long as the log goes on there.
    """
    asked: list[int] = []
    for before, place in pairwise(places):
        if place.segment is None and before.segment is not None:
            asked.append(place.start)
    if places and places[-1].segment is not None:
        reached = places[-1].end
        for segment in tiers.segments:
            if segment.own[0] > reached:
                break
            reached = max(reached, segment.own[1])
        if reached < max(latest, tiers.local_end):
            asked.append(reached)
    return asked


# What tasks get


def split_of(piece: Piece, facts: PartitionFacts, aborted: Aborted) -> Split:
    """Return a piece as a task reads it."""
    return Split(
        facts.topic,
        facts.topic_id,
        facts.partition,
        piece.start,
        piece.end,
        facts.contiguous,
        remote=_remote_place(piece, aborted),
        size_bytes=piece.size_bytes,
    )


def _remote_place(piece: Piece, aborted: Aborted) -> RemotePlace | None:
    segment = piece.segment
    if segment is None:
        return None
    return RemotePlace(
        segment_id=segment.segment_id,
        name=segment.object(ObjectKind.LOG),
        size_bytes=segment.size_bytes,
        position=piece.position,
        end_position=piece.end_position,
        aborted=aborted.within(piece.start, piece.end),
    )
