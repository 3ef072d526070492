"""What an object store holds of topics, by its manifests alone: for queries without brokers.

The table is then what was copied: it ends at the last remote segment, and with read_committed
before the first transaction that is open there.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from ottla.base.ids import Uuid, uuid_text
from ottla.client.partitions import TopicPartition
from ottla.records.batch import iter_headers
from ottla.records.errors import CorruptBatch
from ottla.records.record import find_timestamp
from ottla.spark.errors import OptionError, RemoteStorageError
from ottla.spark.losses import report_losses
from ottla.spark.options import Assign, ByPartition, Pattern, ReadOptions, Subscription
from ottla.spark.planning import PartitionFacts
from ottla.spark.splits import RemotePlace
from ottla.spark.tiers.remote_reading import object_data
from ottla.spark.tiers.store_session import ObjectMissingError, StoreSession
from ottla.spark.tiers.tier_planning import RemoteSegment, Tiers, with_own_ranges
from ottla.tiered.lineage import Visible, visible_segments
from ottla.tiered.manifest import (
    BASE_EVERY,
    LISTINGS_MAX,
    Manifest,
    ManifestState,
    first_to_read,
    follow,
)
from ottla.tiered.manifest_codec import MANIFEST_BYTES_MAX, decode_manifest_of
from ottla.tiered.object_names import (
    ObjectKind,
    behind_partition,
    manifest_name,
    manifest_prefix,
    parse_directory_name,
    parse_manifest_name,
)
from ottla.tiered.segment_files import SegmentPositions, first_open_offset, offset_before
from ottla.tiered.segment_metadata import NO_FLOOR, epoch_ranges

INDEX_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class StoredTopic:
    """A topic of which the store has objects, and its partitions."""

    name: str
    topic_id: Uuid
    partitions: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """What the manifests of a partition say; None = it has none yet.

    `floor`: the topic's. The last manifest of one of its partitions may name an older one.
    """

    topic: str
    topic_id: Uuid
    partition: int
    state: ManifestState | None
    floor: int = NO_FLOOR

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def is_deleted(self) -> bool:
        """Tell whether the topic was deleted: all its tiered epochs are given up."""
        return self.floor != NO_FLOOR and (
            self.state is not None and self.floor >= self.state.tiered_epoch
        )


@dataclass(frozen=True, slots=True)
class StoredLog:
    """A partition as a query without brokers sees it."""

    facts: PartitionFacts
    tiers: Tiers


# Topics


def find_stored(
    session: StoreSession, subscription: Subscription, topic_ids: frozenset[Uuid]
) -> dict[TopicPartition, StoredPartition]:
    """Return the partitions to read.

    Raises: RemoteStorageError where the store has no such topic or partition; OptionError where it
            has several topics of one name, and `topic_ids` does not say which.
    """
    found = {
        each.key: each
        for partitions in _topics(session, subscription, topic_ids)
        for each in partitions
    }
    if not isinstance(subscription, Assign):
        return found
    for key in subscription.partitions:
        if key not in found:
            raise RemoteStorageError(
                f"the object store {session.uri} has no partition {key[1]} of topic {key[0]}"
            )
    return {key: found[key] for key in subscription.partitions}


def _topics(
    session: StoreSession, subscription: Subscription, topic_ids: frozenset[Uuid]
) -> list[list[StoredPartition]]:
    if isinstance(subscription, Pattern):
        regex = re.compile(subscription.regex)
        every = list_topics(session)
        names = sorted({each.name for each in every if regex.fullmatch(each.name)})
    else:
        named = (
            {topic for topic, _ in subscription.partitions}
            if isinstance(subscription, Assign)
            else set(subscription.topics)
        )
        names = sorted(named)
        every = [each for name in names for each in list_topics(session, name)]
    chosen: list[list[StoredPartition]] = []
    for name in names:
        found = _choose(session, name, [each for each in every if each.name == name], topic_ids)
        if not found and not isinstance(subscription, Pattern):
            raise RemoteStorageError(f"the object store {session.uri} has no topic {name}")
        chosen.append(found)
    return chosen


def _choose(
    session: StoreSession, name: str, topics: list[StoredTopic], topic_ids: frozenset[Uuid]
) -> list[StoredPartition]:
    """Return the partitions of the topic of a name that was not deleted; empty = there is none."""
    if len(topics) > 1 and any(each.topic_id in topic_ids for each in topics):
        topics = [each for each in topics if each.topic_id in topic_ids]
    found = [read_topic(session, each) for each in topics]
    alive = [each for each in found if not any(partition.is_deleted for partition in each)]
    if len(alive) > 1:
        ids = ", ".join(uuid_text(each[0].topic_id) for each in alive)
        raise OptionError(
            f"the object store {session.uri} has {len(alive)} topics {name}: expected the id of "
            f"one of them in the option ottla.topic.ids ({ids})"
        )
    return alive[0] if alive else []


def list_topics(session: StoreSession, name: str | None = None) -> list[StoredTopic]:
    """Return the topics in a store, or those of a name, by name and id."""
    found: dict[tuple[str, Uuid], StoredTopic] = {}
    prefix = "" if name is None else f"{name}-"
    after = prefix
    while True:
        page = session.list_page("", after)
        for each in page.objects:
            parsed = parse_directory_name(each.name)
            if parsed is not None and (name is None or parsed[0] == name):
                topic_name, topic_id, partition = parsed
                topic = found.setdefault((topic_name, topic_id), StoredTopic(topic_name, topic_id))
                topic.partitions.add(partition)
        if page.is_last or not page.objects or not page.objects[-1].name.startswith(prefix):
            return [found[key] for key in sorted(found)]
        last = page.objects[-1].name
        after = behind_partition(last) if last.count("/") > 1 else last


def read_topic(session: StoreSession, topic: StoredTopic) -> list[StoredPartition]:
    """Return all partitions of a topic, also those of which nothing was copied."""
    states = {
        number: read_state(session, topic.name, topic.topic_id, number)
        for number in sorted(topic.partitions)
    }
    known = [each for each in states.values() if each is not None]
    count = max(
        *(each.partition_count or 0 for each in known), *(each + 1 for each in states), 0, 0
    )
    floor = max((each.floor for each in known), default=NO_FLOOR)
    return [
        StoredPartition(topic.name, topic.topic_id, number, states.get(number), floor)
        for number in range(count)
    ]


# Manifests


def read_state(
    session: StoreSession, topic: str, topic_id: Uuid, partition: int
) -> ManifestState | None:
    """Return what the manifests of a partition say; None = there are none.

    Manifests come, and old ones go, while they are read: one that is missing after it was listed
    means that a newer base is there. Raises: RemoteStorageError, also where they are damaged.
    """
    for _ in range(LISTINGS_MAX):
        listed = _listed(session, topic, topic_id, partition)
        if not listed:
            return None
        try:
            return _follow(session, topic, topic_id, partition, listed)
        except ObjectMissingError:
            continue
    raise RemoteStorageError(
        f"the manifests of {topic}-{partition} in {session.uri} change faster than they can be read"
    )


def _listed(session: StoreSession, topic: str, topic_id: Uuid, partition: int) -> list[int]:
    objects = session.list_objects(manifest_prefix(topic, topic_id, partition))
    numbers = (parse_manifest_name(each.name) for each in objects)
    return sorted(each for each in numbers if each is not None)


def _follow(
    session: StoreSession, topic: str, topic_id: Uuid, partition: int, listed: Sequence[int]
) -> ManifestState:
    highest = listed[-1]
    begin = first_to_read(highest)
    found: dict[int, Manifest] = {}
    damaged = [f"no unbroken chain leads to manifest {highest}"]
    state: ManifestState | None = None
    while state is None and begin > -BASE_EVERY:
        numbers = [each for each in listed if begin <= each and each not in found]
        names = [manifest_name(topic, topic_id, partition, each) for each in numbers]
        contents = session.read_ahead(((name, 0, MANIFEST_BYTES_MAX) for name in names), 8)
        for number, name, data in zip(numbers, names, contents, strict=True):
            try:
                found[number] = decode_manifest_of(data, topic_id=topic_id, sequence=number)
            except ValueError as error:
                damaged.append(f"{name}: {error}")
        state = follow(found.values())
        begin -= BASE_EVERY
    if state is None or state.sequence != highest:
        # What the last ones say is lost: segments may be gone, and others may have come.
        raise RemoteStorageError(
            f"the manifests of {topic}-{partition} in {session.uri} cannot be read: {damaged[-1]}"
        )
    return state


# Logs


def stored_log(session: StoreSession, stored: StoredPartition, options: ReadOptions) -> StoredLog:
    """Return a partition's log, as far as its remote segments have it.

    Raises: ObjectMissingError where a segment was deleted meanwhile; RemoteStorageError.
    """
    start, visible = _visible(stored)
    segments = with_own_ranges([_segment(each) for each in visible])
    end = segments[-1].end_offset if segments else start
    if options.read_committed and segments:
        count = _before_hole(segments)
        if count < len(segments):
            loss = (
                f"{stored.topic}-{stored.partition}: no remote segment has the offsets "
                f"{segments[count - 1].own[1]} to {segments[count].own[0] - 1}, so which "
                "transactions behind them were aborted is not known"
            )
            report_losses([loss], fail=options.fail_on_data_loss)
        end = max(start, _stable_end(session, visible[:count], segments[:count]))
    facts = PartitionFacts(
        topic=stored.topic,
        topic_id=stored.topic_id,
        partition=stored.partition,
        earliest=start,
        latest=end,
        # A tiered topic cannot be compacted.
        contiguous=True,
    )
    return StoredLog(facts, Tiers(segments=segments))


def _visible(stored: StoredPartition) -> tuple[int, list[Visible]]:
    """Return the log's start, and its visible segments."""
    state = stored.state
    if state is None:
        return 0, []
    floor = stored.floor
    alive = [
        each for each in state.segments.values() if floor == NO_FLOOR or each.tiered_epoch > floor
    ]
    lineage = state.lineage()
    visible = [
        each
        for each in visible_segments(alive, lineage)
        if each.end_offset >= state.log_start_offset
    ]
    if not visible:
        return max(state.log_start_offset, lineage.log_end_offset), []
    # If the log start lay in it when it was copied, it is readable from its first epoch on.
    first = epoch_ranges(visible[0].segment)[0][1]
    return max(state.log_start_offset, first), visible


