"""A tiered topic is deleted while the store is down and controllers fail; a new one has its name.

Method: a simulated cluster in both modes, without other faults but those of the test. What is
promised is in docs/deletion.md: the name is free before the purge, the receipt comes after it, no
object of the old topic is left, and those of the new one stay.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import Error, error_of
from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC, Uuid, uuid_text
from ottla.metadata.deletions import DeletionImage, Remote
from ottla.records.builder import encode_batch
from ottla.testing.sim import Sim
from ottla.testing.sim.watch.deletion_steps import controller_of
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import delete_topics as delete_wire
from ottla.wire.messages import produce as produce_wire

pytestmark = [pytest.mark.drawn(2), pytest.mark.forms(1)]

CONFIG = {
    "remote.log.storage.system.enable": "true",
    "ottla.remote.storage.uri": "file:///store",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "log.initial.task.delay.ms": "500",
    "auto.create.topics.enable": "false",
}
TOPIC_CONFIG = {"remote.storage.enable": "true", "internal.segment.bytes": "1000"}
PARTITIONS = 2
RECORDS = 12
VALUE = bytes(300)


class Cluster:
    """Four brokers; in KRaft mode three controllers beside them."""

    def __init__(self, *, zookeeper: bool, seed: int = 1) -> None:
        self.sim = sim = Sim(seed, brokers=4, zookeeper=zookeeper, config=CONFIG)
        self.port = sim.client_port("somebody")
        self.until(
            lambda: len(sim.image.brokers) == 4 and all(each.serves for each in sim.nodes.values())
        )

    def until(self, holds: Callable[[], bool], limit_ms: int = 120_000) -> None:
        self.sim.run_until(holds, limit_ms=limit_ms)

    def ask(self, node: int, request: object, version: int) -> Any:
        answer = self.port.send(node, request, version, 20_000)
        self.until(lambda: answer.done)
        return answer.value

    @property
    def controller(self) -> int:
        return controller_of(self.sim).id

    def any_broker(self) -> int:
        return next(each.id for each in self.sim.nodes.values() if each.is_broker and each.serves)

    def create(self) -> Uuid:
        """Create the topic, with partitions on brokers 4 and 3, and 3 and 1; return its id."""
        placed = tuple(
            create_wire.CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in enumerate(((4, 3), (3, 1)))
        )
        configs = tuple(
            create_wire.CreatableTopicConfig(name=name, value=value)
            for name, value in TOPIC_CONFIG.items()
        )
        topic = create_wire.CreatableTopic(
            name="t", num_partitions=-1, replication_factor=-1, assignments=placed, configs=configs
        )
        request = create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=5_000)
        answer = self.ask(self.any_broker(), request, 5)
        assert answer.topics[0].error_code == 0, answer
        self.until(lambda: "t" in self.sim.image.topics)
        topic_id = self.sim.image.topics.id_of("t")
        assert topic_id is not None
        return topic_id

    def produce(self) -> None:
        topic = self.sim.image.topics.by_name("t")
        assert topic is not None
        for number, partition in topic.in_order():
            for _ in range(RECORDS):
                batch = encode_batch([(b"k", VALUE, (), self.sim.clock.now_ms())])
                data = produce_wire.PartitionProduceData(index=number, records=batch)
                named = produce_wire.TopicProduceData(name="t", partition_data=(data,))
                request = produce_wire.ProduceRequest(
                    acks=-1, timeout_ms=5_000, topic_data=(named,)
                )
                code = Error.UNKNOWN_TOPIC_OR_PARTITION
                while code is Error.UNKNOWN_TOPIC_OR_PARTITION:  # A new topic, not known there yet.
                    [answer] = self.ask(partition.leader, request, 9).responses
                    code = error_of(answer.partition_responses[0].error_code)
                    self.sim.run(10)
                assert code is Error.NONE
        self.sim.run(1_000)

    def objects(self, topic_id: Uuid) -> list[str]:
        prefix = f"t-{uuid_text(topic_id)}/"
        return [name for name in self.sim.object_store.objects if name.startswith(prefix)]

    def copied(self, topic_id: Uuid) -> bool:
        logs = [name for name in self.objects(topic_id) if name.endswith(".log")]
        return len(logs) >= PARTITIONS * RECORDS // 3 - PARTITIONS

    def delete(self) -> None:
        request = delete_wire.DeleteTopicsRequest(topic_names=("t",), timeout_ms=15_000)
        answer = self.ask(self.any_broker(), request, 5)
        assert answer.responses[0].error_code == 0, answer
        self.until(lambda: "t" not in self.sim.image.topics)

    def entry(self, topic_id: Uuid) -> DeletionImage:
        found = self.sim.image.deletions.of(topic_id)
        assert found is not None
        return found

    def fail_controller(self) -> None:
        failed = self.sim.nodes[self.controller]
        failed.crash()
        self.sim.run(30_000)
        assert self.controller != failed.id
        failed.restart()
        self.until(lambda: failed.serves)


MODES = pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])


@MODES
def test_nothing_of_the_old_topic_is_left(zookeeper: bool) -> None:
    cluster = Cluster(zookeeper=zookeeper)
    old = cluster.create()
    cluster.produce()
    cluster.until(lambda: cluster.copied(old))
    cluster.sim.object_store.faults.is_down = True
    before = cluster.objects(old)
    cluster.delete()
    assert cluster.entry(old).remote is Remote.PENDING
    new = cluster.create()
    cluster.produce()
    for _ in range(3):
        cluster.fail_controller()
        assert cluster.entry(old).remote is Remote.PENDING
        assert not cluster.entry(old).is_finished
    assert cluster.objects(old) == before
    cluster.sim.object_store.faults.is_down = False
    cluster.until(lambda: cluster.entry(old).is_finished, limit_ms=900_000)
    assert cluster.entry(old).remote is Remote.PURGED
    assert cluster.objects(old) == []
    cluster.until(lambda: cluster.copied(new))
    cluster.fail_controller()
    assert cluster.entry(old).remote is Remote.PURGED
    assert not cluster.sim.problems


@MODES
def test_the_leaders_of_the_metadata_topic_die_one_after_the_other(zookeeper: bool) -> None:
    """At any time of the purge; the next ones go on."""
    cluster = Cluster(zookeeper=zookeeper, seed=2)
    old = cluster.create()
    cluster.produce()
    cluster.until(lambda: cluster.copied(old))
    cluster.delete()
    for _ in range(3):
        cluster.sim.run(3_000)
        metadata = cluster.sim.image.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
        assert metadata is not None
        dying = cluster.sim.nodes[metadata.partitions[0].leader]
        dying.crash()
        cluster.sim.run(30_000)
        dying.restart()
        cluster.until(lambda dying=dying: dying.serves)
    cluster.until(lambda: cluster.entry(old).is_finished, limit_ms=900_000)
    assert cluster.entry(old).remote is Remote.PURGED
    assert cluster.objects(old) == []


@MODES
def test_a_topic_that_was_never_copied(zookeeper: bool) -> None:
    """Nor has anybody created the metadata topic by then."""
    cluster = Cluster(zookeeper=zookeeper)
    topic_id = cluster.create()
    cluster.delete()
    cluster.until(lambda: cluster.entry(topic_id).is_finished, limit_ms=300_000)
    assert cluster.entry(topic_id).remote is Remote.PURGED
