"""The purges of dead remote segments, as brokers report them to the controller.

Deleted topics. The objects of a deleted topic that was tiered are deleted by the leaders of the
partitions of `__remote_log_metadata`, which know of them. They report each partition of the topic,
first how much is left, at last that nothing is. Once all partitions of the ledger's entry are
purged, its remote part becomes PURGED; the deletion manager may write the receipt then.

Topics whose tiered storage was disabled with delete. The leaders of a topic's partitions purge the
segments up to its floor, and report that floor. Once all partitions are purged up to it,
`purge_pending` of the tiering state is cleared, in any state: the purge goes on after the topic is
enabled again. A topic that was disabled with retain has no remote segment left once all partitions
are reported as purged up to the present tiered epoch: its floor is raised to that, which says so to
all.

The reports are soft state of one controller epoch. While a purge is pending they are repeated, so
a new controller gets them all; a report that comes twice, late, or from a broker that no longer
leads is as true as the first one: a partition that is purged up to a floor stays so.

Source: KIP-950 leaves the end of a deletion open; Redpanda's lifecycle markers track it likewise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, NO_LEADER, Uuid
from ottla.controller.step import Decision, Step
from ottla.metadata.deletions import DeletionImage, Remote, header_record
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.metadata.records import Record, TopicTieringRecord
from ottla.metadata.tiering import (
    NO_FLOOR,
    WHOLE_TOPIC,
    TopicTiering,
    emptied,
    purged,
    tiering_record,
)

UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPurge:
    """How far the purge of one partition is.

    Fields: `floor`: the segments of this tiered epoch and below are purged, WHOLE_TOPIC = all.
            `is_purged`: no object of these is left, and none can come any more.
            `segments_left`, `bytes_left`: -1 = not known. `error`: of the last failure, None after
            a success.
    """

    partition: int
    floor: int = WHOLE_TOPIC
    is_purged: bool = False
    segments_left: int = UNKNOWN
    bytes_left: int = UNKNOWN
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeReport:
    """A broker's report: the partitions that it purges, or has purged, by topic id."""

    broker_id: int
    broker_epoch: int
    topics: Mapping[Uuid, Sequence[PartitionPurge]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeProgress:
    """The purge of one topic.

    Fields: `partitions`, `partitions_left`: all, and those that are not purged. `segments_left`,
            `bytes_left`: of the partitions that are known, -1 = none is. `error`: one of the last
            failures, None = there is none. `leaderless`: partitions of an existing topic that are
            not purged and have no leader, who would purge them.
    """

    partitions: int
    partitions_left: int
    segments_left: int = UNKNOWN
    bytes_left: int = UNKNOWN
    error: str | None = None
    leaderless: tuple[int, ...] = ()


NOT_PENDING: Final = PurgeProgress(partitions=UNKNOWN, partitions_left=UNKNOWN)


@dataclass(slots=True)
class _Topic:
    """The reports about one deletion. `asked_ms`: tells it from another one of the same topic."""

    asked_ms: int
    partitions: dict[int, PartitionPurge] = field(default_factory=dict)


@dataclass(slots=True)
class _Partition:
    """The reports about a partition of an existing topic. `purged_floor`: purged up to it."""

    last: PartitionPurge
    purged_floor: int = NO_FLOOR


@dataclass(slots=True)
class PurgeReports:
    """The reports at the active controller; see the module."""

    _epoch: int = NO_EPOCH
    _topics: dict[Uuid, _Topic] = field(default_factory=dict)
    _existing: dict[Uuid, dict[int, _Partition]] = field(default_factory=dict)

    def add(
        self,
        image: ClusterImage,
        deletion: DeletionImage,
        partitions: Sequence[PartitionPurge],
        *,
        controller_epoch: int,
    ) -> None:
        """Store what is reported of a purge that is pending. Another epoch clears all others."""
        self._begin(image, controller_epoch)
        known = self._topics.get(deletion.topic_id)
        if known is None or known.asked_ms != deletion.asked_ms:
            known = self._topics[deletion.topic_id] = _Topic(deletion.asked_ms)
        for each in partitions:
            before = known.partitions.get(each.partition)
            if each.floor == WHOLE_TOPIC and not (before is not None and before.is_purged):
                known.partitions[each.partition] = each

    def add_existing(
        self,
        image: ClusterImage,
        tiering: TopicTiering,
        partitions: Sequence[PartitionPurge],
        *,
        controller_epoch: int,
    ) -> None:
        """Store what is reported of an existing topic whose purge is awaited."""
        self._begin(image, controller_epoch)
        known = self._existing.setdefault(tiering.topic_id, {})
        for each in partitions:
            if each.floor > tiering.tiered_epoch:
                continue  # That of a deleted topic.
            partition = known.setdefault(each.partition, _Partition(each))
            partition.last = each
            if each.is_purged:
                partition.purged_floor = max(partition.purged_floor, each.floor)

    def purged_floor(self, topic: TopicImage) -> int:
        """Return the tiered epoch up to which all partitions of an existing topic are purged."""
        known = self._existing.get(topic.id, {})
        return min(
            (known[each].purged_floor if each in known else NO_FLOOR for each in topic.partitions),
            default=NO_FLOOR,
        )

    def progress_of_existing(self, topic: TopicImage, tiering: TopicTiering) -> PurgeProgress:
        """Return how far the purge of an existing topic is, by the reports so far."""
        floor, known = tiering.remote_floor_epoch, self._existing.get(topic.id, {})
        left = [
            each
            for each in topic.partitions
            if each not in known or known[each].purged_floor < floor
        ]
        reports = [known[each].last for each in sorted(left) if each in known]
        return PurgeProgress(
            partitions=len(topic.partitions),
            partitions_left=len(left),
            segments_left=_sum([each.segments_left for each in reports]),
            bytes_left=_sum([each.bytes_left for each in reports]),
            error=next((each.error for each in reports if each.error is not None), None),
            leaderless=tuple(
                each for each in sorted(left) if topic.partitions[each].leader == NO_LEADER
            ),
        )

    def _begin(self, image: ClusterImage, controller_epoch: int) -> None:
        """Forget what is of another epoch, and what has ended."""
        if controller_epoch != self._epoch:
            self._epoch = controller_epoch
            self._topics.clear()
            self._existing.clear()
        self._forget_ended(image)

    def are_purged(self, deletion: DeletionImage) -> bool:
        """Tell whether all partitions of a deletion that has begun are purged."""
        return deletion.has_begun and not self._left(deletion)

    def progress(self, deletion: DeletionImage) -> PurgeProgress:
        """Return how far the purge of a topic is, by the reports so far."""
        partitions, left = deletion.partitions(), self._left(deletion)
        reported = self._reported(deletion)
        known = [reported[each] for each in sorted(left) if each in reported]
        return PurgeProgress(
            partitions=len(partitions),
            partitions_left=len(left),
            segments_left=_sum([each.segments_left for each in known]),
            bytes_left=_sum([each.bytes_left for each in known]),
            error=next((each.error for each in known if each.error is not None), None),
        )

    def _left(self, deletion: DeletionImage) -> frozenset[int]:
        reported = self._reported(deletion)
        return frozenset(
            each
            for each in deletion.partitions()
            if each not in reported or not reported[each].is_purged
        )

    def _reported(self, deletion: DeletionImage) -> Mapping[int, PartitionPurge]:
        known = self._topics.get(deletion.topic_id)
        return {} if known is None or known.asked_ms != deletion.asked_ms else known.partitions

    def _forget_ended(self, image: ClusterImage) -> None:
        for topic_id in list(self._topics):
            deletion = image.deletions.of(topic_id)
            if deletion is None or deletion.remote is not Remote.PENDING:
                del self._topics[topic_id]
        for topic_id in list(self._existing):
            tiering = image.tiering.get(topic_id)
            if tiering is None or tiering.awaited_floor is None:
                del self._existing[topic_id]


def _sum(values: Sequence[int]) -> int:
    known = [each for each in values if each != UNKNOWN]
    return sum(known) if known else UNKNOWN


def _after_reports(
    image: ClusterImage, reports: PurgeReports, tiering: TopicTiering
) -> TopicTieringRecord | None:
    """Return the state of an existing topic that follows from the reports, None = the present."""
    topic = image.topics.by_id(tiering.topic_id)
    assert topic is not None, "the tiering state of a topic that does not exist"
    if image.deletions.is_queued(topic.id):
        return None  # Its deletion purges all.
    floor, after = reports.purged_floor(topic), tiering
    if floor >= tiering.remote_floor_epoch:
        after = purged(after)
    if after.is_retained and floor >= after.tiered_epoch:
        after = emptied(after)
    return None if after == tiering else tiering_record(after)


def take_report(
    image: ClusterImage, reports: PurgeReports, report: PurgeReport
) -> Decision[dict[Uuid, Error]]:
    """Take a broker's report; reply with the error of each topic.

    UNKNOWN_TOPIC_ID: nothing of the topic is to be purged, or not any more; the broker may stop.
    A second call for one report decides the same, as where a decision is made again.
    Raises: ApiError(STALE_BROKER_EPOCH) for a process that is not registered now.
    """
    broker = image.brokers.get(report.broker_id)
    if broker is None or broker.epoch != report.broker_epoch:
        raise ApiError(Error.STALE_BROKER_EPOCH)
    results: dict[Uuid, Error] = {}
    records: list[Record] = []
    for topic_id, partitions in sorted(report.topics.items()):
        deletion = image.deletions.of(topic_id)
        if deletion is None or not deletion.is_purging:
            tiering = image.tiering.get(topic_id)
            if tiering is None or tiering.awaited_floor is None:
                results[topic_id] = Error.UNKNOWN_TOPIC_ID
                continue
            results[topic_id] = Error.NONE
            reports.add_existing(image, tiering, partitions, controller_epoch=image.position[1])
            after = _after_reports(image, reports, tiering)
            records += () if after is None else (after,)
            continue
        results[topic_id] = Error.NONE
        reports.add(image, deletion, partitions, controller_epoch=image.position[1])
        if reports.are_purged(deletion):
            records.append(header_record(replace(deletion, remote=Remote.PURGED)))
    return Decision(Step(tuple(records), atomic=False), results)
