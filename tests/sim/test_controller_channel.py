"""Deleted replicas are confirmed by every broker, whatever happens meanwhile, and stay away.

Method: clusters under every fault, in which a topic of one name is made and deleted over and
over. A small ledger here, besides the controller's, asks the brokers through the product's own
channels until each replica is confirmed. Then all power goes at once, and the disks are searched.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending, completed
from ottla.broker.api import k1002_delete_replicas
from ottla.controller.zookeeper.request_batch import BrokerRequest
from ottla.host.controller.controller_channel import Answered, ChannelEvent, ControllerChannels
from ottla.host.log_dirs import node_dirs
from ottla.host.log_dirs.node_dirs import verdict_on
from ottla.log.dirs.dir_loading import Verdict, find_partition_dirs
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.dirs.replica_deletion import Removed
from ottla.log.names import PartitionDirKind
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.testing.sim import Faults, Sim
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import delete_topics as delete_wire
from ottla.wire.messages.delete_replicas import DeleteReplicasRequest, DeleteReplicasTopic

pytestmark = pytest.mark.drawn(2)

ROUGH_MS = 60_000
LOOK_MS = 300
DELETED, KEPT = "again", "kept"
PARTITIONS = 2

Replica = tuple[int, Uuid, int]
"""Broker, topic id, partition."""


class Link:
    """A way to one broker from a place of its own in the simulated network."""

    def __init__(self, sim: Sim, broker_id: int, name: str) -> None:
        self._broker_id = broker_id
        self._port = sim.client_port(name)

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any | ApiError]:
        return self._port.send(self._broker_id, request, version, timeout_ms)

    def close(self) -> None:
        self._port.close()


class Ledger:
    """The replicas to be confirmed, and by which brokers; sends requests until they are."""

    def __init__(self, sim: Sim) -> None:
        self.open: set[Replica] = set()
        self.confirmed: set[Replica] = set()
        self.ended: Counter[str] = Counter()
        self._sim = sim
        self._asked: set[Replica] = set()
        self._links = 0
        self.channels = ControllerChannels(
            self._link,
            clock=sim.clock,
            timers=sim.timers,
            on_event=self._on_event,
            request_timeout_ms=3_000,
        )
        self._look()

    def _link(self, broker_id: int, broker_epoch: int) -> Link:
        self._links += 1
        return Link(self._sim, broker_id, f"channel-{broker_id}-{broker_epoch}-{self._links}")

    def _look(self) -> None:
        after(self._sim, LOOK_MS, self._look)
        image = self._sim.image
        term = max(image.position[1], self.channels.controller_epoch)
        self.channels.begin_epoch(term)
        self.channels.set_brokers((each.id, each.epoch) for each in image.brokers.values())
        for broker_id, topic_id, number in sorted(self.open - self._asked):
            broker = image.brokers.get(broker_id)
            if broker is None or image.topics.by_id(topic_id) is not None:
                continue
            self._asked.add((broker_id, topic_id, number))
            request = DeleteReplicasRequest(
                controller_id=9,
                controller_epoch=term,
                broker_epoch=broker.epoch,
                topics=(DeleteReplicasTopic(topic_id=topic_id, partitions=(number,)),),
            )
            self.channels.send(
                [
                    BrokerRequest(
                        broker_id=broker_id,
                        broker_epoch=broker.epoch,
                        controller_epoch=term,
                        request=request,
                        version=0,
                    )
                ]
            )

    def _on_event(self, event: ChannelEvent) -> None:
        [topic] = event.sent.request.topics
        [number] = topic.partitions
        replica = (event.sent.broker_id, topic.topic_id, number)
        self._asked.discard(replica)
        if not isinstance(event, Answered):
            self.ended[event.error.name] += 1
            return
        code = event.response.error_code
        if not code:
            code = event.response.topics[0].partitions[0].error_code
        self.ended[Error(code).name] += 1
        if code == Error.NONE:
            self.open.discard(replica)
            self.confirmed.add(replica)


class Changer:
    """Creates and deletes the topic, one request at a time, each until the metadata shows it."""

    def __init__(self, sim: Sim, ledger: Ledger) -> None:
        self.rounds = 0
        self.stopped = False
        self._sim = sim
        self._ledger = ledger
        self._port = sim.client_port("changer")
        self._known: dict[Uuid, set[Replica]] = {}
        after(sim, 1_000, self._step)

    def _step(self) -> None:
        self._note()
        if self.stopped:
            return
        topics = self._sim.image.topics
        if KEPT not in topics:
            self._ask(create(KEPT), 5)
        elif DELETED not in topics:
            self._ask(create(DELETED), 5)
        else:
            request = delete_wire.DeleteTopicsRequest(topic_names=(DELETED,), timeout_ms=3_000)
            self._ask(request, 5)

    def _note(self) -> None:
        """Take the topics that are gone into the ledger, with all replicas that they ever had."""
        topics = self._sim.image.topics
        topic = topics.by_name(DELETED)
        if topic is not None:
            known = self._known.setdefault(topic.id, set())
            for number, partition in topic.partitions.items():
                known.update((each, topic.id, number) for each in partition.replicas)
        for topic_id in list(self._known):
            if topics.by_id(topic_id) is None:
                self.rounds += 1
                self._ledger.open |= self._known.pop(topic_id)

    def _ask(self, request: object, version: int) -> None:
        brokers = [node.id for node in self._sim.nodes.values() if node.is_broker]
        broker_id = brokers[self._sim.dice.below(len(brokers))]
        answer = self._port.send(broker_id, request, version, 4_000)
        answer.then(lambda _: after(self._sim, 700, self._step))


def after(sim: Sim, ms: int, call: Any) -> None:
    sim.timers.at(sim.clock.monotonic_ms() + ms, call)


def create(name: str) -> create_wire.CreateTopicsRequest:
    topic = create_wire.CreatableTopic(
        name=name, num_partitions=PARTITIONS, replication_factor=3, assignments=(), configs=()
    )
    return create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=3_000)


def is_whole(sim: Sim) -> bool:
    """Tell whether every broker serves, and is in sync with all that it should hold."""
    brokers = [node.id for node in sim.nodes.values() if node.is_broker]
    return all(sim.is_whole(node_id, since_incarnation=0) for node_id in brokers)


def partition_dirs(sim: Sim) -> list[tuple[Replica, PartitionDirKind]]:
    """Return all replicas that any broker's disk holds."""
    return [
        ((node.id, directory.topic_id, directory.partition), directory.kind)
        for node in sim.nodes.values()
        if node.is_broker
        for path in node.config.log_dirs
        for directory in find_partition_dirs(node.disk, path)
        if directory.topic_id is not None
    ]


