"""Reports of live topics: whether a leader's remote segments up to a floor are purged.

The expiration task of a partition purges what its topic's remote floor has given up; it goes on in
any state, and under any leader. Where the metadata have `purge_pending`, leaders report how far
they are, until the controller has all partitions and clears it.

A topic whose remote segments were retained when its tiered storage was disabled is reported with
its tiered epoch as the floor, once no remote segment is left: from then on it is as one that never
was tiered.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.base.ids import Uuid
from ottla.broker.remote.environment import RemoteEnvironment
from ottla.broker.remote.tasks.purge_reporter import Key, PurgeReporter
from ottla.wire.messages.report_purges import PurgedPartition

if TYPE_CHECKING:
    from ottla.broker.ports import Forwarder
    from ottla.metadata.image import ClusterImage
    from ottla.metadata.tiering import TopicTiering


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorPurge:
    """How far the purge of a led partition is, up to a floor.

    Fields: `is_purged`: no object is left, and none can come. `segments_left`, `bytes_left`: -1 =
            not known. `last_error`: of the last failure, None after a success.
    """

    is_purged: bool = False
    segments_left: int = -1
    bytes_left: int = -1
    last_error: str | None = None


PurgeOf = Callable[[Uuid, int, int], FloorPurge | None]
"""Of a topic's partition and a floor; None = this broker does not lead it."""


class FloorReports:
    """See the module. `apply` must be called with each metadata change."""

    def __init__(
        self,
        environment: RemoteEnvironment,
        forwarder: "Forwarder",
        broker_epoch: Callable[[], int],
        purge_of: PurgeOf,
    ) -> None:
        self._purge_of = purge_of
        self._topics: dict[Uuid, tuple[TopicTiering, Collection[int]]] = {}
        """The tiering state and the partitions of the topics that are to be reported."""
        self._reports = PurgeReporter(
            environment,
            forwarder,
            broker_epoch,
            rows=self._rows,
            is_needed=lambda: bool(self._topics),
        )

    def apply(self, image: "ClusterImage", changed: Collection[Uuid] | None) -> None:
        """Follow the metadata. `changed`: the topics whose state or partitions have changed, None =
        all."""
        for topic_id in sorted(image.tiering if changed is None else changed):
            tiering, topic = image.tiering.get(topic_id), image.topics.by_id(topic_id)
            if tiering is None or topic is None or tiering.awaited_floor is None:
                self._topics.pop(topic_id, None)
                self._reports.forget(topic_id)
                continue
            known = self._topics.get(topic_id)
            if known is None or known[0] != tiering:
                self._reports.forget(topic_id)
            self._topics[topic_id] = tiering, tuple(topic.partitions)
        self._reports.arm()

    def close(self) -> None:
        """Report nothing any more."""
        self._reports.close()

    def _rows(self, first: Key | None) -> Iterator[tuple[Key, PurgedPartition]]:
        for topic_id in sorted(self._topics):
            if not self._reports.may_report(topic_id, first):
                continue
            tiering, partitions = self._topics[topic_id]
            floor = tiering.awaited_floor
            assert floor is not None
            for number in sorted(partitions):
                if first is not None and (topic_id, number) < first:
                    continue
                purge = self._purge_of(topic_id, number, floor)
                # What is retained may take months to expire.
                if purge is not None and (purge.is_purged or tiering.purge_pending):
                    yield (topic_id, number), _row(number, floor, purge)


def _row(partition: int, floor: int, purge: FloorPurge) -> PurgedPartition:
    return PurgedPartition(
        partition=partition,
        floor=floor,
        is_purged=purge.is_purged,
        segments_left=purge.segments_left,
        bytes_left=purge.bytes_left,
        last_error=purge.last_error,
    )
