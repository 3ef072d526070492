"""With controller.quorum.bootstrap.servers alone brokers find the active controller, too.

Method: a simulated cluster without other faults, whose brokers have the addresses of all voters and
not their ids. A topic is created at a broker, and all brokers must have it: the request was
forwarded to the active controller, and the metadata are fetched from it. Then that one dies, or
sleeps; a request may have to wait for one that sleeps, metadata and heartbeats must not.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.testing.sim import Sim
from ottla.testing.sim import sim as sim_module
from ottla.testing.sim.layout import layout
from ottla.testing.sim.node import SimNode
from ottla.testing.sim.watch.deletion_steps import controller_of
from ottla.wire.messages import create_topics as wire

from ..drawn import drawn_seeds

VOTERS, SERVERS = "controller.quorum.voters", "controller.quorum.bootstrap.servers"


def with_servers(*args: Any, **how: Any) -> list[dict[str, str]]:
    """Return the nodes of a cluster whose brokers know no voters."""
    nodes = layout(*args, **how)
    for node in nodes:
        if node["process.roles"] == "broker":
            voters = node.pop(VOTERS).split(",")
            node[SERVERS] = ",".join(each.partition("@")[2] for each in voters)
    return nodes


class Cluster:
    """Two brokers, and controllers apart."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int, controllers: int) -> None:
        monkeypatch.setattr(sim_module, "layout", with_servers)
        self.sim = Sim(seed, brokers=2, controllers=controllers)
        self.port = self.sim.client_port("somebody")
        self.brokers = [node for node in self.sim.nodes.values() if node.is_broker]
        self.until(lambda: all(node.serves for node in self.brokers))

    def until(self, holds: Callable[[], bool]) -> None:
        self.sim.run_until(holds, limit_ms=20_000)

    def create(self, name: str) -> None:
        topic = wire.CreatableTopic(
            name=name, num_partitions=1, replication_factor=2, assignments=(), configs=()
        )
        request = wire.CreateTopicsRequest(topics=(topic,), timeout_ms=15_000)
        answer: Any = self.port.send(self.brokers[0].id, request, 5, 20_000)
        self.until(lambda: answer.done)
        assert [each.error_code for each in answer.value.topics] == [Error.NONE]
        self.until(lambda: all(self.knows(node, name) for node in self.brokers))

    def follow(self, epoch: int) -> None:
        """Wait until all brokers have metadata of a later epoch."""
        self.until(lambda: all(self.epoch_of(node) > epoch for node in self.brokers))

    @staticmethod
    def epoch_of(node: SimNode) -> int:
        return -1 if node.broker is None else node.broker.image.position[1]

    @staticmethod
    def knows(node: SimNode, name: str) -> bool:
        return node.broker is not None and name in node.broker.image.topics


@pytest.mark.parametrize("seed", drawn_seeds(1, of=4))
@pytest.mark.parametrize("controllers", [1, 2, 3])
def test_they_are_tried_one_after_another(
    monkeypatch: pytest.MonkeyPatch, seed: int, controllers: int
) -> None:
    Cluster(monkeypatch, seed, controllers).create("t")


@pytest.mark.parametrize("seed", drawn_seeds(1, of=4))
@pytest.mark.parametrize("sleeps", [True, False], ids=["sleeps", "dies"])
def test_the_next_active_controller_is_found(
    monkeypatch: pytest.MonkeyPatch, seed: int, sleeps: bool
) -> None:
    cluster = Cluster(monkeypatch, seed, 3)
    for number in range(3):
        former, epoch = controller_of(cluster.sim), cluster.sim.image.position[1]
        if sleeps:
            former.pause()
        else:
            former.crash(lose_unflushed=False)
        cluster.follow(epoch)
        if not sleeps:
            cluster.create(f"t{number}")
        cluster.sim.run(12_000)
        assert not any(broker.fenced for broker in cluster.sim.image.brokers.values())
        if sleeps:
            former.resume()
        else:
            former.restart()
        cluster.sim.run(3_000)


@pytest.mark.parametrize("seed", drawn_seeds(1, of=4))
def test_a_server_that_never_answers_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    cluster = Cluster(monkeypatch, seed, 3)
    active = controller_of(cluster.sim)
    standby = next(n for n in cluster.sim.nodes.values() if not n.is_broker and n is not active)
    standby.crash(lose_unflushed=True)
    for broker in cluster.brokers:
        broker.crash(lose_unflushed=False)
        broker.restart()
        cluster.sim.run_until(lambda: all(n.serves for n in cluster.brokers), limit_ms=60_000)
    cluster.create("t")
