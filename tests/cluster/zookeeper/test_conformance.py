"""kazoo's driver and a real server keep what a session promises.

Method: the checks that the simulator's model passes, too (`tests.zookeeper_checks`). Each session
goes through a gate of its own, so that it can be cut off alone; each check has its own chroot.
"""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from ottla.base.zookeeper import Session, SessionState
from ottla.host.zookeeper.kazoo.kazoo_session import KazooSession, open_kazoo_session
from ottla.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.zookeeper.conftest import SESSION_TIMEOUT_MS
from tests.cluster.zookeeper.gate import Gate
from tests.zookeeper_bench import Bench
from tests.zookeeper_checks import CHECKS

PATIENCE_SECONDS = 60.0


class ServerBench:
    """Sessions with a real server, on a loop that runs while something is waited for."""

    def __init__(self, zookeeper: ZooKeeperServer, chroot: str) -> None:
        self._hosts, self._chroot = zookeeper.connect, chroot
        self._port = int(zookeeper.connect.rpartition(":")[2])
        self._loop = asyncio.new_event_loop()
        self._gates: dict[Session, Gate] = {}

    def open(self, on_state: Callable[[SessionState], None] = lambda state: None) -> Session:
        gate = Gate(self._port)
        gate.__enter__()
        session = open_kazoo_session(
            f"127.0.0.1:{gate.port}{self._chroot}",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            connection_timeout_ms=SESSION_TIMEOUT_MS,
            loop=self._loop,
        )(on_state)
        self._gates[session] = gate
        return session

    def until(self, holds: Callable[[], bool]) -> None:
        end = self._loop.time() + PATIENCE_SECONDS
        while not holds():
            assert self._loop.time() < end, "it does not come"
            self._loop.run_until_complete(asyncio.sleep(0.005))

    def cut(self, session: Session) -> None:
        self._gates[session].shut()

    def heal(self, session: Session) -> None:
        self._gates[session].open()

    def hold_answers(self, session: Session) -> None:
        self._gates[session].hold_answers()

    def expire(self, session: Session) -> None:
        """Let somebody else who knows its id and its password close it."""
        assert isinstance(session, KazooSession)
        other = KazooClient(self._hosts, client_id=session._client.client_id)
        other.start()
        other.stop()
        other.close()

    def end(self) -> None:
        closed = [session.close() for session in self._gates]
        self.until(lambda: all(each.done for each in closed))
        for gate in self._gates.values():
            gate.__exit__(None, None, None)
        self._loop.close()


@pytest.fixture
def bench(zookeeper: ZooKeeperServer, chroot: str) -> Iterator[ServerBench]:
    made = ServerBench(zookeeper, chroot)
    yield made
    made.end()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_real_server_keeps_the_contract(
    check: Callable[[Bench], None], bench: ServerBench
) -> None:
    check(bench)
