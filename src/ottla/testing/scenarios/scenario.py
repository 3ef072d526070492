"""A scenario: a cluster, its faults, and a story that is played on it.

The story is a dialogue over a `Story`: it creates topics, starts clients and acts on nodes, in
virtual time. See docs/simulator.md.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import Error
from ottla.base.pending import Pending
from ottla.records.compression import Codec
from ottla.testing.checkers.verdict import CHECKERS, Tolerance
from ottla.testing.history.history import ACKS_ALL, History
from ottla.testing.sim import Faults, StoreFaults
from ottla.testing.sim.scheduler import Process, SimDice
from ottla.testing.sim.transaction_port import TransactionPort
from ottla.testing.sim_clients import (
    Admin,
    Backfiller,
    Consumer,
    Dialogue,
    PatientClient,
    Producer,
    SimClient,
    TierReader,
    TopicSpec,
    TransactionWriter,
)

if TYPE_CHECKING:
    from ottla.testing.sim import Sim

SECONDS = 120
SETTLE_SECONDS = 90
"""How long after healing a cluster may take until all clients are served and all replicas agree.

A request on a silent connection times out after replica.socket.timeout.ms, 30 s; if it was a
follower's, that follower catches up only after that.
"""


class ScenarioFailed(Exception):
    """A scenario cannot be played because of an error of its own."""


def _no_file(path: str) -> bytes:
    raise FileNotFoundError(path)


class RunningGroups(Protocol):
    """The consumer groups of a story, as far as its end has to know them."""

    @property
    def is_done(self) -> bool: ...

    def stop(self) -> None: ...


class Story:
    """What a story acts on.

    Fields: `sim`: the simulation, with its `nodes`; `admin`: creates and changes topics.
    """

    def __init__(self, sim: "Sim", history: History) -> None:
        self.sim = sim
        self.history = history
        self.topics: dict[str, TopicSpec] = {}
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.patient_clients: list[PatientClient] = []
        self.tier_readers: list[TierReader] = []
        self.transaction_writers: list[TransactionWriter] = []
        self.backfillers: list[Backfiller] = []
        self.groups: RunningGroups | None = None
        self.admin = Admin(self.client("admin"))
        self._expected: set[str] = set()

    @property
    def now_ms(self) -> int:
        """Virtual milliseconds since the start."""
        return self.sim.clock.monotonic_ms()

    @property
    def is_over(self) -> bool:
        """Tell whether the cluster is healed and works: nothing more is to be changed.

        `admin` sends nothing from then on.
        """
        return self.admin.is_stopped

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The nodes that are brokers, whether they run or not."""
        return tuple(sorted(node.id for node in self.sim.nodes.values() if node.is_broker))

    def run(self, dialogue: Dialogue[object]) -> Pending[object]:
        """Start another dialogue, concurrent with the story."""
        return self.admin.client.run(dialogue)

    def create(self, spec: TopicSpec) -> Dialogue[None]:
        """Create a topic. After healing, what the story's clients do with it must work again."""
        error = yield from self.admin.create(spec)
        if error is not Error.NONE:
            raise ScenarioFailed(f"topic {spec.name} is refused: {error.name}")
        self.topics[spec.name] = spec

    def produce(
        self,
        topic: TopicSpec,
        *,
        clients: int = 1,
        interval_ms: int = 100,
        idempotent: bool = True,
        in_flight_max: int = 5,
        acks: int = ACKS_ALL,
        keys: int = 0,
        codec: Codec = Codec.NONE,
        steady: bool = True,
    ) -> None:
        """Let producers write to a topic until the end of the run.

        Fields: `acks`, `keys`, `codec`: see `Producer`. `steady`: the topic stays, so that each
                partition must take writes after healing.
        """
        for _each in range(clients):
            producer = Producer(
                self.client(f"producer-{len(self.producers) + 1}"),
                topic.name,
                idempotent=idempotent,
                interval_ms=interval_ms,
                in_flight_max=in_flight_max,
                acks=acks,
                keys=keys,
                codec=codec,
            )
            self.producers.append(producer)
            producer.begin()
        if steady:
            self._expect("writes to", topic)

    def consume(
        self, topic: TopicSpec, *, interval_ms: int = 500, resets: bool = False, steady: bool = True
    ) -> Consumer:
        """Let a consumer read a topic from its start until the end of the run."""
        consumer = Consumer(
            self.client(f"consumer-{len(self.consumers) + 1}"),
            topic.name,
            interval_ms=interval_ms,
            resets=resets,
        )
        self.consumers.append(consumer)
        consumer.begin()
        if steady:
            self._expect("reads of", topic)
        return consumer

    def read_tiers(
        self,
        topic: TopicSpec,
        *,
        rack: str = "",
        interval_ms: int = 10_000,
        max_bytes: int = 1 << 20,
        committed_only: bool = False,
        steady: bool = True,
    ) -> TierReader:
        """Let a consumer read a topic from its earliest offset to its end, again and again.

        `committed_only`: with `isolation.level=read_committed`.
        """
        reader = TierReader(
            self.client(f"tier-reader-{len(self.tier_readers) + 1}"),
            topic.name,
            rack=rack,
            interval_ms=interval_ms,
            max_bytes=max_bytes,
            committed_only=committed_only,
        )
        self.tier_readers.append(reader)
        reader.begin()
        if steady:
            self._expect("full reads of", topic)
        return reader

    def write_transactions(self, topic: TopicSpec, *, interval_ms: int = 200) -> TransactionWriter:
        """Let a producer write transactions to a topic until the end of the run."""
        number = len(self.transaction_writers) + 1
        writer = TransactionWriter(
            self.client(f"transactions-{number}"),
            topic.name,
            append=TransactionPort(self.sim).append,
            number=number,
            interval_ms=interval_ms,
        )
        self.transaction_writers.append(writer)
        writer.begin()
        return writer

    def backfill(
        self,
        topic: TopicSpec,
        *,
        lease_ms: int = 10_000,
        interval_ms: int = 1_000,
        mishap_in: int = 0,
    ) -> Backfiller:
        """Let another process copy a topic's segments, by grants of their leaders, until the end.

        `mishap_in`: one copy of so many has a mishap; 0 = none.
        """
        name = f"backfiller-{len(self.backfillers) + 1}"
        sim = self.sim
        backfiller = Backfiller(
            self.client(name, Random(f"{sim.seed}/{name}")),
            topic.name,
            store=sim.object_store.client(Process(name), clock=sim.clock, read_file=_no_file),
            lease_ms=lease_ms,
            interval_ms=interval_ms,
            mishap_in=mishap_in,
            mark=sim.mark,
        )
        self.backfillers.append(backfiller)
        backfiller.begin()
        return backfiller

    def ask(self, *, interval_ms: int = 3_000) -> None:
        """Start a client that sends many kinds of requests with a very long timeout."""
        random = Random(f"{self.sim.seed}/asker")
        patient_client = PatientClient(self.client("asker"), random, interval_ms=interval_ms)
        self.patient_clients.append(patient_client)
        patient_client.begin()

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition in the committed metadata; -1 = none."""
        image = self.sim.image
        found = image.topics.by_name(topic)
        known = None if found is None else found.partitions.get(partition)
        return -1 if known is None else known.leader

    def expected(self) -> list[str]:
        """Return what must make progress after healing."""
        return sorted(self._expected)

    def expect(self, what: Iterable[str]) -> None:
        """Require that each of these makes progress after healing."""
        self._expected |= set(what)

    def _expect(self, what: str, topic: TopicSpec) -> None:
        self.expect(f"{what} {topic.name}-{each}" for each in range(topic.partitions))

    def client(self, name: str, random: Random | None = None) -> SimClient:
        """Return a new client; `random`: its random stream."""
        sim = self.sim
        return SimClient(
            name,
            port=sim.client_port(name),
            nodes=self.broker_ids,
            timers=sim.timers,
            clock=sim.clock,
            dice=sim.dice if random is None else SimDice(random),
            history=self.history,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What `ottla sim` plays.

    Fields: `story`: the dialogue; it may end early or go on for ever. `zookeeper`: brokers over a
            model of ZooKeeper, instead of controllers of their own. `faults`: what goes wrong
            besides; of `Faults.ROUGH` the seed draws a mix. `store_faults`: the same of the object
            store, which the nodes have if `config` says so. `seconds`: virtual time until healing;
            `ends_with_story`: or until the end of the story, if that comes first.
            `settle_seconds`: how long healing may take. `acknowledged_min`: a run with fewer
            acknowledged writes proves nothing. `checkers`, `tolerated`: see `checkers_verdict`.
    """

    name: str
    story: Callable[[Story], Dialogue[None]]
    brokers: int = 3
    controllers: int = 3
    combined: bool = False
    zookeeper: bool = False
    faults: Faults = Faults.NONE
    store_faults: StoreFaults = StoreFaults.NONE
    config: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    seconds: float = SECONDS
    ends_with_story: bool = False
    settle_seconds: float = SETTLE_SECONDS
    acknowledged_min: int = 1
    checkers: tuple[str, ...] = tuple(CHECKERS)
    tolerated: tuple[Tolerance, ...] = ()
