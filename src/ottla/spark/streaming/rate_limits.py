"""How much one batch of a stream reads, at most and at least. Pure.

Source: Spark's KafkaMicroBatchStream.rateLimit and delayBatch; limits by bytes are ours.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.partitions import TopicPartition
from ottla.spark.streaming.advance import Unread
from ottla.spark.tiers.tier_planning import Place
from ottla.tiered.segment_files import SegmentPositions

Ends = dict[TopicPartition, int]


def limited_by_offsets(unread: Sequence[Unread], offsets_max: int) -> Ends:
    """Return where a batch of about so many offsets ends, in each partition.

    Partitions get their share of what is unread, each one offset at least: with more partitions
    than `offsets_max` the batch is larger than that.
    """
    total = sum(len(each) for each in unread)
    return {each.key: each.first + _share(len(each), total, offsets_max) for each in unread}


def _share(part: int, total: int, limit: int) -> int:
    """Return the share of `part` in a limit: 1 at least, where there is anything."""
    return min(part, max(1, limit * part // total)) if part else 0


class Cut(NamedTuple):
    """Where the bytes of a batch end in a partition: so many bytes into one of its places."""

    place: Place
    size_bytes: int

    @property
    def offset(self) -> int:
        """The offset there, where the place's bytes are spread evenly over its offsets."""
        place = self.place
        count = place.end - place.start
        if self.size_bytes >= place.size_bytes:
            return place.end
        return place.start + count * self.size_bytes // place.size_bytes

    def offset_by(self, positions: SegmentPositions) -> int:
        """Return the offset there by the offset index of the place's segment.

        Batches that the index does not name are read with the next one that it does: there is
        progress even where all are larger than the limit.
        """
        place = self.place
        is_inside = place.start > positions.start_offset
        begin = positions.end_position_of(place.start) if is_inside else 0
        return min(max(positions.cut_at(begin + self.size_bytes), place.start), place.end)


def cuts_by_bytes(
    places: Mapping[TopicPartition, Sequence[Place]], bytes_max: int
) -> dict[TopicPartition, Cut]:
    """Return where a batch of about so many bytes ends in each partition that has any.

    Partitions get their share of what is unread by bytes.
    """
    sizes = {key: sum(each.size_bytes for each in some) for key, some in places.items() if some}
    total = sum(sizes.values())
    return {
        key: _cut(places[key], _share(size, total, bytes_max) if total else 0)
        for key, size in sizes.items()
    }


def _cut(places: Sequence[Place], size_bytes: int) -> Cut:
    for each in places:
        if size_bytes <= each.size_bytes:
            return Cut(each, size_bytes)
        size_bytes -= each.size_bytes
    return Cut(places[-1], places[-1].size_bytes)


def ends_of(unread: Iterable[Unread], *limits: Mapping[TopicPartition, int]) -> Ends:
    """Return the smallest of some limits' ends, but one offset further at least, to progress."""
    ends: Ends = {}
    for each in unread:
        end = min([each.end, *(some[each.key] for some in limits if each.key in some)])
        ends[each.key] = max(end, min(each.first + 1, each.end))
    return ends


def is_delayed(
    unread: Iterable[Unread], offsets_min: int, *, waited_ms: int | None, delay_ms_max: int
) -> bool:
    """Tell whether a batch waits for more records.

    `waited_ms`: since the last batch began; None = there was none since the query was started.
    """
    if waited_ms is None or waited_ms >= delay_ms_max:
        return False
    return sum(len(each) for each in unread) < offsets_min
