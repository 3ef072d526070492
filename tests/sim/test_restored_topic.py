"""A topic is restored in a new cluster from the store alone, whatever fails meanwhile.

Method: one simulated cluster copies a topic; of all that it had, only its store's objects go to a
second one, where the restore is planned from the manifests and asked of a broker. Then consumers
read everything, producers go on, and the leader loses its power at a moment that the case says; in
ZooKeeper mode, which is not safe from that, its process dies.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.records.batch import iter_headers
from ottla.records.builder import encode_batch
from ottla.records.record import iter_records
from ottla.testing.sim.node import SimNode
from ottla.testing.sim.sim import Sim
from ottla.tiered.manifest import ManifestState, follow
from ottla.tiered.manifest_codec import decode_manifest
from ottla.tiered.object_names import parse_directory_name, parse_manifest_name
from ottla.tiered.restore_plan import RestorePlan, StoredPartition, plan_restore
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import fetch as fetch_wire
from ottla.wire.messages import produce as produce_wire
from ottla.wire.messages import restore_topic as wire

CONFIG = {
    "remote.log.storage.system.enable": "true",
    "ottla.remote.storage.uri": "memory://simulated",
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "500",
    "remote.log.manager.task.interval.ms": "500",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
}
ZOOKEEPER_CONFIG = {"zookeeper.session.timeout.ms": "4000"}
TOPIC = "t"
TOPIC_CONFIG = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "internal.segment.bytes": "2000",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "0",
}
RECORDS = 60
VALUE_BYTES = 300


class Cluster:
    """Three brokers with remote storage; the topic has one partition, on all of them."""

    def __init__(
        self, seed: int, objects: Mapping[str, bytes] | None = None, *, zookeeper: bool = False
    ) -> None:
        if zookeeper:
            self.sim = sim = Sim(seed, brokers=3, zookeeper=True, config=CONFIG | ZOOKEEPER_CONFIG)
        else:
            self.sim = sim = Sim(seed, brokers=3, controllers=1, config=CONFIG)
        self.loses_power = not zookeeper
        for name, data in (objects or {}).items():
            sim.object_store.put(name, data, replace=False)
        self.port = sim.client_port("somebody")
        self.until(
            lambda: all(node.serves for node in sim.nodes.values()) and len(sim.image.brokers) == 3
        )

    def until(self, holds: Any) -> None:
        self.sim.run_until(holds, limit_ms=120_000)

    def ask(self, node: int, request: object, version: int) -> Any:
        answer = self.port.send(node, request, version, 8_000)
        self.until(lambda: answer.done)
        return answer.value

    @property
    def broker(self) -> int:
        return next(each.id for each in self.sim.nodes.values() if each.is_broker and each.serves)

    def create(self) -> None:
        configs = tuple(
            create_wire.CreatableTopicConfig(name=name, value=value)
            for name, value in TOPIC_CONFIG.items()
        )
        topic = create_wire.CreatableTopic(
            name=TOPIC, num_partitions=1, replication_factor=3, assignments=(), configs=configs
        )
        request = create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=5_000)
        [created] = self.ask(self.broker, request, 7).topics
        assert created.error_code == 0, created.error_message

    def leader(self) -> SimNode:
        """Return the leader, once there is one that has begun."""

        def leading() -> SimNode | None:
            topic = self.sim.image.topics.by_name(TOPIC)
            node = None if topic is None else self.sim.nodes.get(topic.partitions[0].leader)
            broker = None if node is None else node.broker
            hosted = () if broker is None else broker.replicas.hosted()
            return node if any(each.topic == TOPIC and each.is_leader for each in hosted) else None

        self.until(lambda: leading() is not None)
        found = leading()
        assert found is not None
        return found

    def produce(self, number: int) -> int:
        """Produce a record; return its offset."""
        while True:
            leader = self.leader()
            value = b"%04d" % number + bytes(VALUE_BYTES)
            batch = encode_batch([(b"k%d" % number, value, (), leader.clock.now_ms())])
            data = produce_wire.PartitionProduceData(index=0, records=batch)
            topic = produce_wire.TopicProduceData(name=TOPIC, partition_data=(data,))
            request = produce_wire.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(topic,))
            [topic_answer] = self.ask(leader.id, request, 9).responses
            [answer] = topic_answer.partition_responses
            if not answer.error_code:
                offset: int = answer.base_offset
                return offset
            self.sim.run(200)

    def read(self, until: int) -> list[tuple[int, bytes]]:
        """Read from offset 0; no answer may leave records out."""
        found: list[tuple[int, bytes]] = []
        failures = 0
        while len(found) < until:
            topic = self.sim.image.topics.by_name(TOPIC)
            assert topic is not None
            wanted = fetch_wire.FetchPartition(
                partition=0, fetch_offset=len(found), partition_max_bytes=1_000_000
            )
            request = fetch_wire.FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1_000_000,
                topics=(fetch_wire.FetchTopic(topic_id=topic.id, partitions=(wanted,)),),
            )
            reply = self.ask(self.leader().id, request, 13)
            parts = [each for topic in getattr(reply, "responses", ()) for each in topic.partitions]
            error = parts[0].error_code if parts else Error.UNKNOWN_SERVER_ERROR
            assert error != Error.OFFSET_OUT_OF_RANGE
            data = bytes(parts[0].records or b"") if not error else b""
            size = sum(head.size_in_bytes for _, head in iter_headers(data, allow_partial=True))
            rows = [
                (each.offset, bytes(each.value or b"")[:4])
                for each in iter_records(data[:size])
                if each.offset >= len(found)
            ]
            assert [each[0] for each in rows] == list(range(len(found), len(found) + len(rows)))
            found += rows
            failures = 0 if rows else failures + 1
            assert failures < 200, (found[-1:], Error(error).name)
            self.sim.run(100)
        return found

    def state(self) -> ManifestState | None:
        return state_of(self.sim.object_store.objects)


def state_of(objects: Mapping[str, bytes]) -> ManifestState | None:
    return follow(
        decode_manifest(data)
        for name, data in objects.items()
        if parse_manifest_name(name) is not None
    )


def restore(cluster: Cluster, plan: RestorePlan) -> None:
    request = wire.RestoreTopicRequest(
        name=plan.topic,
        topic_id=plan.topic_id,
        tiered_epoch=plan.tiered_epoch,
        remote_floor_epoch=plan.floor,
        replication_factor=3,
        configs=tuple(
            wire.RestoreTopicConfig(name=name, value=value) for name, value in plan.configs.items()
        ),
        partitions=tuple(
            wire.RestoreTopicPartition(
                partition_index=each.partition,
                leader_epoch=each.leader_epoch,
                log_start_offset=each.log_start_offset,
                end_offset=each.end_offset,
                epochs=tuple(
                    wire.RestoreTopicEpoch(epoch=epoch, start_offset=start)
                    for epoch, start in each.epochs
                ),
            )
            for each in plan.partitions
        ),
    )
    response = cluster.ask(cluster.broker, request, 0)
    assert response.error_code == 0, response.error_message


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    """What a cluster that is gone has left in the store."""
    cluster = Cluster(1)
    cluster.create()
    for number in range(RECORDS):
        assert cluster.produce(number) == number

    def is_copied() -> bool:
        state = cluster.state()
        return state is not None and state.lineage().log_end_offset >= RECORDS - 10

    cluster.until(is_copied)
    cluster.sim.run(20_000)
    assert not cluster.sim.problems
    return dict(cluster.sim.object_store.objects)


def plan_of(objects: Mapping[str, bytes]) -> RestorePlan:
    [(topic, topic_id)] = {
        parsed[:2] for name in objects if (parsed := parse_directory_name(name)) is not None
    }
    sizes = {name: len(data) for name, data in objects.items()}
    found = StoredPartition(partition=0, state=state_of(objects), sizes=sizes)
    plan = plan_restore(topic, Uuid(topic_id), [found])
    assert plan.faults == ()
    return plan


MOMENTS_MS = [None, 5, 50, 200, 500, 1_500, 5_000]


@pytest.mark.forms(4)
@pytest.mark.parametrize(
    ("zookeeper", "dies_after_ms"),
    [*((False, each) for each in MOMENTS_MS), *((True, each) for each in (None, 5, 200, 1_500))],
)
def test_everything_is_read_and_the_topic_goes_on(
    objects: dict[str, bytes], zookeeper: bool, dies_after_ms: int | None
) -> None:
    plan = plan_of(objects)
    end = plan.partitions[0].end_offset
    assert 0 < end < RECORDS
    cluster = Cluster(2, objects, zookeeper=zookeeper)
    restore(cluster, plan)
    if dies_after_ms is not None:
        leader = cluster.leader()
        cluster.sim.run(dies_after_ms)
        leader.crash(lose_unflushed=cluster.loses_power)
        cluster.sim.run(1_000)
        leader.restart()
    expected = [(number, b"%04d" % number) for number in range(end)]
    assert cluster.read(end) == expected
    for number in range(end, end + 30):
        assert cluster.produce(1_000 + number) == number
        expected.append((number, b"%04d" % (1_000 + number)))
    assert cluster.read(end + 30) == expected

    def goes_on() -> bool:
        state = cluster.state()
        return state is not None and state.lineage().log_end_offset > end + 10

    cluster.until(goes_on)
    # Each of them as the leader, and their disks as a power loss leaves them.
    for node in list(cluster.sim.nodes.values()):
        if node.is_broker:
            node.crash(lose_unflushed=cluster.loses_power)
            assert cluster.read(end + 30) == expected
            node.restart()
            cluster.until(lambda node=node: node.serves)  # type: ignore[misc]
            cluster.sim.run(10_000)
    assert not cluster.sim.problems
