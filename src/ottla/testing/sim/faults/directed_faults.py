"""Faults triggered by events: crashes right after, or during, a disk write or an election.

Random faults hit the second after a truncation once in a thousand histories. Here, each of these
events may make its node crash within three seconds, mostly with a loss of power: a log truncation,
a new segment, a deleted or swapped segment, a stored vote, an acknowledged produce, a moved high
watermark, an election, a renamed metadata snapshot, a broker registration, a reopened log
directory, a start. The seed draws the chance of each (off, seldom, frequent). The bound is that of
`FaultInjector`: brokers lose power only as far as the durability guarantee allows. All draws are of
one stream, `<seed>/directed`.

Faults other than the crash of one node are in `directed_scripts`, `directed_quorum` and
`late_requests`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

from ottla.base.ids import NO_LEADER, Uuid
from ottla.log.names import CLEANED, RUNNING, SWAP
from ottla.metadata.brokers import BrokerImage
from ottla.raft.election import FILE_NAME as QUORUM_STATE
from ottla.raft.snapshots import PART_SUFFIX
from ottla.testing.sim.faults.fault_injector import FaultInjector
from ottla.testing.sim.net import MS
from ottla.testing.sim.ports import SimulatedCluster, SimulatedNode
from ottla.testing.sim.watch.observations import (
    Acknowledged,
    HighWatermarkMoved,
    ImagePublished,
    MetadataCommitted,
    NodeChanged,
    Observation,
    PartitionSet,
    QuorumLed,
)

WITHIN_MS = (5, 60, 500, 3_000)
"""The upper bound of a crash's delay is one of these: short delays are as frequent as long ones."""
POWER_SHARE = 0.75
"""The share of crashes that are a loss of power, where the bound allows it."""
BACK_MS = (100, 800, 4_000)
QUIET_MS = (3_000, 15_000)
"""After a crash none is drawn for a time between these, so that the cluster elects and writes."""
TRUNCATED_MS = 20_000
"""How long after a truncation a roll counts as following it."""
MID_OPERATION_SHARE = 0.4
"""The share of crashes that come during a disk operation."""
MINUTE_US = 60_000 * MS
SWAPPED = (CLEANED, SWAP)
FOLLOWED = frozenset({"truncate", "open", "rename", "write_atomic"})
"""The disk operations that `disk_used` is called for."""
VOTE = 52
"""The key of the Vote API, as bytes of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectedRates:
    """The chance that a crash follows an event, and what happens so often a minute.

    Fields: `truncation` … `start`: chances. `quorum_power`: all controllers that are no brokers
            lose power at once; `short_leaderships`: leaders crash one after the other, each soon
            after its election (KIP-279); `sync_errors`: an fsync fails and its dirty pages are
            dropped: times a minute. `alter_partition`: the chance that the response to an
            AlterPartition is delayed, or lost and the request repeated, while a follower is cut off
            and the leader crashes. `late`: that a request of a controller, or a broker registration
            or heartbeat, is delivered again much later. `split`: that a worker's job is interrupted
            between its disk operations. `split_votes`, `quorum_commits`: see
            `directed_quorum`: times a minute. `quorum_leaderships`: the same, from a random stream
            of its own.
    """

    truncation: float = 0.5
    roll: float = 0.08
    vote: float = 0.08
    election: float = 0.12
    quorum_election: float = 0.12
    snapshot: float = 0.15
    registration: float = 0.12
    directory: float = 0.1
    start: float = 0.2
    acknowledged: float = 0.004
    quorum_power: float = 1.2
    short_leaderships: float = 0.5
    alter_partition: float = 0.25
    late: float = 0.25
    sync_errors: float = 0.3
    split: float = 0.3
    split_votes: float = 1.2
    quorum_commits: float = 1.2
    committed: float = 0.004
    removal: float = 0.1
    swap: float = 0.12
    quorum_leaderships: float = 2.0

    def mix(self, random: Random, own: Random) -> "DirectedRates":
        """Return the rates of one history; `own`: the stream of `quorum_leaderships`."""
        drawn = {
            each.name: getattr(self, each.name) * random.choice((0.0, 0.25, 1.0))
            for each in fields(self)
            if each.name != "quorum_leaderships"
        }
        leaderships = self.quorum_leaderships * own.choice((0.0, 0.0, 0.25, 1.0))
        return replace(self, **drawn, quorum_leaderships=leaderships)


NO_RATES = DirectedRates(**{each.name: 0.0 for each in fields(DirectedRates)})


class Part:
    """A kind of fault with its own script; it also draws from `DirectedFaults.random`."""

    def begin(self) -> None:
        """Inject faults from now on."""

    def observe(self, observation: Observation) -> None:
        """Called with each observation."""

    def request(self, key: int, source: int, target: int, frame: bytes) -> None:
        """Called with each request that arrives, and its API key, before it is read."""

    def disk_used(self, node: SimulatedNode, operation: str, path: str) -> None:
        """Called before each disk operation of a node."""


class DirectedFaults:
    """Watches one history and injects faults, from `begin` until `stop`.

    Fields: `rates`: what this seed drew. `takes_power`: brokers may lose their power at all.
    """

    def __init__(self, sim: SimulatedCluster, random: Random, rates: DirectedRates) -> None:
        self.sim = sim
        self.random = random
        self.rates = rates
        self.takes_power = True
        self.parts: list[Part] = []
        self._watching: dict[str, list[Any]] = {}
        """By name, the methods of `parts` that are more than `Part`'s."""
        self.fault_injector: FaultInjector | None = None
        self._quiet_until_us = 0
        self.vote_candidates: dict[int, int] = {}
        """The last candidate that requested the vote of each voter."""
        self._leaders: dict[tuple[Uuid, int], int] = {}
        self._truncated: dict[tuple[int, str], int] = {}
        """When a log of a node was truncated last."""
        self._brokers: dict[int, BrokerImage] = {}
        self._handlers: dict[type, Callable[..., None]] = {
            PartitionSet: self._partition_set,
            QuorumLed: self._quorum_led,
            NodeChanged: self._node_changed,
            ImagePublished: self._image_published,
            MetadataCommitted: self._metadata_committed,
            Acknowledged: self._acknowledged,
            HighWatermarkMoved: self._high_watermark_moved,
        }
        self._quorum_power_due = False

    @property
    def is_over(self) -> bool:
        """Tell whether no faults are to be injected now."""
        return self.fault_injector is None

    @property
    def split(self) -> float:
        """Return the chance that a worker's job is split now."""
        return 0.0 if self.is_over else self.rates.split

    def begin(self, fault_injector: FaultInjector) -> None:
        """Inject faults from now on, within the bound that `fault_injector` keeps."""
        self.fault_injector = fault_injector
        self._watching = {
            name: [
                getattr(part, name)
                for part in self.parts
                if getattr(type(part), name) is not getattr(Part, name)
            ]
            for name in ("observe", "request", "disk_used")
        }
        self.sim.observe(self._observe)
        if self.rates.quorum_power:
            self.every_so_often(self.rates.quorum_power, self._schedule_quorum_power)
        for part in self.parts:
            part.begin()

    def stop(self) -> None:
        """Inject no further faults."""
        self.fault_injector = None

    # -- chance --------------------------------------------------------------------------------

    def every_so_often(self, rate: float, act: Callable[[], None]) -> None:
        """Call `act` so often a minute, until `stop`."""

        def strike() -> None:
            if not self.is_over:
                act()
                self.every_so_often(rate, act)

        self.sim.scheduler.after(int(self.random.expovariate(rate) * MINUTE_US), strike)

    def later(self, delay_us: int, act: Callable[[], None]) -> None:
        """Call `act` after a delay, unless stopped by then."""

        def unless_healed() -> None:
            if not self.is_over:
                act()

        self.sim.scheduler.after(delay_us, unless_healed)

    def moment_us(self) -> int:
        """Draw the delay after an event."""
        return self.random.randrange(self.random.choice(WITHIN_MS) * MS)

    # -- events --------------------------------------------------------------------------------

    def _observe(self, observation: Observation) -> None:
        handler = self._handlers.get(type(observation))
        if self.is_over:
            return
        if handler is not None:
            handler(observation)
        for observe in self._watching["observe"]:
            observe(observation)

    def _partition_set(self, observation: PartitionSet) -> None:
        key, leader = (observation.topic_id, observation.partition), observation.state.leader
        before = self._leaders.get(key)
        self._leaders[key] = leader
        if before is not None and leader not in (before, NO_LEADER):
            self._after("election", leader, self.rates.election)

    def _acknowledged(self, observation: Acknowledged) -> None:
        """Perhaps crash the leader that has just acknowledged, or an in-sync follower."""
        if observation.acks != 0:
            self._member("acknowledged", observation, self.rates.acknowledged)

    def _high_watermark_moved(self, observation: HighWatermarkMoved) -> None:
        """The same where the leader's high watermark has just moved."""
        if observation.leads:
            self._member("committed", observation, self.rates.committed)

    def _member(
        self, kind: str, observation: Acknowledged | HighWatermarkMoved, chance: float
    ) -> None:
        if not chance:
            return
        topic = self.sim.image.topics.by_id(observation.topic_id)
        state = None if topic is None else topic.partitions.get(observation.partition)
        if state is not None and self._may_strike(chance):
            node = self.sim.nodes[self.random.choice((observation.node, *state.isr))]
            incarnation, delay_us = node.incarnation, self.random.choice((0, 0, 200, 2_000, 30_000))
            self.later(delay_us, lambda: self._strike(kind, node, incarnation))

    def _quorum_led(self, observation: QuorumLed) -> None:
        self._after("quorum_election", observation.node, self.rates.quorum_election)

    def _node_changed(self, observation: NodeChanged) -> None:
        if observation.what == "started" and observation.incarnation > 1:
            self._after("start", observation.node, self.rates.start)

    def _image_published(self, observation: ImagePublished) -> None:
        for broker_id, broker in observation.image.brokers.items():
            known = self._brokers.get(broker_id)
            if known is None or known.epoch < broker.epoch:
                self._brokers[broker_id] = broker
                self._after("registration", broker_id, self.rates.registration)

    def disk_used(self, node: SimulatedNode, operation: str, path: str) -> None:
        """Called before each disk operation of a node; see `MemoryDisk.on_operation`."""
        rates = self.rates
        if self.is_over:
            return
        for used in self._watching["disk_used"]:
            used(node, operation, path)
        if operation == "truncate":
            if path.endswith(".log"):
                self._truncated[node.id, _directory_of(path)] = self.sim.scheduler.now_us
                self._after("truncation", node.id, rates.truncation)
        elif operation == "open":
            if path.endswith(".log") and not node.disk.exists(path):
                self._rolled(node, _directory_of(path))
        elif operation == "rename":
            if path.endswith(PART_SUFFIX):
                self._after("snapshot", node.id, rates.snapshot)
            elif path.endswith(".log"):
                self._after("removal", node.id, rates.removal)
            elif path.endswith(SWAPPED):
                self._after("swap", node.id, rates.swap)
        elif operation == "write_atomic":
            if path.endswith(QUORUM_STATE):
                self._vote(node)
            elif path.endswith(RUNNING):
                self._after("directory", node.id, rates.directory)

    def _rolled(self, node: SimulatedNode, directory: str) -> None:
        """Soon after a truncation, an old checkpoint may cover offsets of the new segment."""
        truncated_us = self._truncated.get((node.id, directory), -TRUNCATED_MS * MS)
        if self.sim.scheduler.now_us - truncated_us < TRUNCATED_MS * MS:
            self._after("truncated-roll", node.id, self.rates.truncation)
        else:
            self._after("roll", node.id, self.rates.roll)

    def _vote(self, node: SimulatedNode) -> None:
        """Perhaps crash a voter as it stores its vote, and restart it during another candidacy.

        The candidate that it voted for, or the new leader, is cut off from the other voters
        meanwhile, so that one of them becomes a candidate in the same epoch.
        """
        candidate = self.vote_candidates.get(node.id)
        controllers = [each.id for each in self.sim.nodes.values() if each.is_controller]
        if candidate not in controllers or not self._may_strike(self.rates.vote):
            self._after("vote", node.id, self.rates.vote)
            return
        self.sim.mark("directed-vote-apart")
        others = [each for each in controllers if each != candidate]
        links = links_between(candidate, others) - self.sim.net.cut
        self.sim.net.cut |= links

        def heal() -> None:
            self.sim.net.cut -= links

        self.later(self.random.randrange(1_000, 5_000) * MS, heal)
        self.crash(node, within_operations=1, back_ms=60)

    def frame(self, what: str, source: int, target: int, frame: bytes) -> None:
        """Called with each frame that arrives."""
        if what != "request" or self.is_over:
            return
        key = int.from_bytes(frame[4:6], "big")
        if key == VOTE:
            self.vote_candidates[target] = source
        for arrived in self._watching["request"]:
            arrived(key, source, target, frame)

    # -- crashes -------------------------------------------------------------------------------

    def _after(self, kind: str, node_id: int, chance: float) -> None:
        """Perhaps crash the node, now or soon."""
        random, node = self.random, self.sim.nodes[node_id]
        if not node.alive or node.paused or not self._may_strike(chance):
            return
        incarnation = node.incarnation
        if random.random() < MID_OPERATION_SHARE:
            # At the operation that is about to be done, or at one of the next.
            self._strike(kind, node, incarnation, within_operations=random.choice((1, 1, 2, 4, 12)))
            return
        self.later(self.moment_us(), lambda: self._strike(kind, node, incarnation))

    def _may_strike(self, chance: float) -> bool:
        """Draw whether to inject a fault now; if so, none is drawn for a while."""
        random, now_us = self.random, self.sim.scheduler.now_us
        if not chance or now_us < self._quiet_until_us or random.random() >= chance:
            return False
        self._quiet_until_us = now_us + random.randrange(*QUIET_MS) * MS
        return True

    def _strike(
        self, kind: str, node: SimulatedNode, incarnation: int, *, within_operations: int = 0
    ) -> None:
        if not node.alive or node.paused or node.incarnation != incarnation:
            return
        self.sim.mark(f"directed-{kind.replace('_', '-')}")
        self.crash(node, within_operations=within_operations)

    def crash(
        self, node: SimulatedNode, *, within_operations: int = 0, back_ms: int | None = None
    ) -> None:
        """Crash a node, at once or within so many disk operations, and restart it."""
        random, fault_injector = self.random, self.fault_injector
        assert fault_injector is not None
        loses = random.random() < POWER_SHARE and self.may_lose_power(node)
        if loses:
            fault_injector.note_loss(node)
        back_us = random.randrange(20, back_ms or random.choice(BACK_MS)) * MS

        def back() -> None:
            self.later(back_us, node.restart)

        if within_operations:
            node.crash_within(within_operations, lose_unflushed=loses, then=back)
        else:
            node.crash(lose_unflushed=loses)
            back()

    def may_lose_power(self, node: SimulatedNode) -> bool:
        """Tell whether the durability guarantee allows it."""
        assert self.fault_injector is not None
        return self.takes_power and self.fault_injector.may_lose_power(node)

    # -- all controllers at once ---------------------------------------------------------------

    def _schedule_quorum_power(self) -> None:
        self._quorum_power_due = True

    def _metadata_committed(self, observation: MetadataCommitted) -> None:
        """Cut the power of all controllers soon after one of them has seen a commit."""
        if not self._quorum_power_due:
            return
        controllers = [each for each in self.sim.nodes.values() if each.is_controller]
        if observation.node not in {each.id for each in controllers} or observation.batch.control:
            return
        self._quorum_power_due = False
        if any(each.is_broker for each in controllers):
            return  # The bound for brokers would be broken.
        delay_us = self.random.choice((0, 300, 2_000))
        self.later(delay_us, lambda: self._power_off(controllers))

    def _power_off(self, controllers: list[SimulatedNode]) -> None:
        random = self.random
        self.sim.mark("directed-quorum-power")
        for node in controllers:
            node.crash(lose_unflushed=True)
            self.later(random.randrange(20, random.choice(BACK_MS)) * MS, node.restart)


def links_between(node: int, others: Iterable[int]) -> set[tuple[int, int]]:
    """Return the links between a node and others, in both directions."""
    return {link for each in others for link in ((node, each), (each, node))}


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0]
