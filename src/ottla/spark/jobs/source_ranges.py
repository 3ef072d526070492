"""Which offsets of one topic a job reads: bounds by offset or time, resolved once to numbers.

With brokers, the end is what they have; with the object store alone, what the store holds. The
pure part is `resolve_ranges`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ottla.base.ids import Uuid, uuid_text
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.offsets import LATEST
from ottla.client.partitions import TopicPartition
from ottla.spark import lookup
from ottla.spark.errors import ClusterError, DataLossError, OptionError
from ottla.spark.jobs.documents import OffsetRange
from ottla.spark.options import Assign, ByPartition, Offsets, ReadOptions
from ottla.spark.planner import Task, plan
from ottla.spark.planning import Found, PartitionFacts, facts_between
from ottla.spark.raw_options import REMOTE_STORAGE, log
from ottla.spark.tiers.store_session import open_session
from ottla.spark.tiers.stored_logs import find_stored, offsets_by_time, stored_log


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where a job starts, or ends, in each partition; nothing set = at the log's edge.

    Fields: `offset`: in every partition. `offsets`: in these partitions.
            `time_ms`: the first record of this timestamp or a later one.
    """

    offset: int | None = None
    offsets: Mapping[int, int] = field(default_factory=dict)
    time_ms: int | None = None

    @property
    def is_set(self) -> bool:
        """Tell whether it is not the log's edge."""
        return self.offset is not None or bool(self.offsets) or self.time_ms is not None


