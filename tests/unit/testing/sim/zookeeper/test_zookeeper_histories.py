"""Whatever happens to connections, sessions and servers, a session's promises hold.

Method: seeded histories of several clients over the model, with all faults, checked: responses in
the order of the requests; a write reported as failed or done is that in the tree, one with
CONNECTION_LOSS may be either, and the next response settles which; a watch fires at most once, and
before a response that shows its change; nothing outlives its session; the same seed gives the same
history.
"""

from collections import Counter
from random import Random
from typing import Any

import pytest

from ottla.base.zookeeper import (
    Check,
    Create,
    Delete,
    Event,
    Operation,
    Session,
    SessionState,
    SetData,
    ZkCode,
    ZkError,
    ZnodeData,
)
from ottla.testing.sim.scheduler import Process, Scheduler
from ottla.testing.sim.zookeeper.zookeeper import Written, ZooKeeperModel
from ottla.testing.sim.zookeeper.zookeeper_session import session_opener
from ottla.testing.sim.zookeeper.zookeeper_wire import MS

NAMES = ["/a", "/b", "/a/x", "/a/y", "/b/x"]
TIMEOUT_MS = 3_000
CLIENTS = 4


class Client:
    """Sends random requests, checks the responses; opens a new session after one ends."""

    def __init__(self, history: "History", name: str) -> None:
        self.history, self.name = history, name
        self.process = Process(name)
        self.requested = self.answered = self.sessions = 0
        self.fired: Counter[int] = Counter()
        self.lost: list[str] = []
        """Writes with CONNECTION_LOSS: the next read's response shows whether they were done."""
        self.watches: dict[int, tuple[str, int]] = {}
        """Data watches that have not fired: their path, and the mzxid seen when they were set."""
        self.session: Session
        self.open()

    def open(self) -> None:
        self.sessions += 1
        self.requested = self.answered = 0
        self.watches.clear()
        number = self.sessions
        opener = session_opener(
            self.history.model, self.name, self.process, session_timeout_ms=TIMEOUT_MS
        )
        self.session = opener(lambda state: self.became(number, state))

    def became(self, number: int, state: SessionState) -> None:
        self.history.record(f"{self.name}.{number} {state.value}")
        if state is SessionState.EXPIRED:
            self.history.marks["expired"] += 1
            self.history.scheduler.after(10 * MS, self.open, self.process)

    def act(self) -> None:
        random = self.history.random
        kind, path = (
            random.choice(("get", "exists", "children", "write", "write")),
            random.choice(NAMES),
        )
        number, of_session = self.requested, self.sessions
        self.requested += 1
        if kind == "write":
            operations = self.history.operations(self.name, path)
            self.session.multi(operations).then(
                lambda answer: self.wrote(of_session, number, operations, answer)
            )
            return
        mark = random.randrange(1 << 60)
        watch = (lambda event: self.fire(mark, event)) if random.random() < 0.5 else None
        ask: Any = getattr(self.session, kind)
        ask(path, watch).then(
            lambda answer: self.read(
                of_session, number, kind, path, mark if watch else None, answer
            )
        )

    def in_order(self, of_session: int, number: int) -> None:
        if of_session == self.sessions:
            assert number == self.answered, "answers out of order"
            self.answered += 1

    def wrote(
        self, of_session: int, number: int, operations: tuple[Operation, ...], answer: Any
    ) -> None:
        self.in_order(of_session, number)
        marker = operations[0].path
        done = marker in self.history.done
        if not isinstance(answer, ZkError):
            assert done, "reported as done, and is not"
            self.history.marks["done"] += 1
        elif answer.code in (ZkCode.CONNECTION_LOSS, ZkCode.SESSION_EXPIRED):
            self.history.marks[f"{answer.code.name} {done}"] += 1
            if answer.code is ZkCode.CONNECTION_LOSS:
                self.lost.append(marker)
        else:
            assert not done, "reported as failed, and is done"
            assert answer.index is not None
            self.history.marks["refused"] += 1
        self.history.record(f"{self.name} wrote {marker} {answer!r}")

    def read(
        self, of_session: int, number: int, kind: str, path: str, mark: int | None, answer: Any
    ) -> None:
        self.in_order(of_session, number)
        self.history.record(f"{self.name} read {kind} {path} {answer!r}")
        if of_session == self.sessions and self.session.state is SessionState.CONNECTED:
            self.history.settled |= {each for each in self.lost if each not in self.history.done}
            self.lost.clear()
        mzxid = answer.stat.mzxid if isinstance(answer, ZnodeData) else None
        if mzxid is not None:
            for watched, seen in self.watches.values():
                assert watched != path or seen == mzxid, "an answer before the watch that it shows"
            if mark is not None and of_session == self.sessions:
                self.watches[mark] = (path, mzxid)

    def fire(self, mark: int, event: Event) -> None:
        self.fired[mark] += 1
        assert self.fired[mark] == 1, "a watch fired twice"
        self.watches.pop(mark, None)
        self.history.marks["fired"] += 1
        self.history.record(f"{self.name} event {event}")


