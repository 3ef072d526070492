"""The topics whose acknowledgements are to be checked, some replicas at a time.

A newly elected controller checks all topics that are DISABLING, and a broker that registers or goes
has all of them checked again: tens of thousands of replicas. Other tasks of the event loop run
between two parts; a part may end within a topic.

A topic that is added while it is being checked is checked once more after that: what was looked at
already may have changed. Its check does not start again, or one that changes all the time would
never be checked to its end.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.base.ids import Uuid
from ottla.metadata.image import ClusterImage, PartitionImage

REPLICAS_PER_STEP_MAX: Final = 1_000
"""Replicas that are looked at in one turn of the loop, but for those of one more partition: some
12 ms."""


@dataclass(frozen=True, slots=True)
class Part:
    """Partitions of one topic to check together. `is_first`: its check begins with them;
    `is_last`: no more follow. A topic that is not to be checked any more has no last part.
    """

    topic_id: Uuid
    partitions: Sequence[tuple[int, PartitionImage]]
    is_first: bool
    is_last: bool


class TopicChecks:
    """See the module. Topics are checked in the order in which they are added."""

    def __init__(self) -> None:
        self._queue: deque[Uuid] = deque()
        self._queued: set[Uuid] = set()
        """Those of the queue, without one that is being checked."""
        self._next_partition = 0
        """Where the check of the first one goes on; 0 = it has not begun."""

    def add(self, topic_ids: Iterable[Uuid]) -> None:
        """Have topics checked."""
        new = set(topic_ids) - self._queued
        self._queue.extend(sorted(new))
        self._queued |= new

    @property
    def has_any(self) -> bool:
        """Tell whether there is something to check."""
        return bool(self._queue)

    def take(self, image: ClusterImage, topics: Collection[Uuid]) -> Iterator[Part]:
        """Yield what to check in this turn. `topics`: those that still are to be checked."""
        left = REPLICAS_PER_STEP_MAX
        while left > 0 and self._queue:
            topic_id = self._queue[0]
            topic = image.topics.by_id(topic_id)
            is_first = self._next_partition == 0
            if is_first:
                self._queued.discard(topic_id)
            if topic is None or topic_id not in topics:
                self._end_first()
                continue
            some: list[tuple[int, PartitionImage]] = []
            is_last = True
            for each in topic.in_order():
                if each[0] < self._next_partition:
                    continue
                if left <= 0:
                    self._next_partition, is_last = each[0], False
                    break
                some.append(each)
                left -= len(each[1].replicas)
            if is_last:
                self._end_first()
            yield Part(topic_id, some, is_first, is_last)

    def _end_first(self) -> None:
        self._queue.popleft()
        self._next_partition = 0
