"""Which offsets a batch query reads, and how they are cut into tasks. Pure.

Every range is half-open; the splits of a range are disjoint and their union is the range, so each
offset is read by exactly one task. Source for limits and cutting: Spark's KafkaOffsetReaderAdmin
and KafkaOffsetRangeCalculator; cutting by bytes is ours.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from ottla.base.ids import Uuid
from ottla.client.offsets import EARLIEST, LATEST
from ottla.client.partitions import TopicPartition
from ottla.spark.errors import OptionError
from ottla.spark.options import ByPartition, Edge, Limit, Offsets, Since, SinceEach

SPLIT_BYTES: Final = 128 * 1024 * 1024
"""An empty task costs about 80 ms of CPU: much smaller splits would be mostly overhead."""

Found = Mapping[TopicPartition, int | None]
"""Results of a search by timestamp: the offset, or None where no record is that new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """A partition's state at planning.

    Fields: `latest`: the offset after the last readable record: high watermark, or last stable
            offset where only committed records are read.
            `size_bytes`: of the whole log; None = not known.
            `contiguous`: the topic is not compacted, so a missing offset is lost.
    """

    topic: str
    topic_id: Uuid
    partition: int
    earliest: int
    latest: int
    size_bytes: int | None = None
    contiguous: bool = False

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


