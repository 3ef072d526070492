"""The purges of deleted topics, as brokers report them to the controller.

The objects of a deleted topic that was tiered are deleted by the leaders of the partitions of
`__remote_log_metadata`, which know of them. They report each partition of the topic, first how much
is left, at last that nothing is. Once all partitions of the ledger's entry are purged, its remote
part becomes PURGED; the deletion manager may write the receipt then.

The reports are soft state of one controller epoch. While the entry is PENDING they are repeated, so
a new controller gets them all; a report that comes twice, late, or from a broker that no longer
leads is as true as the first one: a purged partition has no object any more, ever.

Source: KIP-950 leaves the end of a deletion open; Redpanda's lifecycle markers track it likewise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.controller.step import Decision, Step
from ottla.metadata.deletions import DeletionImage, Remote, header_record
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import Record

WHOLE_TOPIC: Final = (1 << 31) - 1
"""The floor of a deleted topic: segments of all tiered epochs are dead."""

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
            failures, None = there is none.
    """

    partitions: int
    partitions_left: int
    segments_left: int = UNKNOWN
    bytes_left: int = UNKNOWN
    error: str | None = None


NOT_PENDING: Final = PurgeProgress(partitions=UNKNOWN, partitions_left=UNKNOWN)


@dataclass(slots=True)
class _Topic:
    """The reports about one deletion. `asked_ms`: tells it from another one of the same topic."""

    asked_ms: int
    partitions: dict[int, PartitionPurge] = field(default_factory=dict)


@dataclass(slots=True)
class PurgeReports:
    """The reports at the active controller; see the module."""

    _epoch: int = NO_EPOCH
    _topics: dict[Uuid, _Topic] = field(default_factory=dict)

    def add(
        self,
        image: ClusterImage,
        deletion: DeletionImage,
        partitions: Sequence[PartitionPurge],
        *,
        controller_epoch: int,
    ) -> None:
        """Store what is reported of a purge that is pending. Another epoch clears all others."""
        if controller_epoch != self._epoch:
            self._epoch = controller_epoch
            self._topics.clear()
        self._forget_ended(image)
        known = self._topics.get(deletion.topic_id)
        if known is None or known.asked_ms != deletion.asked_ms:
            known = self._topics[deletion.topic_id] = _Topic(deletion.asked_ms)
        for each in partitions:
            before = known.partitions.get(each.partition)
            if each.floor == WHOLE_TOPIC and not (before is not None and before.is_purged):
                known.partitions[each.partition] = each

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


def _sum(values: Sequence[int]) -> int:
    known = [each for each in values if each != UNKNOWN]
    return sum(known) if known else UNKNOWN


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
            results[topic_id] = Error.UNKNOWN_TOPIC_ID
            continue
        results[topic_id] = Error.NONE
        reports.add(image, deletion, partitions, controller_epoch=image.position[1])
        if reports.are_purged(deletion):
            records.append(header_record(replace(deletion, remote=Remote.PURGED)))
    return Decision(Step(tuple(records), atomic=False), results)
