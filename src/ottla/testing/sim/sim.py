"""A whole cluster in one process and in virtual time: one seed decides everything.

    with Sim(seed=7, faults=Faults.ROUGH) as sim:
        sim.run(ms=120_000)
        sim.heal()
        sim.run_until(lambda: sim.leaderless() == 0, limit_ms=60_000)

The nodes are the product's own, from the request handlers to the files; only clocks, random
numbers, disks, threads and connections are the simulator's. `digest` is a hash of every frame and
ZooKeeper transaction with its time: the same seed gives the same digest, whatever the hash seed of
Python.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from types import TracebackType
from typing import Any

from ottla.base.errors import ApiError
from ottla.base.ids import NO_LEADER, Uuid
from ottla.base.pending import Pending
from ottla.host.node_ports import Address
from ottla.metadata.delta import ClusterDelta, delta_between
from ottla.metadata.image import EMPTY, ClusterImage, PartitionImage
from ottla.testing.sim.disk import is_fault
from ottla.testing.sim.faults.directed import directed_faults, directed_tuning
from ottla.testing.sim.faults.fault_injector import FaultInjector
from ottla.testing.sim.faults.faults import Faults
from ottla.testing.sim.faults.store_faults import StoreFaultInjector, StoreFaults
from ottla.testing.sim.layout import layout, tuning, zookeeper_layout, zookeeper_tuning
from ottla.testing.sim.net import MS, Network
from ottla.testing.sim.node import SimNode
from ottla.testing.sim.object_store import ObjectStoreModel
from ottla.testing.sim.scheduler import Scheduler, SimClock, SimDice, SimTimers
from ottla.testing.sim.transport import CheckedChannel, links_from
from ottla.testing.sim.watch.deletions import follow_deletions
from ottla.testing.sim.watch.marks import marks_of_change
from ottla.testing.sim.watch.observations import (
    Observer,
    PartitionSet,
    QuorumLed,
    TieringSet,
)
from ottla.testing.sim.zookeeper.zookeeper_mode import (
    FLUSHED,
    SimZooKeeper,
    flushes_everything,
    within_zookeeper_guarantees,
)

CALM_MS = 3_000
"""How long after the start of the cluster faults begin."""

CHECK_US = 5 * MS
"""How often `run_until` checks its predicate."""


class NoProgress(AssertionError):
    """A condition did not become true in time."""


class Sim:
    """One history of one cluster.

    Fields: `nodes`: by id. `faults`: what this seed drew. `marks`: how often a rare path was
            reached. `problems`: (time, where, what) of errors that must never happen in a node.
            `timers`, `clock`, `dice`: for clients; never paused, never late.
    """

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 3,
        controllers: int = 3,
        combined: bool = False,
        zookeeper: bool = False,
        faults: Faults = Faults.NONE,
        store_faults: StoreFaults = StoreFaults.NONE,
        config: Mapping[str, str] | None = None,
    ) -> None:
        given = dict(config or {})
        self._made_of = (
            (seed, brokers, controllers, combined, zookeeper),
            (faults, store_faults, given),
        )
        self.seed = seed
        self.marks: Counter[str] = Counter()
        self.problems: list[tuple[int, str, str]] = []
        self.scheduler = Scheduler(self.problem)
        self.faults = faults.mix(self._stream("faults"))
        self.net = Network(self.scheduler, self._stream("network"), self._frame)
        self.net.marks = self.mark
        self.clock = SimClock(self.scheduler)
        self.timers = SimTimers(self.scheduler, self.clock)
        self.dice = SimDice(self._stream("clients"))
        self.object_store = ObjectStoreModel(self.scheduler, self._stream("object store"))
        """Where the nodes keep the remote tier, if they have one."""
        self.store_faults = self._store_fault_injector(store_faults)
        self.image: ClusterImage = EMPTY
        """The newest metadata that any controller has committed."""
        self.partition_leaders: Counter[int] = Counter()
        """How many partitions each broker leads in `image`."""
        self._observers: list[Observer] = []
        self._hash = hashlib.blake2b(digest_size=16)
        self._clients: dict[str, SimClientPort] = {}
        self.zookeeper: SimZooKeeper | None = None
        self._may_lose_power = True
        if zookeeper:
            self.zookeeper = SimZooKeeper(self, self._stream, faults=faults != Faults.NONE)
            self.properties = zookeeper_layout(brokers, config=self._drawn_for_zookeeper(given))
        else:
            drawn = tuning(self._stream("tuning"), self.faults)
            drawn |= directed_tuning(self._stream("directed tuning"), self.faults)
            self.properties = layout(brokers, controllers, combined=combined, config=drawn | given)
        self.directed = directed_faults(self, self._stream("directed"))
        self.net.observe(self.directed.frame)
        self.directed.takes_power = self._may_lose_power
        self.nodes: dict[int, SimNode] = {}
        for properties in self.properties:
            random = self._stream(f"node {properties['node.id']}")
            node = SimNode(self, properties, random, self.directed)
            self.nodes[node.id] = node
        first = next(node for node in self.nodes.values() if node.is_broker)
        self.min_insync_replicas: int = first.config["min.insync.replicas"]
        self._fault_injector: FaultInjector | None = None
        self._handler = _ProblemLog(self)
        self._is_healed = False
        self._begin()

    def _store_fault_injector(self, faults: StoreFaults) -> StoreFaultInjector:
        return StoreFaultInjector(
            self.object_store,
            faults.mix(self._stream("store faults")),
            self._stream("store outages"),
            self.mark,
        )

    def _begin(self) -> None:
        """Schedule the start of the nodes, and later that of the faults."""
        starts = self._stream("starts")
        for node in self.nodes.values():
            self.scheduler.after(starts.randrange(300 * MS), node.restart)
        self.scheduler.after(CALM_MS * MS, self._begin_faults)

    def _drawn_for_zookeeper(self, given: Mapping[str, str]) -> dict[str, str]:
        """Limit the faults to what this mode guarantees to survive; return the drawn properties."""
        flushed = flushes_everything(self._stream("zookeeper power"), self.faults, given)
        self.faults = within_zookeeper_guarantees(self.faults, flushed=flushed)
        self._may_lose_power = flushed
        drawn = zookeeper_tuning(self._stream("tuning"), self.faults)
        drawn |= directed_tuning(self._stream("directed tuning"), self.faults, zookeeper=True)
        return drawn | dict(given) | (FLUSHED if flushed else {})

    def _stream(self, purpose: str) -> Random:
        """Return a random stream for one purpose: draws from one do not change another."""
        return Random(f"{self.seed}/{purpose}")

    def again(self) -> "Sim":
        """Return a new simulation of the same history, at its start."""
        cluster, (faults, store_faults, config) = self._made_of
        seed, brokers, controllers, combined, zookeeper = cluster
        return Sim(
            seed,
            brokers=brokers,
            controllers=controllers,
            combined=combined,
            zookeeper=zookeeper,
            faults=faults,
            store_faults=store_faults,
            config=config,
        )

    def __enter__(self) -> "Sim":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(f"seed {self.seed}, {self.scheduler.now_ms} ms, faults: {self.faults}")

    # -- time ----------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """Return virtual milliseconds since the start."""
        return self.scheduler.now_ms

    def run(self, ms: int) -> "Sim":
        """Advance the virtual time."""
        with self._handler:
            self.scheduler.run_until(self.scheduler.now_us + ms * MS)
        self._mark_errors()
        return self

    def run_until(self, predicate: Callable[[], bool], limit_ms: int) -> None:
        """Advance the virtual time until something holds. Raises: NoProgress."""
        end_us = self.scheduler.now_us + limit_ms * MS
        with self._handler:
            while not predicate():
                if self.scheduler.now_us >= end_us:
                    raise NoProgress(f"seed {self.seed}: not within {limit_ms} ms")
                self.scheduler.run_until(min(self.scheduler.now_us + CHECK_US, end_us))
        self._mark_errors()

    def _mark_errors(self) -> None:
        for node in self.nodes.values():
            node.mark_errors()

    def _begin_faults(self) -> None:
        if not self._is_healed:
            self.net.faults = self.faults.of_network()
            self._fault_injector = FaultInjector(self, self.faults, self._stream("mischief"))
            self.directed.begin(self._fault_injector)
            self.store_faults.begin()
            if self.zookeeper is not None:
                self.zookeeper.begin_faults()

    def heal(self) -> None:
        """End all faults: heal links and disks, start all nodes."""
        self._is_healed = True
        if self._fault_injector is not None:
            self._fault_injector.stop()
        self.directed.stop()
        self.store_faults.stop()
        self.net.heal()
        if self.zookeeper is not None:
            self.zookeeper.heal()
        for node in self.nodes.values():
            node.pace.slowest_us = 4 * MS
            node.cancel_crash()
            node.disk.capacity = None
            node.disk.faults.clear()
            node.resume()
            if node.broker is not None and node.broker.log_dirs.offline_dirs:
                node.stop(
                    back_after_ms=100
                )  # A failed log directory is used again only after a restart.
            self.scheduler.after(self.net.delay_us(), node.restart)

    # -- clients -------------------------------------------------------------------------------

    @property
    def places(self) -> list[int]:
        """Return all places of the network: node ids, and negative numbers for clients."""
        return [*self.nodes, *(port.place for port in self._clients.values())]

    def client_port(self, name: str) -> "SimClientPort":
        """Return the connections of a client, the same for the same name."""
        if name not in self._clients:
            self._clients[name] = SimClientPort(self, name, -1 - len(self._clients))
        return self._clients[name]

    # -- watching ------------------------------------------------------------------------------

    def observe(self, observer: Observer) -> None:
        """Call `observer` with each observation from now on, as it is made."""
        self._observers.append(observer)

    def notify(self, observation: Any) -> None:
        """Pass an observation to the observers."""
        if isinstance(observation, QuorumLed):
            self.mark("controller-elected")
            self._elected(observation.node)
        for observer in self._observers:
            observer(observation)

    @property
    def fault_injector(self) -> FaultInjector | None:
        """The fault injector; None before faults begin, and after healing."""
        return None if self._is_healed else self._fault_injector

    @property
    def failed_disks(self) -> set[int]:
        """Brokers whose disks were to refuse operations."""
        return set() if self._fault_injector is None else self._fault_injector.failed_disks

    def _elected(self, node_id: int) -> None:
        if self._fault_injector is not None:
            self._fault_injector.elected(node_id)

    def delta(self, delta: ClusterDelta) -> None:
        """Take a committed change from a controller; only the first report of an offset counts."""
        if delta.image.position[0] <= self.image.position[0]:
            return
        before, self.image = self.image, delta.image
        if delta.before.position != before.position:
            delta = delta_between(before, delta.image)  # From a controller that has just started.
        follow_deletions(self, delta)
        for topic in delta.deleted_topics.values():
            for state in topic.partitions.values():
                self.partition_leaders[state.leader] -= 1
        for topic in delta.created_topics.values():
            for number, state in sorted(topic.partitions.items()):
                self._partition_set(topic.name, topic.id, number, None, state)
        for change in delta.changed_topics.values():
            for number in sorted(change.partitions):
                old = before.topics.by_id(change.new.id)
                self._partition_set(
                    change.new.name,
                    change.new.id,
                    number,
                    None if old is None else old.partitions.get(number),
                    change.new.partitions[number],
                )
        for topic_id in sorted(delta.changed_tiering):
            after = delta.image.tiering.get(topic_id)
            if after is not None:
                self.notify(TieringSet(self.now_ms, before.tiering.get(topic_id), after))

    def _partition_set(
        self,
        topic: str,
        topic_id: Uuid,
        number: int,
        old: PartitionImage | None,
        new: PartitionImage,
    ) -> None:
        if old is None or old.leader != new.leader:
            self.partition_leaders[new.leader] += 1
            if old is not None:
                self.partition_leaders[old.leader] -= 1
                if new.leader != NO_LEADER:
                    self._elected(new.leader)
        if old is not None:
            self.marks.update(marks_of_change(old, new))
        offset = self.image.position[0]
        self.notify(PartitionSet(self.now_ms, offset, topic, topic_id, number, old, new))

    def is_whole(self, node_id: int, *, since_incarnation: int) -> bool:
        """Tell whether a broker that lost data has caught up: it is in every ISR it belongs to."""
        node = self.nodes[node_id]
        broker = node.broker
        registered = self.image.brokers.get(node_id)
        if (
            node.incarnation < since_incarnation
            or not node.serves
            or broker is None
            or registered is None
        ):
            return False
        if registered.epoch != broker.epoch or not registered.active:
            return False
        return all(
            node_id in state.isr
            for topic in self.image.topics
            for state in topic.partitions.values()
            if node_id in state.replicas
        )

    def leaderless(self) -> int:
        """Return how many partitions have no leader."""
        return sum(
            state.leader == NO_LEADER
            for topic in self.image.topics
            for state in topic.partitions.values()
        )

    def mark(self, name: str) -> None:
        """Count that a rare path was reached."""
        self.marks[name] += 1

    def problem(self, where: str, error: BaseException | str) -> None:
        """Record an error that must never happen."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self.problems.append((self.now_ms, where, text))

    def note(self, text: str) -> None:
        """Add an event outside the network to the digest."""
        self._hash.update(f"{self.scheduler.now_us} {text}".encode())

    def _frame(self, what: str, source: int, target: int, frame: bytes) -> None:
        self._hash.update(f"{self.scheduler.now_us} {what} {source} {target} ".encode())
        self._hash.update(frame)

    @property
    def digest(self) -> str:
        """Return the hash of the history so far."""
        return self._hash.hexdigest()


