"""A topic is restored in ZooKeeper mode, or not at all, whenever its controller dies.

Method: controllers over a simulated ZooKeeper and brokers that are fakes. The controller dies some
milliseconds after it was asked; its multis are small, so that there are many moments between them.
What is stored then, what the next controller makes of it, and what brokers are sent.
"""

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.controller.mode_policy import ZOOKEEPER_MODE
from ottla.controller.topics.restore import RestoredTopic, restore_topic
from ottla.metadata.image import ClusterImage
from ottla.metadata.tiering import RestoredPartition, TopicTiering
from ottla.metadata.znodes import multis, paths
from ottla.wire.messages import leader_and_isr as lai
from ottla.wire.messages import update_metadata as update
from ottla.wire.messages.topic_tiering import RestoredEpochData, RestoredPartitionData
from tests.unit.controller.builders import CountingDice, context, uuid

from .controller_harness import ControllerHarness, Node

ID = uuid("restored")
PARTITIONS = 6
GIVEN = {
    "remote.log.storage.system.enable": "true",
    "ottla.remote.storage.uri": "file:///remote",
}
CONFIGS = {"remote.storage.enable": "true", "retention.ms": "5"}
TOPIC = RestoredTopic(
    name="t",
    topic_id=ID,
    tiered_epoch=4,
    floor=2,
    configs=CONFIGS,
    partitions=tuple(
        RestoredPartition(
            partition=each,
            leader_epoch=7 + each,
            log_start_offset=10,
            end_offset=30,
            epochs=((1, 10), (6, 20)),
        )
        for each in range(PARTITIONS)
    ),
    replication_factor=2,
)
TIERING = TopicTiering(topic_id=ID, tiered_epoch=4, remote_floor_epoch=2, restored=TOPIC.partitions)


def started() -> ControllerHarness:
    sim = ControllerHarness(**{key.replace(".", "_"): value for key, value in GIVEN.items()})
    sim.start(1, 2, 3)
    return sim


def restore(sim: ControllerHarness, node: Node) -> Any:
    """Ask a controller; return the promise of its answer."""
    given = replace(context(GIVEN, CountingDice()), mode=ZOOKEEPER_MODE)
    return node.controller.run(
        lambda image: restore_topic(image, TOPIC, validate_only=False, context=given)
    )


def check(image: ClusterImage) -> None:
    """Check the topic, all of whose partitions are led."""
    topic = image.topics.by_id(ID)
    assert topic is not None
    assert topic.name == "t"
    assert image.tiering[ID] == TIERING
    assert dict(image.configs.of(2, "t")) == CONFIGS
    assert sorted(topic.partitions) == list(range(PARTITIONS))
    for number, each in topic.partitions.items():
        assert each.leader >= 0
        # A next leader has the next epoch.
        assert 7 + number <= each.leader_epoch <= 9 + number


def check_brokers(sim: ControllerHarness) -> None:
    """Check what live brokers were sent: each request has what its own partitions began with."""
    expected = {
        each.partition: RestoredPartitionData(
            partition=each.partition,
            leader_epoch=each.leader_epoch,
            log_start_offset=10,
            end_offset=30,
            epochs=(
                RestoredEpochData(epoch=1, start_offset=10),
                RestoredEpochData(epoch=6, start_offset=20),
            ),
        )
        for each in TOPIC.partitions
    }
    for node in sim.nodes.values():
        for request in node.requests:
            if not isinstance(request, lai.LeaderAndIsrRequest | update.UpdateMetadataRequest):
                continue
            for states in request.topic_states:
                named = [each.partition_index for each in states.partition_states]
                assert list(states.tiering.restored) == [expected[each] for each in sorted(named)]
        for number, partition in sim.image.topics.by_id(ID).partitions.items():  # type: ignore[union-attr]
            if node.id in partition.replicas:
                assert node.led("t", number).leader_epoch >= 7 + number
            assert node.knows("t", number) is not None


def test_all_brokers_receive_where_the_partitions_begin() -> None:
    sim = started()
    decided = sim.wait(restore(sim, sim.controller))
    assert not isinstance(decided, ApiError)
    sim.settle()
    check(sim.image)
    check_brokers(sim)
    again = sim.wait(restore(sim, sim.controller))
    assert isinstance(again, ApiError)
    assert again.error is Error.TOPIC_ALREADY_EXISTS


def until_another(sim: ControllerHarness, first: Node) -> None:
    sim.until(lambda: any(each is not first for each in sim.active_controllers()))


@pytest.mark.drawn(8, of="every step")
@pytest.mark.parametrize("is_lost", [False, True])
def test_the_controller_dies_at_any_moment(is_lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed, or loses its connection and its session, so that it does not know."""
    monkeypatch.setattr(multis, "ZOOKEEPER_MULTI_OPERATIONS_MAX", 12)
    found = set()
    for moment_ms in range(24):
        sim = started()
        first = sim.controller
        answer = restore(sim, first)
        sim.run(moment_ms)
        if is_lost:
            first.expire()
        else:
            first.kill()
        exists = sim.data(paths.topic("t")) is not None
        leaderless = sum(sim.data(paths.state("t", each)) is None for each in range(PARTITIONS))
        # The topic's znode is never there without where it begins.
        assert exists == (sim.data(paths.tiering_state("t")) is not None)
        assert exists == (sim.data(paths.config((2, "t"))) is not None)
        found.add((exists, leaderless))
        until_another(sim, first)
        sim.settle()
        if not exists and sim.image.topics.by_id(ID) is None:
            assert not answer.done or isinstance(answer.value, ApiError)
            # It can be asked again.
            assert not isinstance(sim.wait(restore(sim, sim.controller)), ApiError)
            sim.settle()
        check(sim.image)
        if not is_lost:
            sim.revive(first.id)
            sim.settle()
        check_brokers(sim)
    # Before the first write, between any two, and after the last.
    assert len(found) > 3
    assert {(False, PARTITIONS), (True, 0)} <= found
