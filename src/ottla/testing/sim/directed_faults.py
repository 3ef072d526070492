"""Faults that come where they hurt most: right after, or within, what a disk or an election did.

Random faults meet the second after a truncation once in a thousand histories. Here each of the
following draws, with a chance that the seed draws (off, seldom, frequent), that the node which it
concerns crashes within three seconds, mostly with its power: a truncated log, a new segment, one
that is deleted or takes the place of others, a stored vote, an acknowledged produce, a high
watermark that moved, an election, a metadata snapshot that gets its name, a broker's registration,
a log directory that is in use again, a start. The bound is that of `FaultInjector`: brokers lose
power only where the promise covers it. All draws are of one stream, `<seed>/directed`.

What is not a crash of one node is in `directed_scripts`, `directed_quorum` and `late_requests`.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from random import Random
from typing import TYPE_CHECKING

from ottla.base.ids import NO_LEADER, Uuid
from ottla.log.names import CLEANED, RUNNING, SWAP
from ottla.metadata.brokers import BrokerImage
from ottla.raft.election import FILE_NAME as QUORUM_STATE
from ottla.raft.snapshots import PART_SUFFIX
from ottla.testing.sim.net import MS
from ottla.testing.sim.observations import (
    Acknowledged,
    HighWatermarkMoved,
    ImagePublished,
    MetadataCommitted,
    NodeChanged,
    Observation,
    PartitionSet,
    QuorumLed,
)

if TYPE_CHECKING:
    from ottla.testing.sim.faults import FaultInjector
    from ottla.testing.sim.node import SimNode
    from ottla.testing.sim.sim import Sim

WITHIN_MS = (5, 60, 500, 3_000)
"""A crash comes at a moment below one of these, so that the first milliseconds get their share."""
POWER_SHARE = 0.75
"""How many of the crashes take the machine's power, where the bound allows it."""
BACK_MS = (100, 800, 4_000)
QUIET_MS = (3_000, 15_000)
"""After a crash none is drawn for a time between these: else it would elect and write nothing."""
TRUNCATED_MS = 20_000
"""How long a roll counts as one behind a truncation."""
MIDST_SHARE = 0.4
"""How many of the crashes come in the midst of a disk operation."""
MINUTE_US = 60_000 * MS
SWAPPED = (CLEANED, SWAP)
FOLLOWED = frozenset({"truncate", "open", "rename", "write_atomic"})
"""The disk operations that directed faults follow; `disk_used` need not hear of others."""
VOTE = (52).to_bytes(2, "big")
"""The key of the Vote API, as requests begin with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectedRates:
    """The chance that a crash follows an event, and what happens so often a minute.

    Fields: `truncation` … `start`: chances. `quorum_power`: all controllers that are no brokers
            lose their power at once; `short_leaderships`: leaders die one after the other, each
            a moment after it was elected (KIP-279); `sync_errors`: an fsync fails and what it
            was to write is dropped: times a minute. `alter_partition`: the chance that the answer
            to an AlterPartition is held back, or given and asked for again, while a follower is
            cut off and the leader dies. `late`: that a request of a controller or of a broker's
            registration arrives once more, much later. `split`: that a worker's job is
            interrupted between its disk operations. `split_votes`, `quorum_commits`: see
            `directed_quorum`: times a minute.
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

    def mix(self, random: Random) -> "DirectedRates":
        """Return the rates of one history."""
        drawn = {
            each.name: getattr(self, each.name) * random.choice((0.0, 0.25, 1.0))
            for each in fields(self)
        }
        return replace(self, **drawn)


NO_RATES = DirectedRates(**{each.name: 0.0 for each in fields(DirectedRates)})


class Part:
    """A kind of fault with a story of its own; it draws from `DirectedFaults.random`, too."""

    def begin(self) -> None:
        """Things may go wrong from now on."""

    def observe(self, told: Observation) -> None:
        """Hear what nodes are seen to do."""

    def frame(self, what: str, source: int, target: int, frame: bytes) -> None:
        """Hear of a frame that arrives, before anybody reads it; see `Network.tell`."""

    def disk_used(self, node: "SimNode", operation: str, path: str) -> None:
        """Hear of a disk operation that a node is about to do."""