class SimClientPort:
    """A client's connections, one to each node."""

    def __init__(self, sim: Sim, name: str, place: int) -> None:
        self.name = name
        self.place = place
        self._sim = sim
        self._connect = links_from(sim.net, place, None)
        self._links: dict[Address, CheckedChannel] = {}

    def send(
        self, to: int | Address, request: object, version: int, timeout_ms: int
    ) -> Pending[Any | ApiError]:
        """Send a request to a node's id or to an address; see `ottla.host.net.channel.Channel`."""
        address = self._sim.nodes[to].address if isinstance(to, int) else to
        link = self._links.get(address)
        if link is None:
            link = self._connect(lambda: address, client_id=self.name)
            self._links[address] = link
        return link.send(request, version, timeout_ms=timeout_ms)

    def close(self) -> None:
        """End all connections."""
        for link in self._links.values():
            link.close()
        self._links.clear()


class _ProblemLog(logging.Handler):
    """Records the errors that the product logs with a traceback, while the simulation runs."""

    def __init__(self, sim: Sim) -> None:
        super().__init__(logging.ERROR)
        self._sim = sim
        self._logger = logging.getLogger("ottla")
        self._before = (self._logger.level, self._logger.propagate)

    def emit(self, record: logging.LogRecord) -> None:
        """Record errors with a traceback, unless a fault of the disk is the cause."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not is_fault(error):
            text = f"{record.getMessage()}: {type(error).__name__}: {error}"
            self._sim.problem(record.name, text)

    def __enter__(self) -> None:
        self._before = (self._logger.level, self._logger.propagate)
        self._logger.addHandler(self)
        # Other levels are not needed, and cost time.
        self._logger.setLevel(logging.ERROR)
        self._logger.propagate = False

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._before[0])
        self._logger.propagate = self._before[1]
