"""Fake brokers that receive DeleteReplicas requests, whose responses the test gives."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.host.node_ports import Address
from ottla.wire.messages.delete_replicas import (
    DeleteReplicasPartitionResult,
    DeleteReplicasRequest,
    DeleteReplicasResponse,
    DeleteReplicasTopicResult,
)

PORT = 9_000
"""Broker i listens there + i."""


@dataclass(slots=True)
class Order:
    """One request that came. `answer` it once, unless its link was closed."""

    broker_id: int
    request: DeleteReplicasRequest
    link: "FakeLink"
    pending: Pending[Any] = field(default_factory=Pending)

    @property
    def replicas(self) -> list[tuple[Uuid, int]]:
        """What is to be deleted."""
        return [
            (topic.topic_id, each) for topic in self.request.topics for each in topic.partitions
        ]

    @property
    def is_out(self) -> bool:
        """Whether an answer would be received."""
        return not self.pending.done and not self.link.closed

    def answer(self, error: Error = Error.NONE, *, whole: Error = Error.NONE) -> None:
        """Answer that each replica ended so, or the whole request."""
        topics = tuple(
            DeleteReplicasTopicResult(
                topic_id=topic.topic_id,
                partitions=tuple(
                    DeleteReplicasPartitionResult(partition_index=each, error_code=error)
                    for each in topic.partitions
                ),
            )
            for topic in self.request.topics
        )
        self.pending.complete(
            DeleteReplicasResponse(error_code=whole, topics=() if whole else topics)
        )


class FakeLink:
    """A way to one broker; see `ottla.host.node_ports.Link`."""

    def __init__(self, brokers: "FakeBrokers", choose: Callable[[], Address | None]) -> None:
        self.connected = True
        self.closed = False
        self._brokers = brokers
        self._choose = choose

    def send(self, request: Any, version: int, *, timeout_ms: int) -> Pending[Any]:
        address = self._choose()
        assert address is not None, "nothing is sent to nowhere"
        order = Order(address[1] - PORT, request, self)
        self._brokers.orders.append(order)
        return order.pending

    def retarget(self) -> None:
        raise AssertionError("a channel leads to one broker for ever")

    def close(self) -> None:
        self.closed = True


@dataclass(slots=True)
class FakeBrokers:
    """All brokers of a cluster.

    Fields: `orders`: all that came; `links`: all that were ever opened; `broken`: opening one
            fails, which it never should.
    """

    orders: list[Order] = field(default_factory=list)
    links: list[FakeLink] = field(default_factory=list)
    broken: bool = False

    def connect(self, choose: Callable[[], Address | None], **how: Any) -> FakeLink:
        """Return a link; see `ottla.host.node_ports.Connect`."""
        if self.broken:
            raise RuntimeError("broken")
        link = FakeLink(self, choose)
        self.links.append(link)
        return link

    def out(self, broker_id: int) -> list[Order]:
        """Return the orders of a broker whose answers would be received."""
        return [each for each in self.orders if each.broker_id == broker_id and each.is_out]

    def answer_all(self, *broker_ids: int) -> None:
        """Have brokers do what they are ordered."""
        for broker_id in broker_ids:
            for order in self.out(broker_id):
                order.answer()
