"""A request by znode is never taken for something else because it is seen early or late.

Method: the requests alone, over a back end in memory; what they write and look for is noted, and
answered by the test.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from ottla.base.ids import Uuid
from ottla.base.pending import Pending, completed
from ottla.base.zookeeper import Delete, Operation, SetData, Stat
from ottla.controller.context import DecisionContext
from ottla.controller.liveness import BrokerLiveness
from ottla.host.zookeeper.admin_requests import AdminRequests
from ottla.host.zookeeper.runtime import DecisionRuntime
from ottla.host.zookeeper.store_writing import Done
from ottla.metadata.records import TopicRecord
from ottla.metadata.znodes import paths
from ottla.testing.memory_store import MemoryMetadata

from .controller_world import a_config

ID = Uuid(b"topic-----------")
STAT = Stat(1, 1, 0, 0, 0, 0, 0)


class FakeClock:
    """A clock that stands still."""

    def now_ms(self) -> int:
        return 1

    def monotonic_ms(self) -> int:
        return 1


class Requests:
    """The requests of one office. `written`: znodes; `sought`: asked for, and not answered yet."""

    def __init__(self) -> None:
        nothing: Any = None
        self.stored = MemoryMetadata()
        self.runtime = DecisionRuntime(self.stored.elect(), epoch=1, clock=FakeClock())
        self.written: list[Operation] = []
        self.sought: dict[str, Pending[Any]] = {}
        self.halts: list[Any] = []
        config = a_config(1, {})
        self.requests = AdminRequests(
            self.runtime,
            DecisionContext(
                config=config, cluster_id="c", dice=nothing, liveness=BrokerLiveness(1)
            ),
            clock=FakeClock(),
            change=self._change,
            exists=lambda path: self.sought.setdefault(path, Pending()),
            tell_hosted=nothing,
            on_halts=lambda electing, reassigning: self.halts.append((electing, reassigning)),
        )
        self.runtime.subscribe(self.requests.changed)

    def _change(self, operations: Sequence[Operation]) -> Pending[Any]:
        self.written += operations
        return completed(Done((None,) * len(operations)))

    def make_topic(self) -> None:
        self.stored.observe(TopicRecord(name="t", topic_id=ID))

    def is_queued(self) -> bool:
        return self.runtime.image.is_queued_for_deletion("t")


@pytest.fixture
def world() -> Requests:
    return Requests()


def test_a_marker_of_nothing_is_erased(world: Requests) -> None:
    world.requests.delete(("t",))
    assert world.written == []
    world.sought[paths.topic("t")].complete(None)
    assert world.written == [Delete(paths.marker("t"))]


def test_a_marker_waits_for_a_topic_that_is_stored_already(world: Requests) -> None:
    # Found by a random history: the topics had been read before it was made, the markers after.
    world.requests.delete(("t",))
    world.sought[paths.topic("t")].complete(STAT)
    assert world.written == []
    world.make_topic()
    assert world.is_queued()


def test_a_topic_may_come_while_it_is_looked_for(world: Requests) -> None:
    world.requests.delete(("t",))
    world.make_topic()
    world.sought[paths.topic("t")].complete(STAT)
    assert world.is_queued()


def test_a_reassignment_that_lists_nothing_is_removed(world: Requests) -> None:
    world.requests.reassign({})
    assert world.written == [Delete(paths.REASSIGN_PARTITIONS)]


def test_deletions_hear_of_what_is_not_decided_yet(world: Requests) -> None:
    world.requests.reassign({("t", 0): (1,)})
    nobody: frozenset[str] = frozenset()
    assert world.halts == [(nobody, frozenset({"t"})), (nobody, nobody)]
    world.requests.elect((("t", 0),))
    assert world.halts[2:] == [(frozenset({"t"}), nobody), (nobody, nobody)]
    assert not any(isinstance(each, SetData) for each in world.written)
    assert Delete(paths.PREFERRED_ELECTION) in world.written
