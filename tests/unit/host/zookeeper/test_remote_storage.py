"""Segments are copied in ZooKeeper mode, whatever happens to brokers, controllers and ZooKeeper.

Method: a simulated cluster of four brokers, in which no broker hosts all partitions of the remote
log metadata topic; each record is a segment. What is in the store, and who leads, is looked at.
"""

from collections.abc import Callable
from typing import Any

from ottla.base.errors import ApiError
from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC, Uuid
from ottla.base.object_store import Pool
from ottla.base.pending import Pending
from ottla.host.remote_storage import OPERATIONS_PER_TASK
from ottla.records.builder import encode_batch
from ottla.testing.sim import Sim
from ottla.testing.sim.node import SimNode
from ottla.testing.sim.object_store import ModelStore
from ottla.testing.sim.watch.deletion_steps import controller_of
from ottla.tiered.segment_metadata import SegmentState
from ottla.wire.messages import create_topics as create
from ottla.wire.messages import incremental_alter_configs as alter
from ottla.wire.messages import produce

SESSION_MS = 4_000
TOPIC = "t"
ENABLE = "remote.storage.enable"
CONFIG = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "remote.log.storage.system.enable": "true",
    "ottla.remote.storage.uri": "file:///remote",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "6",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
}


class Cluster:
    """The cluster, and one client. `appended`: how many records were acknowledged."""

    def __init__(self) -> None:
        self.sim = Sim(3, brokers=4, zookeeper=True, config=CONFIG)
        self.appended = 0
        nodes = self.sim.nodes.values()
        self.until(lambda: all(node.serves for node in nodes) and len(self.sim.image.brokers) == 4)

    def until(self, holds: Callable[[], bool], limit_ms: int = 60_000) -> None:
        self.sim.run_until(holds, limit_ms=limit_ms)

    def ask(self, node: int, request: object, version: int) -> Any:
        answer = self.sim.client_port("client").send(node, request, version, 10_000)
        return self.wait(answer)

    def wait(self, answer: Pending[Any]) -> Any:
        self.until(lambda: answer.done)
        return answer.value

    def create(self, value: str) -> None:
        configs = {ENABLE: value, "internal.segment.bytes": "150", "local.retention.bytes": "1"}
        topic = create.CreatableTopic(
            name=TOPIC,
            num_partitions=1,
            replication_factor=3,
            assignments=(),
            configs=tuple(
                create.CreatableTopicConfig(name=name, value=text) for name, text in configs.items()
            ),
        )
        answer = self.ask(1, create.CreateTopicsRequest(topics=(topic,), timeout_ms=9_000), 5)
        assert answer.topics[0].error_code == 0
        self.until(lambda: self.leader >= 0)

    def enable(self) -> None:
        self.alter(2, TOPIC, ENABLE, "true")

    def alter(self, resource_type: int, resource_name: str, name: str, value: str) -> None:
        change = alter.AlterableConfig(name=name, config_operation=0, value=value)
        resource = alter.AlterConfigsResource(
            resource_type=resource_type, resource_name=resource_name, configs=(change,)
        )
        request = alter.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        assert self.ask(1, request, 1).responses[0].error_code == 0

    @property
    def leader(self) -> int:
        topic = self.sim.image.topics.by_name(TOPIC)
        return -1 if topic is None else topic.partitions[0].leader

    @property
    def topic_id(self) -> Uuid:
        topic_id = self.sim.image.topics.id_of(TOPIC)
        assert topic_id is not None
        return topic_id

    def produce(self, count: int) -> None:
        """Append records one by one, to whoever leads."""
        end = self.appended + count
        while self.appended < end:
            batch = encode_batch([(None, b"x" * 60, (), self.sim.clock.now_ms())])
            partition = produce.PartitionProduceData(index=0, records=batch)
            data = produce.TopicProduceData(name=TOPIC, partition_data=(partition,))
            request = produce.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(data,))
            self.until(lambda: self.leader >= 0)
            answer = self.ask(self.leader, request, 9)
            if isinstance(answer, ApiError):
                self.sim.run(100)
            elif answer.responses[0].partition_responses[0].error_code == 0:
                self.appended += 1
            else:
                self.sim.run(100)

    def copied(self) -> int:
        """Return the end of what is in the store without a gap."""
        starts = {
            int(name.rsplit("/", 1)[1][:20])
            for name in self.sim.object_store.objects
            if name.startswith(f"{TOPIC}-") and name.endswith(".log")
        }
        return next(offset for offset in range(len(starts) + 1) if offset not in starts)

    def until_copied(self) -> None:
        """Wait until all but the newest segment are copied, and every replica knows it."""
        end = self.appended - 1
        self.until(lambda: self.copied() >= end)
        self.until(lambda: all(self.knows(node, end) for node in self.sim.nodes.values()))

    def knows(self, node: SimNode, end: int) -> bool:
        broker = node.broker
        if broker is None or broker.remote is None:
            return False
        if not any(each.topic == TOPIC for each in broker.replicas.hosted()):
            return True
        remote = broker.remote.metadata.remote_log(self.topic_id, 0)
        readable = [] if remote is None else remote.segments()
        finished = {
            each.start_offset for each in readable if each.state is SegmentState.COPY_FINISHED
        }
        return finished >= set(range(end))


