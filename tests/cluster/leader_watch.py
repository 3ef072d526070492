"""How long partitions, and the cluster, go without a leader: what the surviving nodes tell.

One thread for each node asks it again and again who leads the partitions of a topic, and the
quorum; over ZooKeeper, another one looks who is the controller. A frozen node holds up its own
thread only. What they saw, with what was done to nodes and when, gives the outages.
"""

import json
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from ottla.testing import Cluster, cluster_facts
from ottla.testing.cluster_facts import UNREACHABLE
from ottla.testing.layout import ClusterError, NodePlan

from .background import Background

PAUSE_SECONDS = 0.08
QUORUM = -1
"""The place of the metadata quorum among the partitions' numbers."""
NOBODY = -1

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Sight:
    """From `at` on, somebody knew of `leader` in `epoch`."""

    at: float
    epoch: int
    leader: int


@dataclass(slots=True)
class Fault:
    """One node does not answer from `begin` to `end`; `is_final`: it forgot what it led."""

    node: int
    begin: float
    is_final: bool
    end: float = float("inf")


def outages(
    sights: Sequence[Sight], faults: Iterable[Fault], begin: float, end: float
) -> list[Span]:
    """Return when nobody led: by nobody's name, or by that of a node that did not answer.

    A node that died leads again only by a new epoch; one that was frozen goes on where it was.
    """
    spans: list[Span] = []
    for index, sight in enumerate(sights):
        until = sights[index + 1].at if index + 1 < len(sights) else end
        if sight.leader == NOBODY:
            spans.append((sight.at, until))
        for fault in faults:
            if fault.node != sight.leader or fault.begin >= until or fault.end <= sight.at:
                continue
            over = until if fault.is_final else min(until, fault.end)
            spans.append((max(sight.at, fault.begin), over))
    return _merged((max(begin, each[0]), min(end, each[1])) for each in spans)


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for begin, end in sorted(each for each in spans if each[0] < each[1]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


class LeaderWatch(Background):
    """Watches one topic of a cluster while it is in a `with` block."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = topic
        works = [partial(self._watch, node) for node in cluster.nodes]
        connect = cluster.zookeeper_connect
        if connect is not None:
            works.append(partial(self._watch_zookeeper, connect))
        super().__init__(works, patience=30)
        self._lock = threading.Lock()
        self.sights: dict[int, list[Sight]] = {}
        self.faults: list[Fault] = []

    def leader(self, partition: int) -> int:
        """Return who led last, as far as seen; -1 = nobody."""
        seen = self.sights.get(partition)
        return seen[-1].leader if seen else NOBODY

    def fault(self, node: int, *, is_final: bool) -> None:
        """Note that a node answers no more from now on."""
        self.faults.append(Fault(node, time.monotonic(), is_final))

    def over(self, node: int) -> None:
        """Note that it was started or goes on."""
        for fault in self.faults:
            if fault.node == node and fault.end == float("inf"):
                fault.end = time.monotonic()

    def outages(self, partition: int, begin: float, end: float) -> list[Span]:
        """Return when nobody led a partition, or the quorum."""
        with self._lock:
            return outages(self.sights.get(partition, []), self.faults, begin, end)

    def _watch(self, node: NodePlan) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            with suppress(ClusterError):
                for number, facts in cluster_facts.partitions([node], self._topic).items():
                    self._saw(number, facts.leader_epoch, facts.leader)
            with suppress(*UNREACHABLE):
                quorum = cluster_facts.quorum([node])
                if quorum is not None:
                    self._saw(QUORUM, quorum.leader_epoch, quorum.leader_id)

    def _watch_zookeeper(self, connect: str) -> None:
        """Look who is the controller: its epoch is that of its election."""
        client = KazooClient(hosts=connect)
        client.start()
        try:
            while not self._stop.wait(PAUSE_SECONDS):
                # Nobody rules just now, or ZooKeeper itself is without a leader.
                with suppress(KazooException):
                    epoch = int(client.get("/controller_epoch")[0])
                    controller = json.loads(client.get("/controller")[0])["brokerid"]
                    self._saw(QUORUM, epoch, controller)
        finally:
            client.stop()
            client.close()

    def _saw(self, number: int, epoch: int, leader: int) -> None:
        now = time.monotonic()
        with self._lock:
            sights = self.sights.setdefault(number, [])
            # A node that is behind tells of an older epoch.
            if not sights or epoch > sights[-1].epoch:
                sights.append(Sight(now, epoch, leader))
