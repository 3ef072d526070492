"""The bench of `tests.zookeeper_checks` over the simulator's model: virtual time, one seed."""

from collections.abc import Callable
from random import Random

from ottla.base.zookeeper import Session, SessionState
from ottla.testing.sim.scheduler import Scheduler
from ottla.testing.sim.zookeeper.zookeeper import ZooKeeperModel
from ottla.testing.sim.zookeeper.zookeeper_session import session_opener

TIMEOUT_MS = 6_000
LIMIT_US = 120_000_000


class ModelBench:
    """Each session is a client of its own, so that it can be cut off alone."""

    def __init__(self, seed: int, *, chroot: str = "") -> None:
        self.problems: list[str] = []
        self.scheduler = Scheduler(lambda where, error: self.problems.append(f"{where}: {error!r}"))
        self.model = ZooKeeperModel(self.scheduler, Random(seed))
        self._chroot = chroot
        self._clients: dict[int, str] = {}

    def open(self, on_state: Callable[[SessionState], None] = lambda state: None) -> Session:
        client = f"client {len(self._clients)}"
        session = session_opener(
            self.model, client, session_timeout_ms=TIMEOUT_MS, chroot=self._chroot
        )(on_state)
        self._clients[id(session)] = client
        return session

    def until(self, holds: Callable[[], bool]) -> None:
        end_us = self.scheduler.now_us + LIMIT_US
        while not holds():
            assert self.scheduler.now_us < end_us, "it does not come"
            self.scheduler.run_until(self.scheduler.now_us + 1_000)

    def cut(self, session: Session) -> None:
        self.model.cut(self._clients[id(session)])

    def heal(self, session: Session) -> None:
        self.model.heal(self._clients[id(session)])

    def hold_answers(self, session: Session) -> None:
        client = self._clients[id(session)]
        self.model.hold_answers(client)

    def expire(self, session: Session) -> None:
        self.model.expire(session.id)