def test_each_leader_copies_what_is_not_copied_yet() -> None:
    cluster = Cluster()
    cluster.create("true")
    for _ in range(3):
        cluster.produce(6)
        cluster.until_copied()
        leader = cluster.sim.nodes[cluster.leader]
        leader.crash(lose_unflushed=False)
        cluster.until(lambda old=leader.id: cluster.leader not in (-1, old))  # type: ignore[misc]
        leader.restart()
        cluster.until(lambda node=leader: node.serves)  # type: ignore[misc]
    cluster.produce(6)
    cluster.until_copied()
    topic = cluster.sim.image.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
    assert topic is not None
    assert {len(each.replicas) for each in topic.partitions.values()} == {3}
    assert cluster.sim.problems == []


def test_the_controller_crashes_once_it_has_enabled_an_existing_topic() -> None:
    cluster = Cluster()
    cluster.create("false")
    cluster.produce(8)
    cluster.sim.run(10_000)
    assert cluster.copied() == 0
    cluster.enable()
    controller = controller_of(cluster.sim)
    controller.crash(lose_unflushed=False)
    cluster.sim.run(3 * SESSION_MS)
    controller.restart()
    cluster.until_copied()
    assert cluster.copied() == cluster.appended - 1
    assert cluster.sim.problems == []


def test_copies_go_on_while_zookeeper_is_down_and_after_it() -> None:
    cluster = Cluster()
    cluster.create("true")
    cluster.produce(4)
    cluster.until_copied()
    assert cluster.sim.zookeeper is not None
    cluster.sim.zookeeper.model.down(silently=True)
    cluster.produce(6)
    cluster.until_copied()
    cluster.sim.run(3 * SESSION_MS)
    cluster.sim.zookeeper.model.up()
    cluster.produce(6)
    cluster.until_copied()
    assert cluster.sim.problems == []


def test_all_brokers_restart_at_once() -> None:
    cluster = Cluster()
    cluster.create("true")
    cluster.produce(8)
    cluster.until_copied()
    for node in cluster.sim.nodes.values():
        node.crash(lose_unflushed=False)
    for node in cluster.sim.nodes.values():
        node.restart()
    cluster.until(lambda: all(node.serves for node in cluster.sim.nodes.values()))
    cluster.produce(4)
    cluster.until_copied()
    assert cluster.sim.problems == []


def test_a_restarted_broker_has_the_pools_of_the_dynamic_configuration() -> None:
    """They are read with the metadata at the start: no change of them follows."""
    cluster = Cluster()
    cluster.alter(4, "", "remote.log.manager.copier.thread.pool.size", "3")
    node = cluster.sim.nodes[2]
    cluster.until(lambda: copier_pool(node) == (3, 3 * OPERATIONS_PER_TASK))
    node.stop()
    cluster.until(lambda: not node.alive)
    node.restart()
    cluster.until(lambda: node.serves)
    cluster.sim.run(1_000)
    assert copier_pool(node) == (3, 3 * OPERATIONS_PER_TASK)


def copier_pool(node: SimNode) -> tuple[int, int] | None:
    """Return the size that was set; None = that of the file."""
    assert node.core is not None
    assert node.core.broker is not None
    store = node.core.broker._store
    assert isinstance(store, ModelStore)
    return store.resized.get(Pool.COPIER)
