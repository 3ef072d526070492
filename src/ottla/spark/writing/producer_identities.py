"""Producer ids that the next task of this process continues with.

Brokers remember each producer id for a day, in every partition that it wrote to. A streaming query
runs several tasks a second: with an id for each they would fill the brokers' memory. Spark keeps
its Python processes for later tasks, so an id, and the sequence numbers that it has reached, are
kept there too. Only a task that has ended well gives its id back: none of its batches is in doubt.

A cluster that was created again at its address, with its former cluster id, as containers are,
gives out the same producer ids again: used there, a kept one would make rows look like another
producer's duplicates. So an id continues only with topics that it has written to, by their topic
ids, which no other cluster has.
"""

import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Final

from ottla.base.ids import NO_UUID, Uuid
from ottla.client.partitions import TopicPartition

IDLE_S_MAX: Final = 600.0
"""Far below the time after which brokers forget an idle producer id."""


@dataclass(slots=True)
class Identity:
    """A producer id of a cluster.

    Fields: `sequences`: the next sequence number, by partition.
            `topic_ids`: of the topics that it has written to.
    """

    producer_id: int
    epoch: int
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    topic_ids: set[Uuid] = field(default_factory=set)


class Identities:
    """The ids of a process, one a cluster. They are exclusive: who takes one has it alone.

    `now`: monotonic, seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: dict[str, tuple[float, Identity]] = {}

    def take(self, cluster_id: str | None, topic_ids: Set[Uuid]) -> Identity | None:
        """Return the id that is kept of a cluster, and keep it no more.

        None where it has not written to all of these topics, or was idle for too long.
        """
        if cluster_id is None or NO_UUID in topic_ids:
            return None
        kept_at, identity = self._kept.pop(cluster_id, (0.0, None))
        if identity is None or self._now() - kept_at > IDLE_S_MAX:
            return None
        return identity if topic_ids <= identity.topic_ids else None

    def give_back(self, cluster_id: str | None, identity: Identity) -> None:
        """Keep an id whose batches are all acknowledged."""
        if cluster_id is not None:
            self._kept[cluster_id] = self._now(), identity


OF_THIS_PROCESS: Final = Identities()
