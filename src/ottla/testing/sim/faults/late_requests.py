"""Requests of a previous controller, or of a dead incarnation of a broker, that arrive late.

A request that arrives is copied, and the copy is delivered seconds later, or soon after its sender
has restarted or another controller was elected. In a real network such a request is in flight while
its sender is frozen, or in the receiver's buffers while its sender dies. So it reaches another
incarnation of the receiver only if the sender's process still runs.
"""

from typing import NamedTuple

from ottla.metadata.image import ClusterImage
from ottla.testing.sim.faults.directed_faults import DirectedFaults, Part
from ottla.testing.sim.net import MS, Pipe, RedeliveredRequest, SimListener
from ottla.testing.sim.watch.observations import ImagePublished, NodeChanged, QuorumLed

LATE_KEYS = frozenset({4, 5, 6, 62, 63, 1002})
"""LeaderAndIsr, StopReplica, UpdateMetadata; BrokerRegistration and -Heartbeat; DeleteReplicas."""

HEARTBEAT = 63
HEARTBEAT_SHARE = 0.1
"""Heartbeats are by far the most frequent of them."""

LATE_MS = (2_000, 15_000)
KEPT_MAX = 8


class _Kept(NamedTuple):
    pipe: Pipe
    frame: bytes
    source: int
    source_incarnation: int
    source_epoch: int
    target_incarnation: int


class LateRequests(Part):
    """See the module."""

    def __init__(self, faults: DirectedFaults) -> None:
        self._faults = faults
        self._kept: list[_Kept] = []

    def request(self, key: int, source: int, target: int, frame: bytes) -> None:
        """Keep some of the requests that arrive."""
        if source < 0 or key not in LATE_KEYS:
            return
        faults = self._faults
        random, chance = faults.random, faults.rates.late
        if random.random() >= (chance * HEARTBEAT_SHARE if key == HEARTBEAT else chance):
            return
        pipe = faults.sim.net.pipe_between(source, target)
        if pipe is None:
            return
        nodes = faults.sim.nodes
        registered = faults.sim.image.brokers.get(source)
        epoch = -1 if registered is None else registered.epoch
        kept = _Kept(
            pipe, frame, source, nodes[source].incarnation, epoch, nodes[target].incarnation
        )
        if random.random() < 0.5:
            faults.later(random.randrange(random.choice(LATE_MS)) * MS, lambda: self._send(kept))
        else:
            # Delivered after its sender's next start, or the next controller election.
            self._kept = [*self._kept[-KEPT_MAX + 1 :], kept]

    def observe(self, observation: object) -> None:
        """Deliver the copies that have become outdated."""
        if isinstance(observation, NodeChanged) and observation.what == "serves":
            due = [each for each in self._kept if each.source == observation.node]
        elif isinstance(observation, QuorumLed):
            due = list(self._kept)
        elif isinstance(observation, ImagePublished):
            due = [each for each in self._kept if self._is_past(each, observation.image)]
        else:
            return
        for kept in due:
            self._kept.remove(kept)
            faults = self._faults
            faults.later(faults.moment_us(), lambda kept=kept: self._send(kept))  # type: ignore[misc]

    def _is_past(self, kept: _Kept, image: ClusterImage) -> bool:
        """Tell whether a later incarnation of the sender is registered now."""
        broker = image.brokers.get(kept.source)
        return broker is not None and broker.epoch > kept.source_epoch

    def _send(self, kept: _Kept) -> None:
        sim = self._faults.sim
        place = kept.pipe.listener.place
        sender, receiver = sim.nodes[kept.source], sim.nodes[place]
        same_sender = sender.alive and sender.incarnation == kept.source_incarnation
        if receiver.incarnation != kept.target_incarnation and not same_sender:
            return
        listener: SimListener | None = sim.net.listener_at(kept.pipe.address)
        if listener is None:
            return
        sim.mark("request-late" if same_sender else "request-of-the-dead")
        RedeliveredRequest(sim.net, listener, kept.pipe.info, kept.frame).deliver()
