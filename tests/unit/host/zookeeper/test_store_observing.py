"""What others write is published once and in order, and never undoes the controller's writes.

Method: the store over a simulated ZooKeeper in virtual time; tools write znodes beside it, brokers
start and stop. After most things a second store loads from nothing: its image must be the first
one's.
"""

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import ApiError
from ottla.base.ids import NO_EPOCH, uuid_text
from ottla.base.pending import Pending, completed
from ottla.base.zookeeper import Create, SetData, Watcher, ZkCode, ZkError, ZnodeData
from ottla.controller.metadata_port import Committed
from ottla.controller.step import Step
from ottla.controller.topics.create_partitions import NewPartitions
from ottla.metadata.configs import ResourceType
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
)
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING, partition_record
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.notifications import encode_config_change
from ottla.metadata.znodes.partition_state import StateZnode

from .harness import Controller, ZooKeeperHarness
from .store_harness import (
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


def test_brokers_register_unregister_and_register_again(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    session = sim.register(4)
    sim.settle()
    first = controller.store.image.brokers[4].epoch
    sim.wait(session.close())
    sim.settle()
    assert 4 not in controller.store.image.brokers
    sim.register(4)
    sim.settle()
    assert controller.store.image.brokers[4].epoch > first
    check_stored(controller)


def test_kafka_7235_a_fast_bounce_is_a_new_broker(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    before = controller.store.image.brokers[2].epoch
    controller.client.process.paused = True
    sim.delete("/brokers/ids/2")
    sim.register(2)
    sim.scheduler.resume(controller.client.process)
    sim.settle()
    assert controller.store.image.brokers[2].epoch > before
    (delta,) = controller.deltas  # One change, in which it went and came.
    assert delta.changed_brokers == {2}


def test_topics_that_tools_make_change_and_delete_are_seen(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    sim.put("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')
    sim.put_topic("t", [(1, 2)], TOPIC_ID)
    sim.settle()
    image = controller.store.image
    assert image.topics.id_of("t") == TOPIC_ID
    assert dict(image.configs.of(ResourceType.TOPIC, "t")) == {"retention.ms": "5"}
    sim.put_topic("t", [(1, 2), (2, 3)], TOPIC_ID)
    sim.settle()
    topic = controller.store.image.topics.by_name("t")
    assert topic is not None
    assert topic.partitions[1].leader_epoch == NO_EPOCH
    check_stored(controller)
    sim.delete("/brokers/topics/t")
    sim.settle()
    assert "t" not in controller.store.image.topics
    check_stored(controller)


def test_a_topic_of_its_own_is_watched_too(sim: ZooKeeperHarness, controller: Controller) -> None:
    create(controller, "t", partitions=1)
    sim.settle()
    before = controller.store.image.topics.by_name("t")
    assert before is not None
    sim.put_topic("t", [before.partitions[0].replicas, (3,)], before.id)
    sim.settle()
    after = controller.store.image.topics.by_name("t")
    assert after is not None
    assert after.partitions[0] == before.partitions[0]
    assert after.partitions[1].replicas == (3,)
    check_stored(controller)


@pytest.mark.parametrize("is_new", [True, False], ids=["made", "grown"])
def test_kafka_12835_an_id_that_a_tool_did_not_write_is_written(
    sim: ZooKeeperHarness, controller: Controller, is_new: bool
) -> None:
    """The next controller, or a broker that starts, would find another one."""
    if not is_new:
        create(controller, "t", partitions=1)
        sim.settle()
    sim.put("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2],"1":[2]},"later":7}')
    sim.settle()
    topic_id = controller.store.image.topics.id_of("t")
    assert topic_id is not None
    data = sim.data("/brokers/topics/t")
    assert data is not None
    assert f'"topic_id":"{uuid_text(topic_id)}"'.encode() in data
    assert b'"later":7' in data
    check_stored(controller)


def test_replicas_that_a_tool_changes_past_the_controller_are_put_back(
    sim: ZooKeeperHarness, controller: Controller, caplog: pytest.LogCaptureFixture
) -> None:
    create(controller, "t", partitions=1)
    sim.settle()
    data, deltas = sim.data("/brokers/topics/t"), len(controller.deltas)
    sim.put("/brokers/topics/t", b'{"version":1,"partitions":{"0":[3]}}')
    sim.settle()
    assert sim.data("/brokers/topics/t") == data
    assert len(controller.deltas) == deltas
    assert "have other replicas than before" in caplog.text
    check_stored(controller)


def test_a_re_created_topic_is_another_topic(sim: ZooKeeperHarness, controller: Controller) -> None:
    create(controller, "t")
    sim.settle()
    first = controller.store.image.topics.id_of("t")
    controller.client.process.paused = True
    sim.delete("/brokers/topics/t")
    sim.put_topic("t", [(3,)], TOPIC_ID)
    sim.scheduler.resume(controller.client.process)
    sim.settle()
    topic = controller.store.image.topics.by_name("t")
    assert topic is not None
    assert topic.id == TOPIC_ID != first
    assert len(topic.partitions) == 1
    check_stored(controller)


def test_configs_that_tools_change_are_seen(sim: ZooKeeperHarness, controller: Controller) -> None:
    create(controller, "t")
    sim.put("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')
    resource = (int(ResourceType.TOPIC), "t")
    change = Create(paths.CONFIG_CHANGE, encode_config_change(resource), sequential=True)
    sim.write(change)
    sim.settle()
    assert dict(controller.store.image.configs.of(*resource)) == {"retention.ms": "5"}
    sim.write(SetData("/config/topics/t", b'{"version":1,"config":{}}'), change)
    sim.settle()
    assert dict(controller.store.image.configs.of(*resource)) == {}
    check_stored(controller)


def test_features_that_appear_are_seen(sim: ZooKeeperHarness, controller: Controller) -> None:
    feature = b'{"version":2,"status":1,"features":{"f":{"max_version_level":%d}}}'
    sim.put("/feature", feature % 1)
    sim.settle()
    assert dict(controller.store.image.features) == {"f": 1}
    sim.put("/feature", feature % 2)
    sim.settle()
    assert dict(controller.store.image.features) == {"f": 2}


def test_repaired_producer_ids_are_seen(sim: ZooKeeperHarness, controller: Controller) -> None:
    path = "/latest_producer_id_block"
    sim.put(path, b"?")
    sim.settle()
    controller = sim.elect(sim.client("next")).load()
    with pytest.raises(ApiError, match=path):
        controller.append(NEXT_IDS)
    sim.put(path, b'{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}')
    sim.settle()
    assert controller.store.image.producer_ids.next_producer_id == 2_000
    assert isinstance(controller.append(NEXT_IDS), Committed)


def test_own_writes_are_published_once(sim: ZooKeeperHarness, controller: Controller) -> None:
    create(controller, "t")
    published = len(controller.deltas)
    sim.settle()  # Watches fire for them, and what is read differs in nothing.
    assert len(controller.deltas) == published


def test_many_changes_are_one_reading(sim: ZooKeeperHarness, controller: Controller) -> None:
    controller.client.process.paused = True
    for number in range(50):
        sim.put_topic(f"t{number}", [(1, 2)])
    sim.scheduler.resume(controller.client.process)
    sim.settle()
    assert len(controller.store.image.topics) == 50
    assert len(controller.deltas) <= 3


def test_a_read_that_an_append_overtook_does_not_undo_it(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    create(controller, "t", partitions=1)
    sim.settle()
    topic = controller.store.image.topics.by_name("t")
    assert topic is not None
    # Readings and appends of the same topic, one on the heels of the other.
    for count in range(2, 12):
        data, version = sim.data("/brokers/topics/t"), sim.version("/brokers/topics/t")
        assert data is not None
        sim.tool.multi((SetData("/brokers/topics/t", data, version),))
        grown = NewPartitions(name="t", count=count)
        pending = controller.runtime.run(lambda image, g=grown: GROW(image, [g]))
        sim.wait(pending)
        seen = controller.store.image.topics.by_name("t")
        assert seen is not None
        assert len(seen.partitions) == count
    sim.settle()
    for delta in controller.deltas:
        for change in delta.changed_topics.values():
            assert len(change.new.partitions) >= len(change.old.partitions)
    check_stored(controller)


def test_the_log_directories_of_a_restarted_broker_are_online_again(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    session = sim.register(4)
    sim.put_topic("t", [(4, 1)], TOPIC_ID)
    sim.put_state("t", 0, StateZnode(leader=1, leader_epoch=0, controller_epoch=1, isr=(1, 4)))
    sim.settle()
    topic = controller.store.image.topics.by_name("t")
    assert topic is not None
    lost = replace(topic.partitions[0], directories=(DIRECTORY_LOST, DIRECTORY_MIGRATING))
    controller.append(partition_record(topic.id, 0, lost))
    assert controller.store.image.topics.by_name("t") == topic.with_partition(0, lost)
    sim.wait(session.close())
    sim.register(4)
    sim.settle()
    after = controller.store.image.topics.by_name("t")
    assert after is not None
    assert after.partitions[0].directories == (DIRECTORY_MIGRATING, DIRECTORY_MIGRATING)


def test_an_append_ends_on_the_image_on_which_it_was_decided(
    sim: ZooKeeperHarness, controller: Controller
) -> None:
    session = sim.register(4)
    sim.settle()
    store = controller.store
    epoch = store.image.brokers[4].epoch
    change = BrokerRegistrationChangeRecord(
        broker_id=4, broker_epoch=epoch, in_controlled_shutdown=1
    )
    on_read = store._on_read
    answers: list[Pending[Any]] = []

    def append_first(*read: Any) -> None:
        """Begin to append in the moment in which what was read has arrived."""
        store._on_read = on_read  # type: ignore[method-assign]
        answers.append(store.append(Step((change, NEXT_IDS)), controller.epoch))
        on_read(*read)

    store._on_read = append_first  # type: ignore[assignment]
    sim.wait(session.close())
    sim.settle()
    assert isinstance(answers[0].value, Committed)
    changed, removed = controller.deltas[-2:]
    assert changed.image.brokers[4].in_controlled_shutdown
    assert 4 not in removed.image.brokers
    check_stored(controller)


def test_a_failed_read_is_repeated_completely(
    sim: ZooKeeperHarness, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the failed read had read and watched is not known: it was not published."""
    create(controller, "t")
    get, failing = controller.session.get, {paths.state("u", 0), "/config/topics/t"}

    def get_or_fail(path: str, watch: Watcher | None = None) -> Pending[ZnodeData | ZkError]:
        if path in failing:
            failing.remove(path)
            return completed(ZkError(ZkCode.SYSTEM_ERROR, path))
        return get(path, watch)

    monkeypatch.setattr(controller.session, "get", get_or_fail)
    sim.put_topic("u", [(1, 2)])
    sim.put("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')
    resource = (int(ResourceType.TOPIC), "t")
    sim.write(Create(paths.CONFIG_CHANGE, encode_config_change(resource), sequential=True))
    sim.run(5_000)
    assert not failing
    assert "u" in controller.store.image.topics
    assert dict(controller.store.image.configs.of(*resource)) == {"retention.ms": "5"}
    check_stored(controller)
