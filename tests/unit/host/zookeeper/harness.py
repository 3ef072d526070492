"""Clients of a simulated ZooKeeper in virtual time, tools that write znodes, and a controller."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TypeVar

from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.base.zookeeper import Create, Delete, Operation, Session, SessionState, SetData, ZkError
from ottla.controller.metadata_port import Appended
from ottla.controller.step import Decision, Step
from ottla.host.controller.controller_runtime import ControllerRuntime
from ottla.host.steps import drive
from ottla.host.zookeeper.persistent import make_persistent
from ottla.host.zookeeper.session_keeper import SessionKeeper
from ottla.host.zookeeper.store.store import ZooKeeperStore
from ottla.metadata.brokers import Endpoint
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.records import Record
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.broker import BrokerZnode, encode_broker
from ottla.metadata.znodes.controller import decode_controller_epoch, encode_controller_epoch
from ottla.metadata.znodes.partition_state import StateZnode, encode_state
from ottla.metadata.znodes.topic import Assignment, encode_topic
from ottla.testing.sim.scheduler import Process, Scheduler, SimClock, SimTimers
from ottla.testing.sim.zookeeper.zookeeper import ZooKeeperModel
from ottla.testing.sim.zookeeper.zookeeper_session import session_opener

T = TypeVar("T")

MS = 1000
SESSION_MS = 6_000


class Client:
    """One process and its sessions."""

    def __init__(self, sim: "ZooKeeperHarness", name: str) -> None:
        self.sim = sim
        self.name = name
        self.process = Process(name)
        self.clock = SimClock(sim.scheduler)
        self.timers = SimTimers(sim.scheduler, self.clock, self.process)
        self.open_session = session_opener(
            sim.model, name, self.process, session_timeout_ms=SESSION_MS
        )
        self.keeper = SessionKeeper(self.open_session, clock=self.clock, timers=self.timers)

    def session(self) -> Session:
        """Return a connected session of its own, beside the keeper's."""
        session = self.open_session(lambda state: None)
        self.sim.until(lambda: session.state is SessionState.CONNECTED)
        return session

    def start(self) -> Session:
        """Start the keeper; return its session."""
        self.sim.wait(self.keeper.start())
        assert self.keeper.session is not None
        return self.keeper.session