EDGE = Bound()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A topic, and how to reach it.

    Fields: `cluster`: None = what the object store holds, without brokers.
            `remote_storage`: the URI of the object store; None = brokers read it.
            `topic_id`: which topic of the name; needed where the store holds several.
            `read_committed`: leave out aborted transactions, and end before the first open one.
            `skip_lost`: continue behind records that are no longer there, instead of failing.
    Raises: OptionError where neither brokers nor a store is named.
    """

    topic: str
    cluster: ClientConfig | None
    remote_storage: str | None = None
    topic_id: Uuid | None = None
    read_committed: bool = True
    skip_lost: bool = False
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if self.cluster is None and self.remote_storage is None:
            raise OptionError(
                "nothing to read from: expected brokers (cluster), an object store "
                "(remote_storage), or both"
            )

    def options(self) -> ReadOptions:
        """Return the options of a query for the whole topic. Raises: OptionError."""
        raw = {
            "subscribe": self.topic,
            "includeHeaders": "true",
            "isolation": "read_committed" if self.read_committed else "read_uncommitted",
            "failOnDataLoss": "false" if self.skip_lost else "true",
            "kafka.default.api.timeout.ms": str(max(1, int(self.timeout_s * 1000))),
        }
        if self.cluster is not None:
            raw["kafka.bootstrap.servers"] = self.cluster.bootstrap
        if self.remote_storage is not None:
            raw[REMOTE_STORAGE] = self.remote_storage
        if self.topic_id is not None and self.cluster is None:
            raw["ottla.topic.ids"] = uuid_text(self.topic_id)
        return replace(ReadOptions.of(raw), cluster=self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOffsets:
    """The partitions of a topic now.

    Fields: `starts_by_time`, `ends_by_time`: by partition, where bounds are by time.
            `log_ends`: of partitions whose logs may reach further than what is readable now.
    """

    topic_id: Uuid
    facts: tuple[PartitionFacts, ...]
    starts_by_time: Mapping[int, int | None]
    ends_by_time: Mapping[int, int | None]
    log_ends: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """What a job reads.

    Fields: `starts`: of every partition, also where there is nothing to read.
            `losses`: a message for each range that is not there any more.
    """

    topic_id: Uuid
    starts: Mapping[int, int]
    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...] = ()


def find_ranges(
    source: Source, start: Bound, end: Bound, continued: Mapping[int, int] | None = None
) -> Ranges:
    """Return the ranges of a topic between two bounds, as numbers.

    `continued`: offsets to start at instead, by partition.
    Raises: OptionError, ClusterError, RemoteStorageError.
    """
    found = find_topic(source, start, end, continued or {})
    return resolve_ranges(found, start, end, continued or {})


def report_lost(source: Source, found: Ranges) -> None:
    """Raise DataLossError for records that are gone, or log them with `skip_lost`."""
    if found.losses and not source.skip_lost:
        raise DataLossError(f"{'; '.join(found.losses)}. With skip_lost they are left out")
    for each in found.losses:
        log.warning("data loss: %s", each)


def find_topic(
    source: Source, start: Bound, end: Bound, continued: Mapping[int, int]
) -> TopicOffsets:
    """Look up the partitions of a topic, and the offsets of times. Raises: as `find_ranges`."""
    options = source.options()
    log_ends: Mapping[int, int]
    if source.cluster is None:
        with open_session(options) as session:
            stored = find_stored(session, options.subscription, options.topic_ids)
            logs = [stored_log(session, each, options) for each in stored.values()]
            facts = [each.facts for each in logs]
            times = [
                offsets_by_time(session, logs, _wanted(facts, bound), options)
                if bound.time_ms is not None
                else {}
                for bound in (start, end)
            ]
            # The store has what was copied so far; an earlier run may have read from brokers.
            log_ends = continued
    else:
        with ClusterClient(source.cluster) as client:
            ids = lookup.subscribed(client, options.subscription)
            edges = lookup.edges_of(client, sorted(ids), read_committed=options.read_committed)
            facts = facts_between(ids, edges)
            times = [
                lookup.offsets_at(
                    client, _wanted(facts, bound), read_committed=options.read_committed
                )
                if bound.time_ms is not None
                else {}
                for bound in (start, end)
            ]
            log_ends = _ends_behind(client, facts, continued) if options.read_committed else {}
    if not facts:
        raise ClusterError(f"topic {source.topic} has no partitions")
    starts, ends = times
    return TopicOffsets(
        topic_id=facts[0].topic_id,
        facts=tuple(sorted(facts, key=lambda each: each.partition)),
        starts_by_time=_by_number(starts),
        ends_by_time=_by_number(ends),
        log_ends=log_ends,
    )


def _ends_behind(
    client: ClusterClient, facts: Sequence[PartitionFacts], continued: Mapping[int, int]
) -> dict[int, int]:
    """Return the ends of logs of which an earlier run has read more than what is committed now.

    It may have read uncommitted records, too.
    """
    behind = [each.key for each in facts if continued.get(each.partition, 0) > each.latest]
    found = lookup.offsets_at(client, dict.fromkeys(behind, LATEST)) if behind else {}
    return {key[1]: offset or 0 for key, offset in found.items()}


def _wanted(facts: Sequence[PartitionFacts], bound: Bound) -> ByPartition:
    assert bound.time_ms is not None
    return {each.key: bound.time_ms for each in facts}


def _by_number(found: Found) -> dict[int, int | None]:
    return {key[1]: offset for key, offset in found.items()}


def resolve_ranges(
    found: TopicOffsets, start: Bound, end: Bound, continued: Mapping[int, int]
) -> Ranges:
    """Return the ranges that are there, and what is lost of those that were wanted. Pure.

    Raises: OptionError for a bound that names a partition which the topic does not have.
    """
    known = {each.partition for each in found.facts}
    topic = found.facts[0].topic
    for name, bound in (("start", start), ("end", end)):
        unknown = sorted(set(bound.offsets) - known)
        if unknown:
            raise OptionError(
                f"the {name} names partition {unknown[0]}: topic {topic} has 0 to {max(known)}"
            )
    starts: dict[int, int] = {}
    ranges: list[OffsetRange] = []
    losses: list[str] = []
    for each in found.facts:
        subject = f"{each.topic}-{each.partition}"
        first = continued.get(each.partition)
        if first is None:
            at = _at(start, each.partition, found.starts_by_time, each.latest)
            first = each.earliest if at is None else at
        last = _at(end, each.partition, found.ends_by_time, each.latest)
        last = each.latest if last is None else min(last, each.latest)
        if each.latest < continued.get(each.partition, 0) <= found.log_ends.get(each.partition, 0):
            pass  # An earlier run has read it, and it is not gone: there is nothing new.
        elif first > each.latest:
            losses.append(f"{subject}: the job starts at {first}, the log ends at {each.latest}")
            first = each.latest
        elif first < each.earliest:
            losses.append(
                f"{subject}: offsets {first} to {each.earliest - 1} are no longer available"
            )
            first = each.earliest
        starts[each.partition] = first
        if first < last:
            ranges.append(OffsetRange(each.partition, first, last))
    return Ranges(
        topic_id=found.topic_id, starts=starts, ranges=tuple(ranges), losses=tuple(losses)
    )


def _at(bound: Bound, partition: int, by_time: Mapping[int, int | None], latest: int) -> int | None:
    """Return the offset that a bound names in a partition; None = it names none."""
    if partition in bound.offsets:
        return bound.offsets[partition]
    if bound.offset is not None:
        return bound.offset
    if bound.time_ms is not None:
        offset = by_time.get(partition)
        # Records may have come since the end was looked up.
        return latest if offset is None else min(offset, latest)
    return None


def plan_tasks(
    source: Source,
    topic_id: Uuid,
    ranges: Sequence[OffsetRange],
    changes: ReadOptions | None = None,
) -> tuple[ReadOptions, list[Task]]:
    """Return the tasks that read ranges of a topic, and the options to read them with.

    Raises: as `find_ranges`; DataLossError; ClusterError where the topic was created again.
    """
    keys: list[TopicPartition] = [(source.topic, each.partition) for each in ranges]
    options = replace(
        changes or source.options(),
        subscription=Assign(tuple(keys)),
        starting=Offsets(dict(zip(keys, (each.start for each in ranges), strict=True))),
        ending=Offsets(dict(zip(keys, (each.end for each in ranges), strict=True))),
    )
    tasks = plan(options) if keys else []
    for task in tasks:
        for split in task.splits:
            if split.topic_id != topic_id:
                raise ClusterError(
                    f"topic {source.topic} was deleted and created again while the job was planned"
                )
    return options, tasks
