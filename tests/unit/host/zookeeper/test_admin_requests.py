"""Requests by znode are processed correctly, whether they are read early or late.

Method: the requests over a back end in memory; their writes are recorded.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from ottla.base.pending import Pending, completed
from ottla.base.zookeeper import Delete, Operation, SetData
from ottla.controller.brokers.liveness import BrokerLiveness
from ottla.controller.context import DecisionContext
from ottla.controller.mode_policy import ZOOKEEPER_MODE
from ottla.host.controller.controller_runtime import ControllerRuntime
from ottla.host.zookeeper.admin_requests import AdminRequests
from ottla.host.zookeeper.store.store_writing import Done
from ottla.metadata.znodes import paths
from ottla.testing.memory_store import MemoryMetadata

from .controller_harness import a_config


class FakeClock:
    """A clock that stands still."""

    def now_ms(self) -> int:
        return 1

    def monotonic_ms(self) -> int:
        return 1


class Requests:
    """The requests of one term. `written`: znodes."""

    def __init__(self) -> None:
        nothing: Any = None
        self.stored = MemoryMetadata()
        self.runtime = ControllerRuntime(self.stored.elect(), epoch=1, clock=FakeClock())
        self.written: list[Operation] = []
        self.pending: list[Any] = []
        config = a_config(1, {})
        self.requests = AdminRequests(
            self.runtime,
            DecisionContext(
                config=config,
                cluster_id="c",
                dice=nothing,
                liveness=BrokerLiveness(1),
                mode=ZOOKEEPER_MODE,
            ),
            change=self._change,
            resend=nothing,
            on_pending_requests=lambda electing, reassigning: self.pending.append(
                (electing, reassigning)
            ),
        )
        self.runtime.subscribe(self.requests.changed)

    def _change(self, operations: Sequence[Operation]) -> Pending[Any]:
        self.written += operations
        return completed(Done((None,) * len(operations)))


@pytest.fixture
def harness() -> Requests:
    return Requests()


def test_a_reassignment_that_lists_nothing_is_removed(harness: Requests) -> None:
    harness.requests.reassign({})
    assert harness.written == [Delete(paths.REASSIGN_PARTITIONS)]


def test_pending_requests_are_reported_until_decided(harness: Requests) -> None:
    harness.requests.reassign({("t", 0): (1,)})
    none: frozenset[str] = frozenset()
    assert harness.pending == [(none, frozenset({"t"})), (none, none)]
    harness.requests.elect((("t", 0),))
    assert harness.pending[2:] == [(frozenset({"t"}), none), (none, none)]
    assert not any(isinstance(each, SetData) for each in harness.written)
    assert Delete(paths.PREFERRED_ELECTION) in harness.written