class DirectedFaults:
    """Watches one history and strikes, from `begin` until `stop`.

    Fields: `rates`: what this seed drew. `takes_power`: brokers may lose their power at all.
    """

    def __init__(self, sim: "Sim", random: Random, rates: DirectedRates) -> None:
        self.sim = sim
        self.random = random
        self.rates = rates
        self.takes_power = True
        self.parts: list[Part] = []
        self.fault_injector: FaultInjector | None = None
        self._quiet_until_us = 0
        self.vote_candidates: dict[int, int] = {}
        """Who asked each voter for its vote last."""
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
        self._wants_quorum_power = False

    @property
    def is_over(self) -> bool:
        """Tell whether nothing is to go wrong now."""
        return self.fault_injector is None

    @property
    def split(self) -> float:
        """Return the chance that a worker's job is split now."""
        return 0.0 if self.is_over else self.rates.split

    def begin(self, fault_injector: "FaultInjector") -> None:
        """Strike from now on, within the bound that `fault_injector` keeps."""
        self.fault_injector = fault_injector
        self.sim.observe(self._observe)
        if self.rates.quorum_power:
            self.every_so_often(self.rates.quorum_power, self._wish_for_quorum_power)
        for part in self.parts:
            part.begin()

    def stop(self) -> None:
        """Let nothing more happen."""
        self.fault_injector = None

    # -- chance --------------------------------------------------------------------------------

    def every_so_often(self, rate: float, act: Callable[[], None]) -> None:
        """Act so often a minute, as long as anything goes wrong."""

        def strike() -> None:
            if not self.is_over:
                act()
                self.every_so_often(rate, act)

        self.sim.scheduler.after(int(self.random.expovariate(rate) * MINUTE_US), strike)

    def later(self, delay_us: int, act: Callable[[], None]) -> None:
        """Act after a delay, unless all is healed by then."""

        def unless_healed() -> None:
            if not self.is_over:
                act()

        self.sim.scheduler.after(delay_us, unless_healed)

    def moment_us(self) -> int:
        """Draw how soon after an event something comes."""
        return self.random.randrange(self.random.choice(WITHIN_MS) * MS)

    # -- events --------------------------------------------------------------------------------

    def _observe(self, told: Observation) -> None:
        handler = self._handlers.get(type(told))
        if self.is_over:
            return
        if handler is not None:
            handler(told)
        for part in self.parts:
            part.observe(told)

    def _partition_set(self, told: PartitionSet) -> None:
        key, leader = (told.topic_id, told.partition), told.state.leader
        before = self._leaders.get(key)
        self._leaders[key] = leader
        if before is not None and leader not in (before, NO_LEADER):
            self._after("election", leader, self.rates.election)

    def _acknowledged(self, told: Acknowledged) -> None:
        """Perhaps let the leader crash that has just answered, or an in-sync follower."""
        if told.acks != 0:
            self._member("acknowledged", told, self.rates.acknowledged)

    def _high_watermark_moved(self, told: HighWatermarkMoved) -> None:
        """The same where a leader has just let consumers read more."""
        if told.leads:
            self._member("committed", told, self.rates.committed)

    def _member(self, kind: str, told: Acknowledged | HighWatermarkMoved, chance: float) -> None:
        if not chance:
            return
        topic = self.sim.image.topics.by_id(told.topic_id)
        state = None if topic is None else topic.partitions.get(told.partition)
        if state is not None and self._may_strike(chance):
            node = self.sim.nodes[self.random.choice((told.node, *state.isr))]
            incarnation, delay_us = node.incarnation, self.random.choice((0, 0, 200, 2_000, 30_000))
            self.later(delay_us, lambda: self._strike(kind, node, incarnation))

    def _quorum_led(self, told: QuorumLed) -> None:
        self._after("quorum_election", told.node, self.rates.quorum_election)

    def _node_changed(self, told: NodeChanged) -> None:
        if told.what == "started" and told.incarnation > 1:
            self._after("start", told.node, self.rates.start)

    def _image_published(self, told: ImagePublished) -> None:
        for broker_id, broker in told.image.brokers.items():
            known = self._brokers.get(broker_id)
            if known is None or known.epoch < broker.epoch:
                self._brokers[broker_id] = broker
                self._after("registration", broker_id, self.rates.registration)

    def disk_used(self, node: "SimNode", operation: str, path: str) -> None:
        """Hear of a disk operation that a node is about to do; see `MemoryDisk.on_operation`."""
        rates = self.rates
        if self.is_over:
            return
        for part in self.parts:
            part.disk_used(node, operation, path)
        if operation == "truncate":
            if path.endswith(".log"):
                self._truncated[node.id, _folder(path)] = self.sim.scheduler.now_us
                self._after("truncation", node.id, rates.truncation)
        elif operation == "open":
            if path.endswith(".log") and not node.disk.exists(path):
                self._rolled(node, _folder(path))
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

    def _rolled(self, node: "SimNode", folder: str) -> None:
        """A segment that begins soon after a truncation may be trusted by an old checkpoint."""
        truncated_us = self._truncated.get((node.id, folder), -TRUNCATED_MS * MS)
        if self.sim.scheduler.now_us - truncated_us < TRUNCATED_MS * MS:
            self._after("truncated-roll", node.id, self.rates.truncation)
        else:
            self._after("roll", node.id, self.rates.roll)

    def _vote(self, node: "SimNode") -> None:
        """Perhaps let a voter die as it stores its vote, and be back while a third one stands.

        Whom it voted for, or who has just told it that he leads, is cut off from the other voters
        meanwhile, so that one of them stands for election in the same epoch.
        """
        asker = self.vote_candidates.get(node.id)
        controllers = [each.id for each in self.sim.nodes.values() if each.is_controller]
        if asker not in controllers or not self._may_strike(self.rates.vote):
            self._after("vote", node.id, self.rates.vote)
            return
        self.sim.mark("directed-vote-apart")
        others = [each for each in controllers if each != asker]
        links = {(asker, each) for each in others} | {(each, asker) for each in others}
        links -= self.sim.net.cut
        self.sim.net.cut |= links

        def heal() -> None:
            self.sim.net.cut -= links

        self.later(self.random.randrange(1_000, 5_000) * MS, heal)
        self.crash(node, midst=1, back_ms=60)

    def frame(self, what: str, source: int, target: int, frame: bytes) -> None:
        """Hear of a frame that arrives."""
        if self.is_over:
            return
        if frame[4:6] == VOTE and what == "request":
            self.vote_candidates[target] = source
        for part in self.parts:
            part.frame(what, source, target, frame)

    # -- crashes -------------------------------------------------------------------------------

    def _after(self, kind: str, node_id: int, chance: float) -> None:
        """Perhaps let the node crash, now or soon."""
        random, node = self.random, self.sim.nodes[node_id]
        if not node.alive or node.paused or not self._may_strike(chance):
            return
        incarnation = node.incarnation
        if random.random() < MIDST_SHARE:
            # At the operation that is about to be done, or at one of the next.
            self._strike(kind, node, incarnation, midst=random.choice((1, 1, 2, 4, 12)))
            return
        self.later(self.moment_us(), lambda: self._strike(kind, node, incarnation))

    def _may_strike(self, chance: float) -> bool:
        """Draw whether to strike now; then there is quiet for a while."""
        random, now_us = self.random, self.sim.scheduler.now_us
        if not chance or now_us < self._quiet_until_us or random.random() >= chance:
            return False
        self._quiet_until_us = now_us + random.randrange(*QUIET_MS) * MS
        return True

    def _strike(self, kind: str, node: "SimNode", incarnation: int, *, midst: int = 0) -> None:
        if not node.alive or node.paused or node.incarnation != incarnation:
            return
        self.sim.mark(f"directed-{kind.replace('_', '-')}")
        self.crash(node, midst=midst)

    def crash(self, node: "SimNode", *, midst: int = 0, back_ms: int | None = None) -> None:
        """Let a node crash and come back: at once, or within so many disk operations."""
        random, fault_injector = self.random, self.fault_injector
        assert fault_injector is not None
        loses = random.random() < POWER_SHARE and self.may_lose_power(node)
        if loses:
            fault_injector.note_loss(node)
        back_us = random.randrange(20, back_ms or random.choice(BACK_MS)) * MS

        def back() -> None:
            self.later(back_us, node.restart)

        if midst:
            node.crash_within(midst, lose_unflushed=loses, then=back)
        else:
            node.crash(lose_unflushed=loses)
            back()

    def may_lose_power(self, node: "SimNode") -> bool:
        """Tell whether the promise covers it."""
        assert self.fault_injector is not None
        return self.takes_power and self.fault_injector.may_lose_power(node)

    # -- all controllers at once ---------------------------------------------------------------

    def _wish_for_quorum_power(self) -> None:
        self._wants_quorum_power = True

    def _metadata_committed(self, told: MetadataCommitted) -> None:
        """Take the power of all controllers a moment after one of them has answered a commit."""
        if not self._wants_quorum_power:
            return
        controllers = [each for each in self.sim.nodes.values() if each.is_controller]
        if told.node not in {each.id for each in controllers} or told.batch.control:
            return
        self._wants_quorum_power = False
        if any(each.is_broker for each in controllers):
            return  # The bound for brokers would be broken.
        delay_us = self.random.choice((0, 300, 2_000))
        self.later(delay_us, lambda: self._darken(controllers))

    def _darken(self, controllers: "list[SimNode]") -> None:
        random = self.random
        self.sim.mark("directed-quorum-power")
        for node in controllers:
            node.crash(lose_unflushed=True)
            self.later(random.randrange(20, random.choice(BACK_MS)) * MS, node.restart)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
