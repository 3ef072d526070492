"""What is stored becomes the image, decisions are stored, and what others write is seen.

Method: the store over a simulated ZooKeeper in virtual time; tools write znodes beside it. After
most things a second store loads from nothing: its image must be the first one's.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, NO_LEADER
from ottla.base.zookeeper import Delete, SetData
from ottla.controller.elections.new_partitions import bring_online
from ottla.controller.metadata_port import Committed, Conflict, Fenced
from ottla.controller.step import Step
from ottla.controller.topics.create_partitions import NewPartitions
from ottla.controller.topics.create_topics import NewTopic
from ottla.metadata.configs import ResourceType
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    ConfigRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
)
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.partition_state import StateZnode
from tests.unit.host.zookeeper.harness import Controller, ZooKeeperHarness
from tests.unit.host.zookeeper.store_harness import (
    CONTEXT,
    CREATE,
    GROW,
    NEXT_IDS,
    TOPIC_ID,
    check_stored,
    create,
    ruled,
    three_brokers,
)


@pytest.fixture
def sim() -> ZooKeeperHarness:
    return three_brokers()


@pytest.fixture
def controller(sim: ZooKeeperHarness) -> Controller:
    return ruled(sim)


# -- loading -----------------------------------------------------------------------------------


def test_everything_is_loaded(sim: ZooKeeperHarness) -> None:
    sim.put_topic("t", [(1, 2), (2, 3)], TOPIC_ID)
    sim.put_state("t", 0, StateZnode(leader=2, leader_epoch=4, controller_epoch=1, isr=(2,)))
    sim.put("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')
    sim.put("/config/brokers/<default>", b'{"version":1,"config":{"log.retention.ms":"7"}}')
    block = b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    sim.put("/latest_producer_id_block", block)
    image = sim.elect(sim.client("controller")).load().store.image
    topic = image.topics.by_name("t")
    assert topic is not None
    assert topic.id == TOPIC_ID
    led, new = topic.partitions[0], topic.partitions[1]
    assert (led.leader, led.leader_epoch, led.isr, led.partition_epoch) == (2, 4, (2,), 0)
    assert (new.leader, new.leader_epoch, new.isr) == (NO_LEADER, NO_EPOCH, ())
    assert dict(image.configs.of(ResourceType.TOPIC, "t")) == {"retention.ms": "5"}
    assert dict(image.configs.of(ResourceType.BROKER, "")) == {"log.retention.ms": "7"}
    assert image.producer_ids.next_producer_id == 1_000
    assert sorted(image.brokers) == [1, 2, 3]
    assert image.brokers[2].epoch == sim.model.tree.nodes["/brokers/ids/2"].czxid


def test_a_change_that_is_written_while_its_leader_restarts_is_about_the_previous_process(
    sim: ZooKeeperHarness,
) -> None:
    """The controller has not received yet that broker 2 has registered again, and dies."""
    sim.put_topic("t", [(2, 3)], TOPIC_ID)
    sim.put_state("t", 0, StateZnode(leader=2, leader_epoch=4, controller_epoch=1, isr=(2,)))
    first = sim.elect(sim.client("controller")).load()
    sim.model.hold_answers("controller")
    sim.delete(paths.broker(2))
    sim.register(2)
    change = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(2, 3))
    first.store.append(Step((change,)), first.epoch)
    sim.settle()
    tree = sim.model.tree.nodes
    assert tree[paths.state("t", 0)].mzxid > tree[paths.broker(2)].czxid
    second = sim.elect(sim.client("next")).load()
    image = second.store.image
    topic = image.topics.by_id(TOPIC_ID)
    assert topic is not None
    assert (topic.partitions[0].leader_epoch, topic.partitions[0].isr) == (4, (2, 3))
    assert second.store.started_since == {("t", 0): frozenset({2})}
    # What is written from now on is about the present process.
    second.append(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(2,)))
    assert sim.elect(sim.client("last")).load().store.started_since == {}


def test_kafka_12835_a_topic_gets_an_id_and_loses_no_unknown_field(
    sim: ZooKeeperHarness,
) -> None:
    sim.put("/brokers/topics/old", b'{"version":1,"partitions":{"0":[1]},"future":"kept"}')
    first = sim.elect(sim.client("controller")).load()
    given = first.store.image.topics.id_of("old")
    data = sim.data("/brokers/topics/old")
    assert data is not None
    assert b'"topic_id"' in data
    assert b'"future":"kept"' in data
    second = sim.elect(sim.client("next")).load()
    assert second.store.image.topics.id_of("old") == given


def test_features_are_enabled_where_they_are_missing(sim: ZooKeeperHarness) -> None:
    """As Kafka's controller does: no znode would be a cluster from before there were any."""
    sim.elect(sim.client("controller")).load()
    assert sim.data("/feature") == b'{"version":2,"status":1,"features":{}}'