class ZooKeeperHarness:
    """The ensemble, and the passing of time. `tool`: a session of an operator's tool."""

    def __init__(self, seed: int = 0) -> None:
        self.failures: list[BaseException] = []
        self.scheduler = Scheduler(lambda name, error: self.failures.append(error))
        self.model = ZooKeeperModel(self.scheduler, Random(seed))
        self.tool = Client(self, "tool").session()

    def client(self, name: str) -> Client:
        """Return a new process."""
        return Client(self, name)

    # -- time ----------------------------------------------------------------------------------

    def run(self, ms: int) -> None:
        """Let time pass."""
        self.scheduler.run_until(self.scheduler.now_us + ms * MS)
        if self.failures:
            raise self.failures[0]

    def until(self, condition: Callable[[], bool], limit_ms: int = 60_000) -> None:
        """Let time pass until something is so."""
        end_us = self.scheduler.now_us + limit_ms * MS
        while not condition():
            assert self.scheduler.now_us < end_us, "it does not come"
            self.run(1)

    def wait(self, pending: Pending[T]) -> T:
        """Let time pass until a promise is kept."""
        self.until(lambda: pending.done)
        return pending.value

    def settle(self) -> None:
        """Let all that is under way arrive, and what follows from it."""
        self.run(1_000)

    def drive(self, steps: Any) -> Any:
        """Run steps to their end; return the result."""
        ended: Pending[Any] = Pending()
        drive(steps, lambda outcome: _unused(ended.complete(outcome)))
        outcome = self.wait(ended)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    # -- what tools do -------------------------------------------------------------------------

    def make_cluster(self) -> None:
        """Make the znodes that are always there."""
        self.drive(make_persistent(self.tool))

    def write(self, *operations: Operation) -> None:
        """Write as a tool."""
        answer = self.wait(self.tool.multi(operations))
        assert not isinstance(answer, ZkError), answer

    def put(self, path: str, data: bytes) -> None:
        """Set a node, made where it is missing."""
        self.write(SetData(path, data) if self.data(path) is not None else Create(path, data))

    def delete(self, path: str) -> None:
        """Delete a node and all below it."""
        for name in self.names(path):
            self.delete(f"{path}/{name}")
        self.write(Delete(path))

    def replace_parent(self, path: str) -> tuple[Operation, ...]:
        """Return the writes that delete a node with its children, and create it again."""
        children = [Delete(f"{path}/{name}") for name in self.names(path)]
        return (*children, Delete(path), Create(path))

    def data(self, path: str) -> bytes | None:
        """Return what a node holds; None where there is none."""
        node = self.model.tree.nodes.get(path)
        return None if node is None else node.data

    def version(self, path: str) -> int:
        """Return a node's version."""
        return self.model.tree.nodes[path].version

    def names(self, path: str) -> list[str]:
        """Return the names of a node's children."""
        answer = self.model.tree.children(path)
        return [] if isinstance(answer, ZkError) else list(answer)

    def register(self, broker_id: int, session: Session | None = None) -> Session:
        """Register a broker, with a session of its own; return that."""
        used = session or self.client(f"broker {broker_id}").session()
        endpoint = Endpoint("PLAINTEXT", "localhost", 9091 + broker_id)
        data = encode_broker(BrokerZnode(endpoints=(endpoint,), timestamp_ms=1))
        operation = Create(paths.broker(broker_id), data, ephemeral=True)
        answer = self.wait(used.multi((operation,)))
        assert not isinstance(answer, ZkError), answer
        return used

    def put_topic(
        self, name: str, replicas: Iterable[tuple[int, ...]], topic_id: Uuid | None = None
    ) -> None:
        """Write a topic's assignment, as a tool that creates one does."""
        assignments = enumerate(Assignment(each) for each in replicas)
        self.put(paths.topic(name), encode_topic(assignments, topic_id))

    def put_state(self, name: str, number: int, state: StateZnode) -> None:
        """Write a partition's state."""
        for path in (paths.partitions(name), paths.partition(name, number)):
            if self.data(path) is None:
                self.put(path, b"")
        self.put(paths.state(name, number), encode_state(state))

    # -- controllers ---------------------------------------------------------------------------

    def elect(self, client: Client, *, rules: bool = True) -> "Controller":
        """Make a client's controller active, without an election; `rules` False = only read, with
        the epoch of the active one."""
        if self.data(paths.CONTROLLER_EPOCH) is None:
            self.put(paths.CONTROLLER_EPOCH, encode_controller_epoch(0))
        stored = self.data(paths.CONTROLLER_EPOCH)
        assert stored is not None
        epoch = decode_controller_epoch(stored) + rules
        if rules:
            self.put(paths.CONTROLLER_EPOCH, encode_controller_epoch(epoch))
        return Controller(self, client, epoch, self.version(paths.CONTROLLER_EPOCH))


class Controller:
    """A store and its runtime in one term."""

    def __init__(self, sim: ZooKeeperHarness, client: Client, epoch: int, version: int) -> None:
        self.sim = sim
        self.client = client
        self.epoch = epoch
        self.deltas: list[ClusterDelta] = []
        self.fenced = 0
        self.session = client.session()
        self.store = ZooKeeperStore(
            self.session,
            epoch=epoch,
            epoch_version=version,
            clock=client.clock,
            timers=client.timers,
        )
        self.store.subscribe(self.deltas.append)

    def load(self) -> "Controller":
        """Load the store and begin to decide."""
        answer = self.sim.wait(self.store.load())
        assert answer is None, answer
        self.runtime = ControllerRuntime(
            self.store, epoch=self.epoch, clock=self.client.clock, on_fenced=self._fenced
        )
        return self

    def _fenced(self) -> None:
        self.fenced += 1

    def run(self, decide: Callable[[Any], Decision[T]]) -> Any:
        """Decide; return the answer."""
        return self.sim.wait(self.runtime.run(decide))

    def append(self, *records: Record, atomic: bool = True) -> Appended:
        """Append records as they are; return the store's answer."""
        answer = self.sim.wait(self.store.append(Step(records, atomic=atomic), self.epoch))
        assert not isinstance(answer, Exception), answer
        return answer

    def reloaded(self) -> ZooKeeperStore:
        """Return a fresh store of the same epoch, loaded: what is stored, and nothing else."""
        other = Controller(self.sim, self.client, self.epoch, self.store._epoch_version)
        return other.load().store


def _unused(_value: object) -> None:
    """Drop an unused value."""