def play(seed: int) -> tuple[Sim, Ledger]:
    """Play one history to its end; return it once all power is gone."""
    with Sim(seed, faults=Faults.ROUGH) as sim:
        ledger = Ledger(sim)
        changer = Changer(sim, ledger)
        sim.run(ms=ROUGH_MS)
        sim.heal()
        changer.stopped = True
        sim.run_until(lambda: not ledger.open and is_whole(sim), limit_ms=60_000)
        assert changer.rounds >= 3, ledger.ended
        assert len(ledger.confirmed) >= changer.rounds * PARTITIONS

        kept = sim.image.topics.by_name(KEPT)
        assert kept is not None
        wanted = {
            (each, kept.id, number)
            for number, partition in kept.partitions.items()
            for each in partition.replicas
        }
        assert wanted <= {
            replica for replica, kind in partition_dirs(sim) if kind is PartitionDirKind.LIVE
        }
        for node in sim.nodes.values():
            node.crash(lose_unflushed=True)
    return sim, ledger


def came_back(sim: Sim, ledger: Ledger) -> set[Replica]:
    """Return the replicas that were confirmed as deleted, and that a start would find."""
    found = {
        replica for replica, kind in partition_dirs(sim) if kind is not PartitionDirKind.DELETE
    }
    return found & ledger.confirmed


def test_every_replica_is_confirmed_and_none_comes_back() -> None:
    ended: Counter[str] = Counter()
    retries = 0
    for seed in range(1, 4):
        sim, ledger = play(seed)
        assert came_back(sim, ledger) == set(), f"seed {seed}"
        ended += ledger.ended
        retries += sum(each.retries for each in ledger.channels.metrics.values())
    # Else they proved little: answers were lost, brokers bounced or terms ended under requests.
    assert retries > 0
    assert ended["STALE_BROKER_EPOCH"] + ended["STALE_CONTROLLER_EPOCH"] > 0


def play_absence(*, power_fails: bool) -> tuple[Sim, Ledger]:
    """Delete a topic while one of its brokers is away; return once that one has confirmed."""
    with Sim(1) as sim:
        ledger = Ledger(sim)
        changer = Changer(sim, ledger)
        sim.run_until(lambda: DELETED in sim.image.topics and is_whole(sim), limit_ms=30_000)
        topic = sim.image.topics.by_name(DELETED)
        assert topic is not None
        away = sim.nodes[sorted(sim.image.brokers)[0]]
        held = {(away.id, topic.id, number) for number in range(PARTITIONS)}
        # Metadata count a replica as in sync from its creation on, before its log is there.
        sim.run_until(
            lambda: held <= {replica for replica, _ in partition_dirs(sim)}, limit_ms=30_000
        )
        away.crash(lose_unflushed=False)
        sim.run_until(lambda: sim.image.topics.by_id(topic.id) is None, limit_ms=30_000)
        changer.stopped = True
        sim.run_until(lambda: changer.rounds == 1, limit_ms=30_000)
        sim.run(ms=5_000)
        # The running brokers have confirmed, the one that is down has not.
        assert ledger.open == held
        assert ledger.open <= {replica for replica, _ in partition_dirs(sim)}
        away.restart()
        sim.run_until(lambda: not ledger.open, limit_ms=30_000)
        away.crash(lose_unflushed=power_fails)
    return sim, ledger


def test_a_broker_that_was_away_confirms_when_it_returns() -> None:
    assert came_back(*play_absence(power_fails=True)) == set()


def test_a_broker_that_confirms_without_deleting_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows nothing of the ledger at its start, sets aside what it should delete, and then
    confirms what it does not host."""

    def without_ledger(image: ClusterImage, node_id: int, topic_id: Uuid, number: int) -> Verdict:
        return verdict_on(replace(image, deletions=EMPTY.deletions), node_id, topic_id, number)

    def only_say_so(
        _: LogDirs, wanted: Collection[tuple[Uuid, int]], _topics: Mapping[Uuid, str]
    ) -> Pending[Removed]:
        return completed(dict.fromkeys(wanted))

    monkeypatch.setattr(node_dirs, "verdict_on", without_ledger)
    monkeypatch.setattr(k1002_delete_replicas, "remove_replicas", only_say_so)
    # A power loss might remove the directories: they are empty and were never flushed.
    assert came_back(*play_absence(power_fails=False)) != set()
