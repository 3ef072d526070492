"""A real ZooKeeper keeps what the metadata port promises, and the same facts as memory does.

Method: the checks and the histories of `tests.metadata_port_checks` through kazoo; the controller's
session goes through a gate that ends its connection, with requests and answers on the way.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from random import Random
from typing import TypeVar

import pytest

from ottla.base.pending import Pending
from ottla.base.zookeeper import Create, Operation, Session, SessionState, SetData, ZkError
from ottla.host.steps import Steps, drive_async
from ottla.host.system_ports import LoopTimers, SystemClock
from ottla.host.zookeeper.kazoo.kazoo_session import open_kazoo_session
from ottla.host.zookeeper.persistent import make_persistent
from ottla.host.zookeeper.store.store import ZooKeeperStore
from ottla.host.zookeeper.store.store_reading import reading
from ottla.metadata.brokers import Endpoint
from ottla.metadata.image import ClusterImage
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.broker import BrokerZnode, encode_broker
from ottla.metadata.znodes.controller import encode_controller_epoch
from ottla.metadata.znodes.partition_state import decode_state, encode_state
from ottla.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.zookeeper.gate import Gate
from tests.metadata_port_checks import CHECKS, History, PortBench
from tests.unit.host.zookeeper.port_benches import MemoryBench

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
SESSION_TIMEOUT_MS = 10_000


class ServerBench:
    """A controller's store over a real server, on a loop that runs while something is awaited."""

    has_other_writers = True

    def __init__(self, zookeeper: ZooKeeperServer, chroot: str, number: int = 0) -> None:
        self._chroot = chroot
        self._port = int(zookeeper.connect.rpartition(":")[2])
        self._loop = asyncio.new_event_loop()
        self._random = Random(number)
        self._gate = Gate(self._port)
        self._gate.__enter__()
        self._sessions: list[Session] = []
        self._brokers: dict[int, Session] = {}
        self._epoch_version = 0
        self.clock = SystemClock()
        self.timers = LoopTimers(self._loop, self.clock)
        self.epoch = 1
        self._tool = self.open(self._port)
        self._walk(make_persistent(self._tool))
        self.write(Create(paths.CONTROLLER_EPOCH, encode_controller_epoch(self.epoch)))
        self.port = self._store(self.open(self._gate.port))

    def _store(self, session: Session) -> ZooKeeperStore:
        store = ZooKeeperStore(
            session,
            epoch=self.epoch,
            epoch_version=self._epoch_version,
            clock=self.clock,
            timers=self.timers.timers,
        )
        assert self.wait(store.load()) is None
        return store

    def open(self, port: int) -> Session:
        """Return a connected session."""
        session = open_kazoo_session(
            f"127.0.0.1:{port}{self._chroot}",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            connection_timeout_ms=SESSION_TIMEOUT_MS,
            loop=self._loop,
        )(lambda state: None)
        self._sessions.append(session)
        self._until(lambda: session.state is SessionState.CONNECTED)
        return session

    def write(self, *operations: Operation, session: Session | None = None) -> None:
        """Write as somebody who is no controller."""
        answer = self.wait((session or self._tool).multi(operations))
        assert not isinstance(answer, ZkError), answer

    def _walk(self, steps: Steps[T]) -> T:
        return self._loop.run_until_complete(drive_async(steps))

    def _until(self, holds: Callable[[], bool]) -> None:
        end = self._loop.time() + PATIENCE_SECONDS
        while not holds():
            assert self._loop.time() < end, "it does not come"
            self._loop.run_until_complete(asyncio.sleep(0.002))

    # -- PortBench -----------------------------------------------------------------------------

    def wait(self, pending: Pending[T]) -> T:
        self._until(lambda: pending.done)
        return pending.value

    def set_brokers(self, live: Collection[int]) -> None:
        for broker_id in sorted(set(self._brokers) - set(live)):
            self.wait(self._brokers.pop(broker_id).close())
        for broker_id in sorted(set(live) - set(self._brokers)):
            session = self._brokers[broker_id] = self.open(self._port)
            endpoint = Endpoint("PLAINTEXT", "localhost", 9091 + broker_id)
            data = encode_broker(BrokerZnode(endpoints=(endpoint,)))
            self.write(Create(paths.broker(broker_id), data, ephemeral=True), session=session)
        self._until(lambda: set(self.port.image.brokers) == set(live))

    def stored(self) -> ClusterImage:
        session = self.open(self._port)
        image = self._store(session).image
        self.wait(session.close())
        return image

    def depose(self) -> None:
        self.write(SetData(paths.CONTROLLER_EPOCH, encode_controller_epoch(self.epoch + 1)))
        self._epoch_version += 1

    def disturb(self, topic: str) -> None:
        path = paths.state(topic, 0)
        got = self._walk(reading(self._tool.get(path)))
        state = decode_state(topic, 0, got.data)
        after = type(state)(
            leader=state.leader,
            leader_epoch=state.leader_epoch + 1,
            controller_epoch=state.controller_epoch,
            isr=state.isr,
        )
        self.write(SetData(path, encode_state(after)))

    @contextmanager
    def losing_answers(self) -> Iterator[None]:
        def cut() -> None:
            nonlocal handle
            self._gate.cut()
            handle = self._loop.call_later(self._random.uniform(0.05, 0.25), cut)

        handle = self._loop.call_later(0.0, cut)
        yield
        # All may have been answered before the first cut.
        self._until(lambda: self._gate.connections > 1)
        handle.cancel()

    def end(self) -> None:
        closed = [session.close() for session in self._sessions]
        self._until(lambda: all(each.done for each in closed))
        self._gate.__exit__(None, None, None)
        self.timers.close()
        self._loop.close()


@pytest.fixture
def make_bench(zookeeper: ZooKeeperServer, chroot: str) -> Iterator[Callable[[int], ServerBench]]:
    benches: list[ServerBench] = []

    def make(number: int) -> ServerBench:
        benches.append(ServerBench(zookeeper, f"{chroot}/{len(benches)}", number))
        return benches[-1]

    yield make
    for bench in benches:
        bench.end()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_real_server_keeps_the_contract(
    check: Callable[[PortBench], None], make_bench: Callable[[int], ServerBench]
) -> None:
    check(make_bench(0))


@pytest.mark.forms(1)
@pytest.mark.parametrize("number", range(3))
def test_the_same_decisions_give_the_same_facts(
    number: int, make_bench: Callable[[int], ServerBench]
) -> None:
    assert History(make_bench(number), number).play(40) == History(MemoryBench(), number).play(40)


def test_a_history_with_lost_connections_ends_where_the_znodes_are(
    make_bench: Callable[[int], ServerBench],
) -> None:
    bench = make_bench(5)
    history = History(bench, 5)
    with bench.losing_answers():
        for _ in range(30):
            history.random.choice(history.MOVES)(history)
    history.check()
