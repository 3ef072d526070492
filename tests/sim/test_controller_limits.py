"""Requests to a controller that cannot write are answered within their limits, wherever they come.

Method: simulated clusters without other faults; one request of every API that the controller
decides, all at once, each over a connection of its own: to the controller itself, and to a broker
that passes them on. ZooKeeper, most of the quorum, or the controller's process is frozen before.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import CLIENTS
from ottla.broker.dispatch import load_apis
from ottla.broker.metrics import error_finder
from ottla.broker.ports import Listener
from ottla.host.forwarder import ANSWER_SLACK_MS
from ottla.testing.sim import Sim
from ottla.testing.sim.node import SimNode
from ottla.testing.sim.watch.deletion_steps import controller_of
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.registry import response_type

from ..controller_requests import LIMIT_MS, REQUESTS, TOPIC, limit_ms, version_of

REQUEST_TIMEOUT_MS = 5_000
DEFAULT_MS = 4_500
NETWORK_MS = 300
"""More than the simulated network needs there and back."""
NEVER_MS = "3600000"
KRAFT = {
    "request.timeout.ms": str(REQUEST_TIMEOUT_MS),
    # Else its leader would resign, which is quicker, and another story.
    "controller.quorum.fetch.timeout.ms": NEVER_MS,
    "broker.session.timeout.ms": NEVER_MS,
}
ZOOKEEPER = {"request.timeout.ms": str(REQUEST_TIMEOUT_MS), "zookeeper.session.timeout.ms": "60000"}
IN_DOUBT = {Error.REQUEST_TIMED_OUT}
WRITES = {19, 20, 37}
"""Those whose requests change something on any of these clusters, and say so in each part."""


class Cluster:
    """Three brokers and a topic, in calm; `controller` is the active controller."""

    def __init__(self, *, zookeeper: bool) -> None:
        self.zookeeper = zookeeper
        self.sim = sim = (
            Sim(1, brokers=3, zookeeper=True, config=ZOOKEEPER)
            if zookeeper
            else Sim(1, brokers=3, controllers=3, config=KRAFT)
        )
        self.until(lambda: all(node.serves for node in sim.nodes.values()))
        self.until(lambda: len(sim.image.broker_ids()) == 3)
        self.controller = controller_of(sim)
        topic = create_wire.CreatableTopic(
            name=TOPIC, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        request = create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=5_000)
        made = sim.client_port("maker").send(self.others()[0].id, request, 7, 10_000)
        self.until(lambda: made.done)
        assert made.value.topics[0].error_code == 0
        sim.run(2_000)

    def others(self) -> list[SimNode]:
        """Return the brokers that are not the controller."""
        return [
            node for node in self.sim.nodes.values() if node.is_broker and node != self.controller
        ]

    def until(self, holds: Callable[[], bool]) -> None:
        self.sim.run_until(holds, limit_ms=60_000)

    def stop_writes(self) -> None:
        """Freeze what the controller writes to."""
        if self.sim.zookeeper is not None:
            self.sim.zookeeper.model.down(silently=True)
        else:
            for node in self.sim.nodes.values():
                if not node.is_broker and node != self.controller:
                    node.pause()

    def keys(self, to: SimNode) -> list[int]:
        """Return the APIs that a node answers or passes on."""
        listener = Listener.CLIENT if to.is_broker else Listener.CONTROLLER
        found = []
        for key in REQUESTS:
            api = load_apis()[key].api
            if listener in api.answers_on(zookeeper=self.zookeeper):
                found.append(key)
        return found

    def ask_all(self, to: SimNode, keys: list[int]) -> dict[int, tuple[int, Any]]:
        """Send them at once; return after how long, and how, each was answered."""
        answers: dict[int, tuple[int, Any]] = {}
        began_ms = self.sim.now_ms

        def ask(key: int) -> None:
            sent = self.sim.client_port(f"client {key}").send(
                to.id, REQUESTS[key], version_of(key), 120_000
            )
            sent.then(lambda reply: answers.update({key: (self.sim.now_ms - began_ms, reply)}))

        for key in keys:
            ask(key)
        self.until(lambda: len(answers) == len(keys))
        return answers


def errors(key: int, reply: Any) -> set[int]:
    assert not isinstance(reply, ApiError), f"key {key} was not answered: {reply}"
    find, found = error_finder(response_type(key)), Counter[int]()
    assert find is not None
    find(reply, found)
    return set(found)


def check(answers: dict[int, tuple[int, Any]], *, forwarded: bool) -> None:
    slack_ms = NETWORK_MS + (ANSWER_SLACK_MS if forwarded else 0)
    late = {
        key: took_ms
        for key, (took_ms, _) in answers.items()
        if took_ms > limit_ms(key, DEFAULT_MS) + slack_ms
    }
    assert late == {}
    for key in WRITES & answers.keys():
        took_ms, reply = answers[key]
        assert took_ms >= LIMIT_MS, "else it did not wait for a write"
        assert errors(key, reply) == IN_DOUBT, key
    for key, (_, reply) in answers.items():
        errors(key, reply)


@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_a_controller_that_cannot_write_answers_within_the_limit(zookeeper: bool) -> None:
    cluster = Cluster(zookeeper=zookeeper)
    cluster.stop_writes()
    keys = cluster.keys(cluster.controller)
    answers = cluster.ask_all(cluster.controller, keys)
    check(answers, forwarded=False)


@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_and_so_do_brokers_that_pass_requests_on(zookeeper: bool) -> None:
    cluster = Cluster(zookeeper=zookeeper)
    cluster.stop_writes()
    broker = cluster.others()[0]
    keys = [key for key in cluster.keys(broker) if CLIENTS & load_apis()[key].api.listeners]
    answers = cluster.ask_all(broker, keys)
    check(answers, forwarded=True)
    assert answers.keys() >= WRITES


@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_and_so_do_brokers_whose_controller_is_frozen(zookeeper: bool) -> None:
    cluster = Cluster(zookeeper=zookeeper)
    cluster.controller.pause()
    broker = cluster.others()[0]
    keys = [key for key in cluster.keys(broker) if CLIENTS & load_apis()[key].api.listeners]
    answers = cluster.ask_all(broker, keys)
    check(answers, forwarded=True)
    in_doubt = {key for key, (_, reply) in answers.items() if errors(key, reply) == IN_DOUBT}
    assert in_doubt == set(keys)