class History:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"{seed}/history")
        self.trace: list[str] = []
        self.marks: Counter[str] = Counter()
        self.done: set[str] = set()
        self.settled: set[str] = set()
        self.numbers = 0
        self.last_zxid = 0
        self.failures: list[str] = []
        self.scheduler = Scheduler(lambda where, error: self.failures.append(f"{where}: {error!r}"))
        self.model = ZooKeeperModel(self.scheduler, Random(seed), trace=self.record, mark=self.mark)
        self.model.faults.slow, self.model.faults.broken = 0.05, 0.02
        self.model.observe(self.written)
        boot = session_opener(self.model, "boot")(lambda state: None)
        boot.multi([Create("/done")])
        self.scheduler.run_until(1_000 * MS)
        self.clients = [Client(self, f"client {number}") for number in range(CLIENTS)]

    def mark(self, name: str) -> None:
        self.marks[name] += 1

    def record(self, text: str) -> None:
        self.trace.append(f"{self.scheduler.now_us} {text}")

    def operations(self, name: str, path: str) -> tuple[Operation, ...]:
        """Return a write that leaves its own marker, where it is done."""
        self.numbers += 1
        random = self.random
        ephemeral = path in NAMES[2:] and random.random() < 0.5
        data = name.encode()
        rest: tuple[Operation, ...] = (
            Create(path, data, ephemeral=ephemeral),
            SetData(path, data, random.choice((-1, -1, 0, 1))),
            Delete(path),
            Check(path, 0),
        )
        return (Create(f"/done/{self.numbers}"), random.choice(rest))

    def written(self, written: Written) -> None:
        assert written.zxid > self.last_zxid
        self.last_zxid = written.zxid
        if written.client is None:
            return
        assert written.session in self.model.sessions, "a session that is over writes"
        first = written.operations[0]
        if first.path.startswith("/done/"):
            assert first.path not in self.done, "done twice"
            assert first.path not in self.settled, "done after a read showed that it was not"
            self.done.add(first.path)
        owned = {node.ephemeral_owner for node in self.model.tree.nodes.values()} - {0}
        assert owned <= set(self.model.sessions), "a node outlived its session"

    def harm(self) -> None:
        random, model = self.random, self.model
        client = random.choice(self.clients)
        kind = random.randrange(7)
        if kind == 0:
            model.cut(client.name)
        elif kind == 1:
            model.hold_answers(client.name)
        elif kind == 2:
            model.break_connection(client.name)
        elif kind == 3 and random.random() < 0.3:
            model.expire(client.session.id)
        elif kind == 4 and random.random() < 0.3:
            model.down(silently=random.random() < 0.5)
            self.scheduler.after(random.randrange(4_000) * MS, model.up)
        elif kind == 5 and not client.process.paused:
            client.process.paused = True
            pause_us = random.choice((500, 2_000, 6_000)) * MS
            self.scheduler.after(pause_us, lambda: self.scheduler.resume(client.process))
        else:
            for each in self.clients:
                model.heal(each.name)

    def play(self) -> "History":
        for _ in range(400):
            self.scheduler.run_until(self.scheduler.now_us + self.random.randrange(60) * MS)
            client = self.random.choice(self.clients)
            if client.process.alive:
                self.scheduler.after(0, client.act, client.process)
            if self.random.random() < 0.1:
                self.harm()
        self.model.heal_all()
        for client in self.clients:
            self.scheduler.resume(client.process)
        self.scheduler.run_until(self.scheduler.now_us + 30_000 * MS)
        return self


@pytest.mark.parametrize("seed", range(12))
def test_promises_hold_under_every_fault(seed: int) -> None:
    history = History(seed).play()
    assert history.failures == []
    for client in history.clients:
        assert client.session.state is SessionState.CONNECTED
        assert client.requested == client.answered, "not everything was answered"
    assert History(seed).play().trace == history.trace


def test_histories_reach_what_they_are_for() -> None:
    marks: Counter[str] = Counter()
    for seed in range(12):
        marks += History(seed).play().marks
    for name in (
        "done",
        "refused",
        "fired",
        "expired",
        "CONNECTION_LOSS True",
        "CONNECTION_LOSS False",
        "zookeeper-cut",
        "zookeeper-down",
        "zookeeper-watch-missed",
        "zookeeper-session-expired",
        "zookeeper-connection-broken",
    ):
        assert marks[name] > 3, (name, marks)