def _segment(each: Visible) -> RemoteSegment:
    segment = each.segment
    end_offset = each.end_offset + 1
    return RemoteSegment(
        topic=segment.topic,
        topic_id=segment.topic_id,
        partition=segment.partition,
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        end_offset=end_offset,
        own=(segment.start_offset, end_offset),
        size_bytes=segment.size_bytes,
        max_timestamp_ms=segment.max_timestamp_ms,
        txn_index_empty=segment.txn_index_empty,
        may_lack_txn_index=segment.may_lack_txn_index,
    )


def _before_hole(segments: Sequence[RemoteSegment]) -> int:
    """Return how many segments there are before the first hole between two."""
    for number, (before, behind) in enumerate(pairwise(segments), 1):
        if before.own[1] < behind.own[0]:
            return number
    return len(segments)


def _stable_end(
    session: StoreSession, visible: Sequence[Visible], segments: Sequence[RemoteSegment]
) -> int:
    """Return up to where it is known which transactions were aborted.

    A segment's producers' state has the transactions that are open at its end. Where the lineage
    leaves a segment before its end, that state is of records that are not the log's.
    """
    whole = [
        number for number, each in enumerate(visible) if each.end_offset == each.segment.end_offset
    ]
    if not whole:
        return segments[0].own[0]
    last = segments[whole[-1]]
    name = last.object(ObjectKind.PRODUCER_SNAPSHOT)
    try:
        first_open = first_open_offset(bytes(session.read(name, 0, INDEX_BYTES_MAX)))
    except ValueError as error:
        raise RemoteStorageError(f"{name} in {session.uri} is damaged: {error}") from None
    return last.end_offset if first_open < 0 else min(first_open, last.end_offset)


