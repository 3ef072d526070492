"""The observations of a deletion, step by step, and crashes at a step.

Method: whole clusters for some virtual seconds, in both modes; a topic is created, then deleted.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import ApiError
from ottla.base.ids import Uuid
from ottla.broker.partition import Partition
from ottla.broker.replica_manager import ReplicaManager
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.testing.sim import Sim
from ottla.testing.sim.scheduler import ProcessDied
from ottla.testing.sim.watch.deletion_steps import (
    STEPS,
    Crash,
    CrashPlan,
    Step,
    Victim,
    controller_of,
)
from ottla.testing.sim.watch.deletions import KnownMetadata, deletions_left, partition_dirs_left
from ottla.testing.sim.watch.observations import (
    DeletionConfirmed,
    DeletionSet,
    PartitionDirGone,
    PartitionDirSeen,
    TopicKnown,
    TopicSet,
)
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import delete_topics as delete_wire

MODES = pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
DELAY_MS = 3_000


class Cluster:
    """Three brokers with a topic of one partition on all of them."""

    def __init__(self, *, zookeeper: bool) -> None:
        config = {"log.segment.delete.delay.ms": str(DELAY_MS)}
        self.sim = Sim(1, combined=True, zookeeper=zookeeper, config=config)
        self.observations: list[Any] = []
        self.sim.observe(self.observations.append)
        self.port = self.sim.client_port("somebody")
        nodes = self.sim.nodes.values()
        self.until(lambda: all(node.serves for node in nodes) and len(self.sim.image.brokers) == 3)
        topic = create_wire.CreatableTopic(
            name="t", num_partitions=1, replication_factor=3, assignments=(), configs=()
        )
        self.ask(create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=3_000), 5)
        self.until(lambda: len(self.of(PartitionDirSeen)) == 3)
        self.topic_id: Uuid = self.of(TopicSet)[0].topic_id

    def until(self, holds: Callable[[], bool]) -> None:
        self.sim.run_until(holds, limit_ms=30_000)

    def ask(self, request: object, version: int) -> Any:
        answer = self.port.send(controller_of(self.sim).id, request, version, 4_000)
        self.until(lambda: answer.done)
        return answer.value

    def delete(self) -> Any:
        return self.ask(delete_wire.DeleteTopicsRequest(topic_names=("t",), timeout_ms=3_000), 5)

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.observations if isinstance(each, kind)]


@MODES
def test_a_deletion_is_observed_from_its_entry_to_its_receipt(zookeeper: bool) -> None:
    cluster = Cluster(zookeeper=zookeeper)
    assert not isinstance(cluster.delete(), ApiError)
    cluster.until(lambda: not deletions_left(cluster.sim))
    entries = cluster.of(DeletionSet)
    assert entries[0].before is None
    assert not entries[0].after.is_finished
    assert entries[-1].after.is_finished
    confirmed = cluster.of(DeletionConfirmed)
    assert sorted(each.node for each in confirmed) == [1, 2, 3]
    assert {each.left for each in confirmed} == {()}
    gone = {each.node: (each.in_sync, each.assigned) for each in cluster.of(PartitionDirGone)}
    assert gone == dict.fromkeys((1, 2, 3), (False, False))
    assert [each.is_there for each in cluster.of(TopicSet)] == [True, False]
    assert sorted(each.node for each in cluster.of(TopicKnown) if not each.is_there) == [1, 2, 3]


def test_a_broker_that_still_hosts_a_renamed_replica_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def only_rename(self: ReplicaManager, topic_id: Uuid, index: int, *_: Any) -> Partition:
        partition = self.partition_by_id(topic_id, index)
        self.log_dirs.delete(partition.topic, index)
        return partition

    monkeypatch.setattr(ReplicaManager, "_drop", only_rename)
    cluster = Cluster(zookeeper=False)
    cluster.delete()
    cluster.until(lambda: not deletions_left(cluster.sim))
    left = {each.left for each in cluster.of(DeletionConfirmed)}
    assert left == {("a hosted partition",)}


def test_a_node_that_alone_knew_of_the_deletion_may_crash_in_that_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(zookeeper=False)
    node = controller_of(cluster.sim)
    drop = ReplicaManager._drop

    def drop_and_die(self: ReplicaManager, *given: Any) -> Partition:
        partition = drop(self, *given)
        if node.broker is not None and self is node.broker.replicas and node.incarnation == 1:
            node.die(lose_unflushed=False, then=node.restart)
            raise ProcessDied
        return partition

    monkeypatch.setattr(ReplicaManager, "_drop", drop_and_die)
    deletion = delete_wire.DeleteTopicsRequest(topic_names=("t",), timeout_ms=3_000)
    cluster.port.send(node.id, deletion, 5, 4_000)
    cluster.until(lambda: node.id in {each.node for each in cluster.of(PartitionDirGone)})
    assert cluster.topic_id in {topic.id for topic in cluster.sim.image.topics}
    cluster.until(lambda: len({each.node for each in cluster.of(PartitionDirGone)}) == 3)
    gone = {each.node: (each.in_sync, each.assigned) for each in cluster.of(PartitionDirGone)}
    assert gone == dict.fromkeys((1, 2, 3), (False, False))


@MODES
def test_partition_dirs_are_left_until_their_files_are_deleted(zookeeper: bool) -> None:
    cluster = Cluster(zookeeper=zookeeper)
    cluster.delete()
    cluster.until(lambda: not deletions_left(cluster.sim))
    assert len(partition_dirs_left(cluster.sim)) == 3
    cluster.sim.run(ms=DELAY_MS + 1_000)
    assert partition_dirs_left(cluster.sim) == []


@MODES
def test_a_deletion_that_waits_for_a_broker_is_left(zookeeper: bool) -> None:
    cluster = Cluster(zookeeper=zookeeper)
    controller = controller_of(cluster.sim).id
    away = next(node for node in cluster.sim.nodes.values() if node.id != controller)
    away.crash(lose_unflushed=False)
    cluster.sim.run(ms=20_000)
    cluster.delete()
    cluster.sim.run(ms=5_000)
    [left] = deletions_left(cluster.sim)
    assert f"node {away.id}: INELIGIBLE (BROKER_DOWN) (0,)" in left
    away.restart()
    cluster.until(lambda: not deletions_left(cluster.sim))
    assert cluster.sim.marks["deletion-ineligible"] == 1


@MODES
@pytest.mark.parametrize("victim", Victim)
def test_the_one_victim_dies_at_the_step_and_comes_back(zookeeper: bool, victim: Victim) -> None:
    cluster = Cluster(zookeeper=zookeeper)
    plan = CrashPlan(step=Step.ORDERED, victim=victim, down_ms=500)
    crash = Crash(cluster.sim, plan, cluster.topic_id)
    cluster.delete()
    cluster.until(lambda: crash.victim.incarnation == 2)
    assert cluster.sim.marks["crashed-at-step"] == 1
    assert [
        node.incarnation for node in cluster.sim.nodes.values() if node is not crash.victim
    ] == [1, 1]


class Loading:
    """A fake `NodeCore` that loads its logs in two steps."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self._node_dirs = self

    def load_logs(self, image: ClusterImage, config: object) -> Iterator[None]:
        yield
        yield


def test_while_logs_are_loaded_the_image_at_the_start_counts() -> None:
    """Else a replica that is moved back meanwhile would be reported as wrongly deleted."""
    first, second, third = (replace(EMPTY, position=(offset, 1)) for offset in (1, 2, 3))
    process: Any = Loading(first)
    known = KnownMetadata()
    known.opened(process)
    loading = process.load_logs(first, None)
    seen = []
    for process.image in (first, second):
        next(loading)
        seen.append(known.image)
    assert list(loading) == []
    seen.append(known.image)
    process.image = third
    assert [*seen, known.image] == [first, first, second, third]
    known.opened(Loading(second))  # type: ignore[arg-type]
    assert known.image is EMPTY


def test_steps_are_named_once_and_plans_by_what_they_do() -> None:
    assert len(STEPS) == 12
    assert str(CrashPlan(step=Step.GONE, victim=Victim.BROKER, power=True)) == "gone-broker-power"
    plan = CrashPlan(step=Step.NTH_DISK, victim=Victim.CONTROLLER, nth=3)
    assert str(plan) == "nth_disk-controller-3"
