"""The network of `replicas_harness`: messages have latency, and are lost on a broken link."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.ports import Listener

from .harness import START_MS, received

if TYPE_CHECKING:
    from .replicas_harness import Node

HOP_MS = 1
"""How long a message, or a metadata record, takes to get anywhere."""


class Time:
    """One clock for all; the timers of a dead node never run again."""

    def __init__(self) -> None:
        self.elapsed_ms = 0
        self.heaps: list[Timers] = []

    def now_ms(self) -> int:
        return START_MS + self.elapsed_ms

    def monotonic_ms(self) -> int:
        return self.elapsed_ms

    def advance(self, ms: int) -> None:
        end = self.elapsed_ms + ms
        while True:
            due = [
                (at, slot)
                for slot, heap in enumerate(self.heaps)
                if (at := heap.next_ms()) is not None
            ]
            if not due or min(due)[0] > end:
                break
            at, slot = min(due)
            self.elapsed_ms = max(self.elapsed_ms, at)
            self.heaps[slot].run_due(self.elapsed_ms)
        self.elapsed_ms = end


@dataclass(slots=True)
class Peers:
    """The ways of one process to the other brokers."""

    node: "Node"
    life: int

    def to(self, broker_id: int, lane: int = 0) -> "Link":
        return Link(self, broker_id)


@dataclass(slots=True)
class Link:
    """The connection to one broker: both directions are broken, or neither."""

    peers: Peers
    to: int

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any]:
        answer: Pending[Any] = Pending()
        source, life, harness = self.peers.node, self.peers.life, self.peers.node.harness

        def alive() -> bool:
            return source.up and source.life == life

        def fail() -> None:
            if alive():
                answer.complete(ApiError(Error.NETWORK_EXCEPTION))

        def arrive() -> None:
            target = harness.nodes[self.to]
            if not target.up or not harness.linked(source.id, self.to):
                harness.after(HOP_MS, fail)
                return
            served = target.life
            target.serving[answer] = fail
            target.handle(request, version, Listener.CLIENT).then(
                lambda response: give_back(response, target, served)
            )

        def give_back(response: Any, target: "Node", served: int) -> None:
            # Encoded now: what the slices point at may change on the way.
            message = received(response, version)
            target.serving.pop(answer, None)

            def come() -> None:
                if not harness.linked(source.id, self.to) or target.life != served or not target.up:
                    fail()
                elif alive():
                    answer.complete(message)

            harness.after(HOP_MS, come)

        harness.after(HOP_MS, arrive)
        return answer


@dataclass(slots=True)
class Forwarder:
    """One process's connection to the controller, with retries while it cannot be reached."""

    node: "Node"
    life: int

    def call(self, request: Any, *, timeout_ms: int) -> Pending[Any]:
        answer: Pending[Any] = Pending()
        harness = self.node.harness

        def arrive() -> None:
            if not self.node.up or self.node.life != self.life:
                return
            if self.node.id in harness.out_of_reach:
                harness.after(50, arrive)
                return
            response = harness.decide(request)
            harness.after(HOP_MS, lambda: self.node.life == self.life and answer.complete(response))

        harness.after(HOP_MS, arrive)
        return answer
