"""Faults that follow events of remote storage: see `docs/simulator.md`.

- A copy begins: its leader crashes while the store is slow, so that what it was putting is executed
  later; or it is cut off from the controllers, and its records for the metadata topic are late, so
  that they arrive behind the fence of the next leader.
- A copy is finished, or a deletion begins: the leader crashes; or a follower sleeps, and is cut off
  from its leader when it wakes up.

They are drawn from a stream of their own, and only where there is remote storage.
"""

from random import Random
from typing import TYPE_CHECKING

from ottla.base.ids import NO_LEADER
from ottla.testing.sim.faults.directed_faults import DirectedFaults, Part
from ottla.testing.sim.net import MS
from ottla.testing.sim.ports import SimulatedNode
from ottla.testing.sim.watch.observations import Observation, RemoteSegmentChanged
from ottla.wire.registry import PRODUCE

if TYPE_CHECKING:
    from ottla.metadata.topics import PartitionImage

CHANCES = (0.0, 0.04, 0.15)
QUIET_MS = (4_000, 15_000)
"""After one of these faults none is drawn for a time between these."""
SLOW_MS = 300
CUT_MS = (4_000, 12_000)
LATE_MS = (1_000, 9_000)
SLEEP_MS = (3_000, 10_000)
APART_MS = (500, 4_000)
PRODUCE_KEY = PRODUCE.to_bytes(2, "big")


class TierFaults(Part):
    """See the module. `chance`: that a fault follows an event."""

    def __init__(self, faults: DirectedFaults, random: Random, chance: float) -> None:
        self._faults = faults
        self._sim = faults.sim
        self._random = random
        self._chance = chance
        self._quiet_until_ms = 0
        self._late: dict[int, int] = {}
        """By how many ms the records of a node for the metadata topic are late."""

    def begin(self) -> None:
        """Inject faults from now on."""
        self._sim.net.late_us = self._late_us

    def observe(self, observation: Observation) -> None:
        """Perhaps inject a fault after a record of a segment."""
        if not isinstance(observation, RemoteSegmentChanged) or observation.is_refused:
            return
        random, now_ms = self._random, self._sim.now_ms
        if now_ms < self._quiet_until_ms or random.random() >= self._chance:
            return
        topic = self._sim.image.topics.by_id(observation.topic_id)
        state = None if topic is None else topic.partitions.get(observation.partition)
        if state is None or state.leader == NO_LEADER:
            return
        leader = self._sim.nodes[state.leader]
        if not leader.alive or leader.paused:
            return
        self._quiet_until_ms = now_ms + random.randrange(*QUIET_MS)
        if observation.state == "COPY_STARTED":
            random.choice((self._crash_while_slow, self._cut_off))(leader)
        elif random.random() < 0.5:
            self._crash(leader)
        else:
            self._put_to_sleep(state)

    # -- faults --------------------------------------------------------------------------------

    def _crash(self, node: SimulatedNode) -> None:
        incarnation = node.incarnation

        def crash() -> None:
            if node.alive and not node.paused and node.incarnation == incarnation:
                self._sim.mark("directed-tier-crash")
                self._faults.crash(node)

        self._faults.later(self._faults.moment_us(), crash)

    def _crash_while_slow(self, node: SimulatedNode) -> None:
        store = self._sim.object_store
        before, store.faults.slow = store.faults.slow, 1.0

        def restore() -> None:
            store.faults.slow = before

        self._faults.later(SLOW_MS * MS, restore)
        incarnation = node.incarnation

        def crash() -> None:
            if node.alive and not node.paused and node.incarnation == incarnation:
                self._sim.mark("directed-tier-late-put")
                self._faults.crash(node)

        self._faults.later(self._random.randrange(SLOW_MS) * MS, crash)

    def _cut_off(self, node: SimulatedNode) -> None:
        """Have a leader continue for a while after the next one is elected."""
        random, sim, node_id = self._random, self._sim, node.id
        sim.mark("directed-tier-former-leader")
        self._late[node_id] = random.randrange(*LATE_MS)
        cut_us = random.randrange(*CUT_MS) * MS
        if sim.zookeeper is not None:
            model = sim.zookeeper.model
            model.cut(node_id)
            self._faults.later(cut_us, lambda: model.heal(node_id))
        else:
            controllers = [
                each.id for each in sim.nodes.values() if each.is_controller and each is not node
            ]
            links = {(node_id, each) for each in controllers}
            links |= {(each, node_id) for each in controllers}
            self._cut(links, cut_us)

        def in_time_again() -> None:
            self._late.pop(node_id, None)

        self._faults.later(cut_us, in_time_again)

    def _put_to_sleep(self, state: "PartitionImage") -> None:
        random = self._random
        followers = [
            node
            for each in state.replicas
            if each != state.leader and (node := self._sim.nodes[each]).alive and not node.paused
        ]
        if not followers:
            return
        node = random.choice(followers)
        incarnation, leader = node.incarnation, state.leader
        self._sim.mark("directed-tier-sleep")
        node.pause()

        def wake() -> None:
            if node.incarnation == incarnation and node.paused:
                self._cut({(node.id, leader), (leader, node.id)}, random.randrange(*APART_MS) * MS)
                node.resume()

        self._faults.later(random.randrange(*SLEEP_MS) * MS, wake)

    def _cut(self, links: set[tuple[int, int]], for_us: int) -> None:
        net = self._sim.net
        new = links - net.cut
        net.cut |= new

        def heal() -> None:
            net.cut -= new

        self._faults.later(for_us, heal)

    def _late_us(self, source: int, target: int, frame: bytes) -> int:
        """Return the delay of a request. A broker produces to nothing but the metadata topic."""
        if self._faults.is_over or source not in self._late or frame[4:6] != PRODUCE_KEY:
            return 0
        return self._late[source] * MS