def facts_between(
    ids: Mapping[TopicPartition, Uuid], edges: Mapping[TopicPartition, tuple[int, int]]
) -> list[PartitionFacts]:
    """Return the state of partitions with these earliest and latest offsets."""
    return [
        PartitionFacts(
            topic=key[0], topic_id=ids[key], partition=key[1], earliest=earliest, latest=latest
        )
        for key, (earliest, latest) in edges.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Offsets [start, end) of one partition.

    `is_open`: includes what is readable beyond `end` when the task runs.
    """

    facts: PartitionFacts
    start: int
    end: int
    is_open: bool = False

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def size_bytes(self) -> int:
        """About how many bytes of log it covers; 0 = not known."""
        span = self.facts.latest - self.facts.earliest
        if self.facts.size_bytes is None or span <= 0:
            return 0
        return self.facts.size_bytes * len(self) // span


def timestamps_of(limit: Limit, keys: Iterable[TopicPartition]) -> ByPartition:
    """Return the timestamp to search for in each partition; empty for other limits."""
    if isinstance(limit, Since):
        return dict.fromkeys(keys, limit.timestamp_ms)
    if isinstance(limit, SinceEach):
        return limit.by_partition
    return {}


def check_named(limit: Limit, keys: Sequence[TopicPartition], option: str) -> None:
    """Raise OptionError unless a limit for each partition names exactly those that are read."""
    if not isinstance(limit, Offsets | SinceEach):
        return
    known = set(keys)
    missing = sorted(known - set(limit.by_partition))
    extra = sorted(set(limit.by_partition) - known)
    if missing:
        raise OptionError(
            f"option {option} does not name {_listed(missing)}: expected every partition; "
            "-2 means earliest, -1 latest"
        )
    if extra:
        raise OptionError(f"option {option} names {_listed(extra)}: not among what is read")


def resolve(
    facts: Sequence[PartitionFacts],
    *,
    starting: Limit,
    starting_found: Found,
    latest_where_none_since: bool,
    ending: Limit,
    ending_found: Found,
) -> tuple[list[Range], list[str]]:
    """Return the readable ranges, and a message for each range that is lost.

    A range that ends at latest is open, and is returned even if it is empty now.

    Raises: OptionError where no record is as new as a start requires, unless that means latest, and
            where a start is beyond its end.
    """
    ranges: list[Range] = []
    losses: list[str] = []
    for each in sorted(facts, key=lambda facts: facts.key):
        start = start_of(each, starting, starting_found, latest_where_none_since, losses)
        end = _end(each, ending, ending_found, losses)
        _check_order(each.key, starting, start, ending, end)
        is_open = _is_latest(each.key, ending)
        if start < end or (is_open and start == end):
            ranges.append(Range(facts=each, start=start, end=end, is_open=is_open))
    return ranges, losses


def _is_latest(key: TopicPartition, ending: Limit) -> bool:
    return ending is Edge.LATEST or (
        isinstance(ending, Offsets) and ending.by_partition[key] == LATEST
    )


def _check_order(key: TopicPartition, starting: Limit, start: int, ending: Limit, end: int) -> None:
    """Raise OptionError for a start beyond the end, by the requested offsets: lost ones count."""
    if isinstance(starting, Offsets) and starting.by_partition[key] >= 0:
        start = starting.by_partition[key]
    if isinstance(ending, Offsets) and ending.by_partition[key] >= 0:
        end = ending.by_partition[key]
    elif not isinstance(ending, Since | SinceEach):
        return
    if isinstance(starting, Edge) or start <= end:
        return
    raise OptionError(
        f"{key[0]}-{key[1]}: the query starts at offset {start}, beyond its end at {end}: "
        "expected a start at or before the end"
    )


def start_of(
    facts: PartitionFacts,
    limit: Limit,
    found: Found,
    latest_where_none_since: bool,
    losses: list[str],
) -> int:
    """Return where reading starts in a partition; add a message to `losses` for what is lost.

    Raises: OptionError where no record is as new as the limit requires, unless that means latest.
    """
    if isinstance(limit, Since | SinceEach):
        offset = found[facts.key]
        if offset is None and not latest_where_none_since:
            raise OptionError(
                f"no record of {facts.topic}-{facts.partition} is as new as the start requires; "
                "startingOffsetsByTimestampStrategy=latest starts at the end there"
            )
        # Records may have come since the end was looked up.
        return facts.latest if offset is None else max(facts.earliest, min(offset, facts.latest))
    if isinstance(limit, Offsets):
        offset = limit.by_partition[facts.key]
        if offset in (EARLIEST, LATEST):
            return facts.earliest if offset == EARLIEST else facts.latest
        if offset < facts.earliest:
            losses.append(
                f"{facts.topic}-{facts.partition}: offsets {offset} to {facts.earliest - 1} are "
                "no longer available"
            )
            return facts.earliest
        if offset > facts.latest:
            losses.append(
                f"{facts.topic}-{facts.partition}: the query starts at {offset}, the log ends at "
                f"{facts.latest}"
            )
        return offset
    return facts.earliest if limit is Edge.EARLIEST else facts.latest


def _end(facts: PartitionFacts, limit: Limit, found: Found, losses: list[str]) -> int:
    if isinstance(limit, Since | SinceEach):
        offset = found[facts.key]
        return facts.latest if offset is None else min(facts.latest, offset)
    if isinstance(limit, Offsets):
        offset = limit.by_partition[facts.key]
        if offset == LATEST:
            return facts.latest
        if offset > facts.latest:
            losses.append(
                f"{facts.topic}-{facts.partition}: the query ends at {offset}, the log at "
                f"{facts.latest}"
            )
        return min(offset, facts.latest)
    return facts.latest if limit is Edge.LATEST else facts.earliest


def cut(
    ranges: Sequence[Range],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
    split_bytes: int = SPLIT_BYTES,
) -> list[Range]:
    """Cut ranges into about equal pieces for tasks, in order.

    `min_partitions`: a hint: large ranges get more pieces; never more pieces than offsets.
    `max_records`:    offsets in a piece, at most.
    `split_bytes`:    bytes in a piece, about; ranges of unknown size are not cut by it.

    The last piece of an open range is open.
    """
    pieces: list[Range] = []
    for each, share in zip(ranges, shares(ranges, min_partitions), strict=True):
        pieces += cut_range(each, share, max_records=max_records, split_bytes=split_bytes)
    return pieces


def shares(ranges: Sequence[Range], min_partitions: int | None) -> list[int]:
    """Return how many pieces each range has at least, by its share of all offsets."""
    total = sum(len(each) for each in ranges)
    if min_partitions is None or len(ranges) >= min_partitions or not total:
        return [1] * len(ranges)
    return [max(1, -(-len(each) * min_partitions // total)) for each in ranges]


def cut_range(
    whole: Range, share: int, *, max_records: int | None = None, split_bytes: int = SPLIT_BYTES
) -> list[Range]:
    """Cut one range into at least `share` pieces. See `cut`."""
    size = len(whole)
    if not size:
        return [whole]
    wanted = max(share, -(-whole.size_bytes // split_bytes))
    if max_records is not None:
        wanted = max(wanted, -(-size // max_records))
    wanted = min(wanted, size)
    bounds = [whole.start + size * number // wanted for number in range(wanted + 1)]
    return [
        replace(whole, start=start, end=end, is_open=whole.is_open and end == whole.end)
        for start, end in pairwise(bounds)
    ]


def _listed(partitions: Sequence[TopicPartition]) -> str:
    shown = [f"{topic}-{partition}" for topic, partition in partitions[:5]]
    more = len(partitions) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