def test_features_that_are_there_stay_as_they_are(sim: ZooKeeperHarness) -> None:
    feature = b'{"version":2,"status":1,"features":{"f":{"max_version_level":3}},"later":7}'
    sim.put("/feature", feature)
    controller = sim.elect(sim.client("controller")).load()
    assert dict(controller.store.image.features) == {"f": 3}
    assert sim.data("/feature") == feature


def test_notifications_of_the_time_before_are_purged(sim: ZooKeeperHarness) -> None:
    sim.put("/isr_change_notification/isr_change_0000000001", b"{}")
    sim.put("/log_dir_event_notification/log_dir_event_0000000001", b"{}")
    sim.elect(sim.client("controller")).load()
    assert sim.names(paths.ISR_CHANGES) == sim.names(paths.LOG_DIR_EVENTS) == []


def test_invalid_znodes_do_not_affect_others(
    sim: ZooKeeperHarness, caplog: pytest.LogCaptureFixture
) -> None:
    sim.put_topic("good", [(1,)], TOPIC_ID)
    sim.put("/brokers/topics/bad", b"{")
    sim.put("/config/topics/good", b"[]")
    controller = sim.elect(sim.client("controller")).load()
    assert controller.store.image.topics.names() == ["good"]
    assert "/brokers/topics/bad" in caplog.text
    create(controller, "another")
    assert controller.store.image.topics.names() == ["another", "good"]


def test_loading_as_a_fenced_controller_fails(sim: ZooKeeperHarness) -> None:
    sim.put("/brokers/topics/old", b'{"version":1,"partitions":{"0":[1]}}')
    old = sim.elect(sim.client("old"))
    sim.elect(sim.client("new"))
    assert sim.wait(old.store.load()) is not None
    assert old.store.dead


# -- appending ---------------------------------------------------------------------------------


