"""Many reads are sent, a bounded number at a time; a node has one watch at a time.

Method: promises that the test keeps by hand; a simulated ZooKeeper for the watches.
"""

from typing import Any

import pytest

from ottla.base.pending import Pending, completed
from ottla.base.zookeeper import Event, EventKind, ZkCode, ZkError
from ottla.host.zookeeper.persistent import make_persistent
from ottla.host.zookeeper.store.store_reading import Watched, read_each
from ottla.metadata.znodes.paths import PERSISTENT
from tests.unit.host.zookeeper.harness import ZooKeeperHarness


def test_reads_are_bounded_and_their_order_is_that_of_the_keys() -> None:
    sent: list[Pending[Any]] = []
    keys: list[int] = []

    def read(key: int) -> Pending[Any]:
        keys.append(key)
        sent.append(Pending())
        return sent[-1]

    found = read_each(range(10), read, limit=3)
    assert keys == [0, 1, 2]
    sent[2].complete("two")
    assert keys == [0, 1, 2, 3]
    while not found.done:
        for number, pending in enumerate(tuple(sent)):
            pending.complete(ZkError(ZkCode.NO_NODE) if number % 2 else f"value {number}")
    value = found.value
    assert isinstance(value, dict)
    assert list(value) == [0, 2, 4, 6, 8]  # What is not there is left out.
    assert value[2] == "two"


def test_answers_that_are_there_at_once_take_no_stack() -> None:
    found = read_each(range(20_000), lambda key: completed(key))
    assert found.value == {key: key for key in range(20_000)}
    assert read_each([], lambda key: completed(key)).value == {}


def test_a_failure_ends_the_reading() -> None:
    asked: list[int] = []

    def read(key: int) -> Pending[int | ZkError]:
        asked.append(key)
        return completed(ZkError(ZkCode.SESSION_EXPIRED) if key == 2 else key)

    outcome = read_each(range(10), read, limit=1).value
    assert isinstance(outcome, ZkError)
    assert asked == [0, 1, 2]


@pytest.fixture
def sim() -> ZooKeeperHarness:
    return ZooKeeperHarness()


def test_a_node_is_watched_once_until_its_watch_has_fired(sim: ZooKeeperHarness) -> None:
    events: list[Event] = []
    watched = Watched(sim.tool, events.append)
    sim.put("/a", b"1")
    for _ in range(3):
        sim.wait(watched.get("/a"))
        sim.wait(watched.children("/a"))
    assert watched.watches_data("/a")
    sim.put("/a", b"2")
    sim.put("/a/child", b"")
    sim.settle()
    assert events == [
        Event(EventKind.DATA_CHANGED, "/a"),
        Event(EventKind.CHILDREN_CHANGED, "/a"),
    ]
    assert not watched.watches_data("/a")
    sim.wait(watched.get("/a"))
    sim.put("/a", b"3")
    sim.settle()
    assert len(events) == 3


def test_a_node_that_is_not_there_is_watched_only_by_exists(sim: ZooKeeperHarness) -> None:
    events: list[Event] = []
    watched = Watched(sim.tool, events.append)
    sim.wait(watched.get("/a"))
    sim.wait(watched.children("/a"))
    assert not watched.watches_data("/a")
    assert sim.wait(watched.exists("/a")) is None
    sim.put("/a", b"")
    sim.settle()
    assert events == [Event(EventKind.CREATED, "/a")]


def test_persistent_znodes_are_created_once(sim: ZooKeeperHarness) -> None:
    sim.put("/brokers", b"")
    sim.make_cluster()
    assert all(sim.data(path) == b"" for path in PERSISTENT)
    zxid = sim.model.zxid
    sim.drive(make_persistent(sim.tool))
    assert sim.model.zxid == zxid  # Nothing was missing, so nothing was written.


@pytest.mark.parametrize("seed", range(5))
def test_persistent_znodes_are_created_over_a_bad_network(seed: int) -> None:
    sim = ZooKeeperHarness(seed)
    sim.model.faults.broken = 0.05
    sim.drive(make_persistent(sim.client("a").session()))
    assert all(sim.data(path) == b"" for path in PERSISTENT)