# Timestamps


def offsets_by_time(
    session: StoreSession,
    logs: Sequence[StoredLog],
    timestamps: ByPartition,
    options: ReadOptions,
) -> Mapping[TopicPartition, int | None]:
    """Return, for each partition, the first offset of that timestamp (ms) or a later one.

    Raises: ObjectMissingError, RemoteStorageError, CorruptBatch.
    """
    found: dict[TopicPartition, int | None] = {}
    for log in logs:
        key = log.facts.key
        if key in timestamps:
            found[key] = _offset_since(session, log, timestamps[key], options.fetch_bytes)
    return found


def _offset_since(
    session: StoreSession, log: StoredLog, timestamp_ms: int, size: int
) -> int | None:
    for segment in log.tiers.segments:
        start = max(segment.own[0], log.facts.earliest)
        end = min(segment.own[1], log.facts.latest)
        if start < end and segment.max_timestamp_ms >= timestamp_ms:
            offset = _search_segment(session, segment, timestamp_ms, (start, end), size)
            if offset is not None:
                return offset
    return None


def _search_segment(
    session: StoreSession,
    segment: RemoteSegment,
    timestamp_ms: int,
    within: tuple[int, int],
    size: int,
) -> int | None:
    """Return the first offset in [start, end) of that timestamp or a later one."""
    start, end = within
    name = segment.object(ObjectKind.LOG)
    position = _position_before(session, segment, timestamp_ms, start)
    place = RemotePlace(
        segment_id=segment.segment_id,
        name=name,
        size_bytes=segment.size_bytes,
        position=position,
        end_position=position,
    )
    rest = b""
    for data in object_data(session, place, size):
        buffer = b"".join((rest, data))
        used = 0
        for at, header in iter_headers(buffer, allow_partial=True):
            if header.base_offset >= end:
                return None
            used = at + header.size_in_bytes
            if header.max_timestamp >= timestamp_ms and header.next_offset > start:
                found = find_timestamp(buffer, at, header, timestamp_ms, start)
                if found is not None:
                    return found[0] if found[0] < end else None
        rest = buffer[used:]
    if rest:
        raise CorruptBatch(f"{name}: its last batch is cut")
    return None


def _position_before(
    session: StoreSession, segment: RemoteSegment, timestamp_ms: int, start: int
) -> int:
    """Return a position below which all records are older, or before `start`."""
    kinds = (ObjectKind.TIME_INDEX, ObjectKind.OFFSET_INDEX)
    reads = [(segment.object(each), 0, INDEX_BYTES_MAX) for each in kinds]
    try:
        times, offsets = map(bytes, session.read_ahead(reads, len(reads)))
        offset = max(start, offset_before(times, segment.start_offset, timestamp_ms))
        index = SegmentPositions(offsets, segment.start_offset, segment.size_bytes)
        return index.position_of(offset)
    except ValueError:
        return 0