def test_a_topic_is_created_with_leaders_and_gets_partitions(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    create(controller, "t")
    grown = NewPartitions(name="t", count=5)
    controller.run(lambda image: GROW(image, [grown]))
    topic = controller.store.image.topics.by_name("t")
    assert topic is not None
    assert len(topic.partitions) == 5
    assert len(sim.names("/brokers/topics/t/partitions")) == 5
    change = PartitionChangeRecord(partition_id=0, topic_id=topic.id, leader=NO_LEADER)
    assert isinstance(controller.append(change), Committed)
    assert sim.version("/brokers/topics/t/partitions/0/state") == 1
    check_stored(controller)


def test_a_large_step_is_written_in_parts(sim: ZooKeeperHarness, controller: Controller) -> None:
    create(controller, "large", partitions=2_500)
    assert len(controller.deltas) > 1
    check_stored(controller)


def test_configs_and_producer_ids_are_written(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    create(controller, "t")
    config = ConfigRecord(
        resource_type=ResourceType.TOPIC, resource_name="t", name="retention.ms", value="9"
    )
    controller.append(config, ProducerIdsRecord(broker_id=1, next_producer_id=3_000))
    assert sim.data("/config/topics/t") == b'{"version":1,"config":{"retention.ms":"9"}}'
    assert len(sim.names("/config/changes")) == 1
    check_stored(controller)


def test_kafka_1096_a_fenced_controller_writes_nothing(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    create(controller, "t")
    before = dict(sim.model.tree.nodes)
    newer = sim.elect(sim.client("newer")).load()
    answer = create(controller, "zombie")
    assert getattr(answer, "error", None) is Error.NOT_CONTROLLER
    assert controller.fenced == 1
    assert sim.data("/brokers/topics/zombie") is None
    assert controller.store.dead
    after = {path: node for path, node in sim.model.tree.nodes.items() if path in before}
    assert after.keys() == before.keys()
    create(newer, "rightful")
    assert newer.store.image.topics.names() == ["rightful", "t"]
    assert controller.store.image.topics.names() == ["t"]  # It gets no more changes.


def test_kafka_6082_the_epoch_is_the_elections_and_never_read_again(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    controller.client.process.paused = True
    sim.elect(sim.client("newer")).load()
    sim.scheduler.resume(controller.client.process)
    sim.settle()
    assert isinstance(controller.append(NEXT_IDS), Fenced)
    assert sim.data("/latest_producer_id_block") == b""


def test_an_expired_session_fences(sim: ZooKeeperHarness, controller: Controller) -> None:
    sim.model.expire(controller.session.id)
    assert isinstance(controller.append(NEXT_IDS), Fenced)
    assert controller.store.dead


def test_another_epoch_is_fenced_without_a_write(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    zxid = sim.model.zxid
    step = Step((NEXT_IDS,))
    assert isinstance(controller.store.append(step, controller.epoch + 1).value, Fenced)
    assert sim.model.zxid == zxid


# -- conflicts ---------------------------------------------------------------------------------


def test_a_conflict_is_read_and_decided_again(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    create(controller, "t")
    state = paths.state("t", 0)
    # A tool has written the state, which no watch reports.
    by_hand = b'{"version":1,"leader":-1,"leader_epoch":7,"controller_epoch":1,"isr":[1]}'
    sim.write(SetData(state, by_hand))
    topic = controller.store.image.topics.by_name("t")
    assert topic is not None
    change = PartitionChangeRecord(partition_id=0, topic_id=topic.id, leader=NO_LEADER)
    answer = controller.append(change)
    assert isinstance(answer, Conflict)
    assert state in answer.keys
    after = controller.store.image.topics.by_name("t")
    assert after is not None
    assert after.partitions[0].leader_epoch == 7
    assert isinstance(controller.append(change), Committed)
    check_stored(controller)


def test_a_topic_that_a_tool_created_first_is_a_conflict(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    seen: list[ClusterImage] = []

    def decide(image: ClusterImage) -> object:
        seen.append(image)
        return CREATE(image, [NewTopic(name="t", partition_count=1)])

    controller.client.process.paused = True
    sim.put_topic("t", [(1, 2)], TOPIC_ID)
    pending = controller.runtime.run(decide)  # type: ignore[arg-type]
    sim.scheduler.resume(controller.client.process)
    (created,) = sim.wait(pending)  # type: ignore[misc]
    assert created.error is Error.TOPIC_ALREADY_EXISTS
    assert len(seen) == 2
    assert controller.store.image.topics.id_of("t") == TOPIC_ID
    check_stored(controller)


def test_a_vanished_topic_is_a_conflict(sim: ZooKeeperHarness, controller: Controller) -> None:
    create(controller, "t")
    topic = controller.store.image.topics.by_name("t")
    assert topic is not None
    controller.client.process.paused = True
    sim.delete("/brokers/topics/t")
    change = PartitionChangeRecord(partition_id=0, topic_id=topic.id, leader=NO_LEADER)
    pending = controller.store.append(Step((change,)), controller.epoch)
    sim.scheduler.resume(controller.client.process)
    assert isinstance(sim.wait(pending), Conflict)
    assert "t" not in controller.store.image.topics
    check_stored(controller)


def test_new_partition_to_online_partition_transition_error_from_create_states(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    """A tool created the first state meanwhile: it is kept, and the other partition proceeds."""
    sim.put_topic("t", [(1, 2), (2, 1)], TOPIC_ID)
    sim.settle()
    first = bring_online(controller.store.image, CONTEXT.config)
    assert len(first.records) == 2
    sim.put_state("t", 0, StateZnode(leader=2, leader_epoch=4, controller_epoch=1, isr=(2,)))
    assert isinstance(controller.append(*first.records, atomic=first.atomic), Conflict)
    again = bring_online(controller.store.image, CONTEXT.config)
    assert [getattr(each, "partition_id", None) for each in again.records] == [1]
    assert isinstance(controller.append(*again.records, atomic=again.atomic), Committed)
    topic = controller.store.image.topics.by_id(TOPIC_ID)
    assert topic is not None
    found = [(each.leader, each.leader_epoch) for _, each in topic.in_order()]
    assert found == [(2, 4), (2, 0)]
    check_stored(controller)


def test_offline_partition_to_online_partition_transition_error_from_state_lookup(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    """A tool deleted the state: there is no election without it."""
    create(controller, "t")
    topic = controller.store.image.topics.by_name("t")
    assert topic is not None
    sim.write(Delete(paths.state("t", 0)))
    change = PartitionChangeRecord(partition_id=0, topic_id=topic.id, leader=2)
    assert isinstance(controller.append(change), Conflict)
    after = controller.store.image.topics.by_name("t")
    assert after is not None
    assert (after.partitions[0].leader, after.partitions[0].leader_epoch) == (NO_LEADER, NO_EPOCH)
    check_stored(controller)


# -- deletes -----------------------------------------------------------------------------------


def test_kafka_6650_unknown_znodes_of_a_deleted_topic_are_deleted(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    create(controller, "t", partitions=3)
    sim.put(paths.marker("t"), b"")
    sim.settle()
    topic = controller.store.image.topics.by_name("t")
    assert topic is not None
    # A deletion that broke off, and what some tool has left.
    sim.write(Delete(paths.state("t", 1)))
    sim.put("/brokers/topics/t/partitions/0/left", b"by a tool")
    sim.put("/brokers/topics/t/other", b"")
    answer = controller.append(RemoveTopicRecord(topic_id=topic.id), atomic=False)
    if not isinstance(answer, Committed):
        answer = controller.append(RemoveTopicRecord(topic_id=topic.id), atomic=False)
    assert isinstance(answer, Committed)
    assert sim.data("/brokers/topics/t") is None
    assert sim.data(paths.marker("t")) is None
    check_stored(controller)
