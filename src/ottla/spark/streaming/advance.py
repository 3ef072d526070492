"""How a stream's position advances: what is unread, what was lost, what one batch reads. Pure.

A batch reads the ranges between two positions and depends on nothing else, so that it is the same
when Spark repeats it. Source for the rules: Spark's KafkaMicroBatchStream, KafkaSourceOffset; the
connector judges a re-created topic by its offsets alone, here the topic id tells.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from ottla.base.ids import NO_UUID, Uuid
from ottla.client.partitions import TopicPartition
from ottla.spark.options import Limit
from ottla.spark.planning import Found, PartitionFacts, Range, start_of
from ottla.spark.streaming.offsets import StreamOffset, TopicPosition, is_same_id

Until = Mapping[TopicPartition, tuple[Uuid, int]]
"""For each partition its topic id, and the offset behind the last one that a query may read."""


class OnRecreate(Enum):
    """What a stream does when a topic was deleted, and created again or not."""

    FAIL = "fail"
    RESTART = "restart"
    """Read the new topic from its beginning; wait for one that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Offsets [begin, end) of a partition that no batch has read yet.

    Fields: `first`: the first of them that still exists; `begin` where none is lost.
            `begins_anew`: there is no batch before, so this one names where it begins.
    """

    facts: PartitionFacts
    begin: int
    first: int
    end: int
    begins_anew: bool = False

    @property
    def key(self) -> TopicPartition:
        return self.facts.key

    def __len__(self) -> int:
        return self.end - self.first


@dataclass(slots=True)
class Survey:
    """What there is to read.

    Fields: `losses`: a message for what is lost (`failOnDataLoss`).
            `replaced`: a message for each topic that was deleted or re-created (`onRecreate`).
    """

    unread: list[Unread] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)


def survey(
    start: StreamOffset,
    seen: Sequence[PartitionFacts],
    *,
    is_subscribed: Callable[[TopicPartition], bool],
    until: Until | None = None,
) -> Survey:
    """Compare a position with the partitions that exist now.

    `is_subscribed`: whether the query's options include a partition; positions of others are kept.
    `until`: the query reads nothing behind, and no other partitions; None = everything.
    """
    found = Survey()
    there = {each.key for each in seen}
    missing = [key for key, _ in start if key not in there and is_subscribed(key)]
    found.replaced += (
        f"{topic}-{partition}: the topic or partition does not exist any more; the stream is at "
        f"offset {start.topics[topic].next_offsets[partition]}"
        for topic, partition in missing
    )
    for each in sorted(seen, key=lambda facts: facts.key):
        position = start.topics.get(each.topic)
        if position is None or not is_same_id(position.topic_id, each.topic_id):
            if position is not None:
                _note_recreated(found, position, each)
            _add_new(found, each, until)
        elif each.partition not in position.next_offsets:
            if each.earliest > 0:
                found.losses.append(
                    f"{each.topic}-{each.partition}: offsets 0 to {each.earliest - 1} of the new "
                    "partition are no longer available"
                )
            _add_new(found, each, until)
        else:
            _add(found, each, position, until)
    return found


def _note_recreated(found: Survey, position: TopicPosition, facts: PartitionFacts) -> None:
    message = (
        f"{facts.topic}: the topic was deleted and re-created; what the stream had not read of the "
        "former one is lost"
    )
    if message not in found.replaced:
        found.replaced.append(message)


def _add_new(found: Survey, facts: PartitionFacts, until: Until | None) -> None:
    """Add a partition that is not in the position: it is read from its beginning."""
    end = facts.latest
    if until is not None:
        allowed = until.get(facts.key)
        if allowed is None or not is_same_id(allowed[0], facts.topic_id):
            return
        end = min(end, allowed[1])
    first = min(facts.earliest, facts.latest)
    found.unread.append(
        Unread(facts=facts, begin=first, first=first, end=max(end, first), begins_anew=True)
    )


def _add(
    found: Survey, facts: PartitionFacts, position: TopicPosition, until: Until | None
) -> None:
    begin = position.next_offsets[facts.partition]
    begins_anew = position.begins_anew(facts.partition)
    subject = f"{facts.topic}-{facts.partition}"
    if begin > facts.latest:
        found.losses.append(
            f"{subject}: the stream is at offset {begin}, the log ends at {facts.latest}"
        )
        begin, begins_anew = facts.latest, True
    first = begin
    if begin < facts.earliest:
        found.losses.append(
            f"{subject}: offsets {begin} to {facts.earliest - 1} are no longer available"
        )
        first = min(facts.earliest, facts.latest)
    end = facts.latest
    if until is not None:
        end = min(end, until.get(facts.key, (facts.topic_id, begin))[1])
    found.unread.append(
        Unread(facts=facts, begin=begin, first=first, end=max(end, first), begins_anew=begins_anew)
    )


# The next position


def beginning(
    facts: Sequence[PartitionFacts],
    starting: Limit,
    found: Found,
    *,
    latest_where_none_since: bool,
) -> tuple[StreamOffset, list[str]]:
    """Return where a new query begins, and a message for each range that is lost.

    `found`: offsets by timestamp. Raises: OptionError, as `planning.start_of`.
    """
    topics: dict[str, TopicPosition] = {}
    losses: list[str] = []
    for each in sorted(facts, key=lambda facts: facts.key):
        offset = start_of(each, starting, found, latest_where_none_since, losses)
        offset = min(offset, each.latest)
        position = topics.get(each.topic, TopicPosition(each.topic_id, {}))
        topics[each.topic] = TopicPosition(
            each.topic_id,
            {**position.next_offsets, each.partition: offset},
            {**position.begins, each.partition: offset},
        )
    return StreamOffset(topics), losses


def advanced(
    start: StreamOffset, unread: Iterable[Unread], ends: Mapping[TopicPartition, int]
) -> StreamOffset:
    """Return the position behind what a batch reads: up to `ends`, else all that is unread."""
    # Where batches that are over began must not be repeated.
    topics = {name: replace(each, begins=_anew(each)) for name, each in start.topics.items()}
    for each in unread:
        facts = each.facts
        position = topics.get(facts.topic)
        if position is None or not is_same_id(position.topic_id, facts.topic_id):
            position = TopicPosition(facts.topic_id, {})
        topic_id = position.topic_id if facts.topic_id == NO_UUID else facts.topic_id
        begins = dict(position.begins)
        begins.pop(facts.partition, None)
        if each.begins_anew:
            begins[facts.partition] = each.begin
        next_offsets = {**position.next_offsets, facts.partition: ends.get(each.key, each.end)}
        topics[facts.topic] = TopicPosition(topic_id, next_offsets, begins)
    new = StreamOffset(topics)
    # The same text for the same position: else Spark would run a batch without records.
    return start if _places(start) == _places(new) else new


def _anew(position: TopicPosition) -> dict[int, int]:
    return {
        partition: at
        for partition, at in position.begins.items()
        if position.begins_anew(partition)
    }


def _places(offset: StreamOffset) -> dict[str, tuple[Uuid, Mapping[int, int]]]:
    return {name: (each.topic_id, each.next_offsets) for name, each in offset.topics.items()}


# What a batch reads


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets [begin, end) of a partition of one incarnation of a topic."""

    topic: str
    topic_id: Uuid
    partition: int
    begin: int
    end: int

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


def stretches(start: StreamOffset, end: StreamOffset) -> list[Stretch]:
    """Return what the batch between two positions reads, in order.

    Raises: ValueError where they are not the ends of one batch.
    """
    if start == end:
        return []
    found = []
    for (topic, partition), until in end:
        position = end.topics[topic]
        begin = position.begins.get(partition)
        if begin is None:
            begin = start.position_of((topic, partition), position.topic_id)
        if begin is None or begin > until:
            raise ValueError(
                f"{topic}-{partition}: the batch ends at offset {until}, and begins at {begin}: "
                "expected a checkpoint of one query"
            )
        if begin < until:
            found.append(Stretch(topic, position.topic_id, partition, begin, until))
    return found


@dataclass(slots=True)
class Surviving:
    """What a batch can still read. `losses`, `replaced`: as in `Survey`."""

    ranges: list[Range] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)


def surviving(wanted: Sequence[Stretch], facts: Sequence[PartitionFacts]) -> Surviving:
    """Compare what a batch reads with the partitions that exist now."""
    there = {each.key: each for each in facts}
    found = Surviving()
    for each in wanted:
        now = there.get(each.key)
        subject = f"{each.topic}-{each.partition}"
        if now is None or not is_same_id(now.topic_id, each.topic_id):
            found.replaced.append(
                f"{subject}: the topic was deleted, or deleted and re-created; offsets "
                f"{each.begin} to {each.end - 1} of the former one are lost"
            )
            continue
        begin, end = max(each.begin, now.earliest), min(each.end, now.latest)
        if each.begin < begin:
            last = min(begin, each.end) - 1
            found.losses.append(
                f"{subject}: offsets {each.begin} to {last} are no longer available"
            )
        if end < each.end:
            found.losses.append(
                f"{subject}: offsets {max(end, each.begin)} to {each.end - 1} are lost; the log "
                f"ends at {now.latest}"
            )
        if begin < end:
            found.ranges.append(Range(facts=now, start=begin, end=end))
    return found
