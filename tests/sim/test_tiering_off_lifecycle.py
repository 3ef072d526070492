"""What a topic goes through besides: tiered storage is off, and the topic changes all the same.

Method: as `test_tiering_off`, whose cluster this is.
"""

from itertools import cycle
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER, REMOTE_LOG_METADATA_TOPIC
from ottla.broker.remote.store_calls import LATE_WRITE_MS
from ottla.broker.remote.tasks.purge_reporter import REPORT_INTERVAL_MS
from ottla.controller.disabling.acknowledgements import Reason
from ottla.metadata.configs import ResourceType
from ottla.metadata.deletions import Remote
from ottla.metadata.tiering import DisablePolicy, TieringState
from ottla.tiered.metadata_partition import metadata_partition
from ottla.tiered.object_names import parse_object_name
from ottla.wire.messages import alter_partition_reassignments as move_wire
from ottla.wire.messages import describe_topic_tiering as describe_wire
from ottla.wire.messages import elect_leaders as elect_wire
from ottla.wire.messages import incremental_alter_configs as alter_wire
from ottla.wire.messages import unregister_broker as unregister_wire
from tests.drawn import SIM_STORIES, drawn
from tests.sim import test_tiered_deletions as deletions
from tests.sim.test_tiering_off import BROKERS, RECORDS, Cluster

pytestmark = [pytest.mark.timeout(900), pytest.mark.forms(1), pytest.mark.drawn(4)]

ROUNDS = 10
ELECTION_MS = 30_000
"""Until another broker leads, and knows the remote segments."""
ADMINISTRATION = (
    alter_wire.IncrementalAlterConfigsRequest,
    move_wire.AlterPartitionReassignmentsRequest,
)
UNCLEAN = 1
POLICIES = [DisablePolicy.RETAIN, DisablePolicy.DELETE]


class Lifecycle(Cluster):
    """Requests are repeated where a broker restarts; they do no harm when they come twice."""

    def ask(self, node: int, request: object, version: int) -> Any:
        answer = super().ask(node, request, version)
        while isinstance(answer, ApiError) and isinstance(request, ADMINISTRATION):
            self.sim.run(100)
            answer = super().ask(self.any_broker(), request, version)
        return answer


def described(cluster: Cluster) -> describe_wire.DescribedTopicTiering:
    """Return what the controller says of the topic."""
    request = describe_wire.DescribeTopicTieringRequest(topics=("t",))
    while True:
        answer = cluster.ask(cluster.any_broker(), request, 0)
        if not isinstance(answer, ApiError) and not answer.error_code:
            [topic] = answer.topics
            return topic
        cluster.sim.run(500)


def made(seed: int, *, zookeeper: bool) -> Cluster:
    cluster = Lifecycle(seed, zookeeper=zookeeper)
    cluster.write()
    cluster.tiered()
    assert cluster.read_all() == 0
    return cluster


def configure(cluster: Cluster, name: str, value: str) -> None:
    """Set a configuration that leaves the tiering state as it is."""
    resource = alter_wire.AlterConfigsResource(
        resource_type=ResourceType.TOPIC,
        resource_name="t",
        configs=(alter_wire.AlterableConfig(name=name, config_operation=0, value=value),),
    )
    request = alter_wire.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    answer = cluster.ask(cluster.any_broker(), request, 1)
    assert answer.responses[0].error_code == 0, answer


def segments_in_store(cluster: Cluster) -> list[str]:
    return [each for each in cluster.objects(cluster.topic_id) if parse_object_name(each)]


def reassign(cluster: Cluster, *brokers: int) -> None:
    """Begin to move the partition to these brokers."""
    request = move_wire.AlterPartitionReassignmentsRequest(
        timeout_ms=5_000,
        topics=(
            move_wire.ReassignableTopic(
                name="t",
                partitions=(move_wire.ReassignablePartition(partition_index=0, replicas=brokers),),
            ),
        ),
    )
    answer = cluster.ask(cluster.any_broker(), request, 0)
    assert answer.responses[0].partitions[0].error_code == 0, answer


def placed(cluster: Cluster, *brokers: int) -> None:
    """Move the partition to these brokers."""
    reassign(cluster, *brokers)

    def is_moved() -> bool:
        topic = cluster.sim.image.topics.by_name("t")
        assert topic is not None
        partition = topic.partitions[0]
        return partition.replicas == brokers and set(partition.isr) == set(brokers)

    cluster.until(is_moved)


@deletions.MODES
def test_rule_29_a_new_replica_begins_behind_what_is_retained(zookeeper: bool) -> None:
    cluster = made(6, zookeeper=zookeeper)
    cluster.disable(DisablePolicy.RETAIN)
    cluster.acknowledged()
    placed(cluster, 2, 4, 3)
    log_start, local_start = cluster.starts(2)
    assert log_start == 0 < local_start  # It has not copied what is remote.
    placed(cluster, 2)
    assert cluster.leader == 2
    assert cluster.read_all() == 0


@deletions.MODES
def test_rule_16_a_topic_is_deleted_while_it_is_disabling_and_its_name_is_used_again(
    zookeeper: bool,
) -> None:
    cluster = made(7, zookeeper=zookeeper)
    old = cluster.topic_id
    cluster.sim.object_store.faults.is_down = True
    cluster.disable(DisablePolicy.DELETE)
    assert cluster.tiering.state is TieringState.DISABLING
    before = cluster.objects(old)
    assert before
    cluster.delete()
    assert cluster.entry(old).remote is Remote.PENDING
    cluster.values.clear()
    cluster.topic_id = cluster.create()
    assert (cluster.tiering.state, cluster.tiering.tiered_epoch) == (TieringState.ENABLED, 1)
    cluster.write()
    assert cluster.objects(old) == before
    cluster.sim.object_store.faults.is_down = False
    cluster.tiered()
    cluster.until(lambda: cluster.entry(old).is_finished, 900_000)
    assert cluster.objects(old) == []
    assert cluster.read_all() == 0
    cluster.sim.run(400_000)
    cluster.check_store()


@deletions.MODES
def test_scenario_2_what_was_retained_has_expired_and_it_is_enabled_again(zookeeper: bool) -> None:
    cluster = made(8, zookeeper=zookeeper)
    cluster.disable(DisablePolicy.RETAIN)
    cluster.acknowledged()
    configure(cluster, "retention.bytes", "1")
    cluster.until(lambda: cluster.tiering.is_remote_empty, 900_000)
    start, local_start = cluster.starts(cluster.leader)
    assert 0 < start == local_start
    assert cluster.read_all() == start
    configure(cluster, "retention.bytes", "-1")
    cluster.enable()
    cluster.write()
    cluster.tiered()
    assert cluster.read_all() == start
    cluster.sim.run(400_000)
    cluster.check_store()
    segments = cluster.remote().segments()
    assert {each.tiered_epoch for each in segments} == {3}


@deletions.MODES
def test_ten_rounds_of_off_and_on_with_restarts(zookeeper: bool) -> None:
    """Records are written in each state; another broker restarts in each round."""
    cluster = made(9, zookeeper=zookeeper)
    earliest = 0
    for number, (policy, node) in enumerate(zip(cycle(POLICIES), cycle(BROKERS), strict=False)):
        if number == ROUNDS:
            break
        cluster.disable(policy)
        cluster.write(3)
        cluster.restart(node)
        cluster.acknowledged()
        found = cluster.read_all()
        assert found == earliest if policy is DisablePolicy.RETAIN else found > earliest
        cluster.until(cluster.in_sync)
        cluster.enable()
        cluster.write(RECORDS // 2)
        cluster.tiered()
        earliest = found
        assert cluster.read_all() == earliest
    cluster.until(cluster.purged, 900_000)
    cluster.sim.run(400_000)
    cluster.check_store()
    assert cluster.tiering.tiered_epoch == 1 + 2 * ROUNDS


@deletions.MODES
def test_a_leader_change_does_not_prolong_the_purge(zookeeper: bool) -> None:
    """Each of the three replicas leads in turn: the time for late writes passes once."""
    cluster = made(10, zookeeper=zookeeper)
    cluster.disable(DisablePolicy.DELETE)
    began_ms = cluster.sim.now_ms
    cluster.acknowledged()
    for _ in range(2):
        cluster.sim.run(5_000)
        assert cluster.tiering.purge_pending
        cluster.restart(cluster.leader)
        cluster.until(cluster.in_sync)
    cluster.until(cluster.purged, 900_000)
    assert cluster.sim.now_ms - began_ms < LATE_WRITE_MS + ELECTION_MS + REPORT_INTERVAL_MS
    cluster.check_store()
    assert cluster.remote().count == 0


@deletions.MODES
def test_a_purge_ends_under_a_leader_that_was_restarted_meanwhile(zookeeper: bool) -> None:
    """It does not know when the copies had ended, only that they had."""
    cluster = made(11, zookeeper=zookeeper)
    cluster.disable(DisablePolicy.DELETE)
    cluster.acknowledged()
    cluster.sim.run(30_000)
    for node in BROKERS:
        cluster.sim.nodes[node].crash(lose_unflushed=False)
    restarted_ms = cluster.sim.now_ms
    for node in BROKERS:
        cluster.sim.nodes[node].restart()
    cluster.until(cluster.purged, 900_000)
    waited_ms = cluster.sim.now_ms - restarted_ms
    assert LATE_WRITE_MS <= waited_ms < LATE_WRITE_MS + ELECTION_MS + REPORT_INTERVAL_MS
    cluster.check_store()
    assert cluster.remote().count == 0


def alone_on_a_dead_broker(cluster: Cluster, *, is_disabled: bool) -> None:
    """Give up the remote segments of a partition whose only broker then dies, before the purge."""
    placed(cluster, 4)
    cluster.sim.object_store.faults.is_down = True
    if is_disabled:
        cluster.disable(DisablePolicy.DELETE)
        cluster.acknowledged()
    cluster.sim.nodes[4].crash(lose_unflushed=False)
    cluster.until(lambda: cluster.leader == NO_LEADER)
    if not is_disabled:
        cluster.disable(DisablePolicy.DELETE)
    cluster.sim.object_store.faults.is_down = False
    cluster.sim.run(120_000)
    assert cluster.objects(cluster.topic_id), "nobody has purged it"
    found = described(cluster)
    assert (found.state, found.purge_pending) == (3 if is_disabled else 2, True)
    assert found.purge_leaderless == (0,)
    no_leader = [each.reason for each in found.missing]
    assert no_leader == ([] if is_disabled else [Reason.NO_LEADER])


LEADERLESS = [(is_disabled, zk) for is_disabled in (True, False) for zk in (False, True)]
"""Whether the topic is DISABLED by then, or DISABLING."""


@pytest.mark.parametrize(
    ("is_disabled", "zookeeper"), drawn(LEADERLESS, 2, SIM_STORIES, name="back")
)
def test_a_partition_without_a_leader_is_purged_once_it_has_one(
    is_disabled: bool, zookeeper: bool
) -> None:
    cluster = made(12, zookeeper=zookeeper)
    alone_on_a_dead_broker(cluster, is_disabled=is_disabled)
    cluster.sim.nodes[4].restart()
    cluster.until(cluster.purged, 300_000)
    assert cluster.tiering.state is TieringState.DISABLED
    assert cluster.remote().count == 0
    assert not segments_in_store(cluster)
    assert cluster.read_all() > 0


@pytest.mark.parametrize(
    ("is_disabled", "zookeeper"), drawn(LEADERLESS, 2, SIM_STORIES, name="gone")
)
def test_a_partition_whose_brokers_are_gone_for_good_is_purged_by_a_new_replica(
    is_disabled: bool, zookeeper: bool
) -> None:
    """An operator gives it one, and has it lead: the records are lost with the brokers anyway."""
    cluster = made(13, zookeeper=zookeeper)
    alone_on_a_dead_broker(cluster, is_disabled=is_disabled)
    if not zookeeper:
        request = unregister_wire.UnregisterBrokerRequest(broker_id=4)
        assert cluster.ask(cluster.any_broker(), request, 0).error_code == 0
    placed_at = (1, 2)
    reassign(cluster, *placed_at)
    elect = elect_wire.ElectLeadersRequest(
        election_type=UNCLEAN,
        topic_partitions=(elect_wire.TopicPartitions(topic="t", partitions=(0,)),),
        timeout_ms=5_000,
    )
    answer = cluster.ask(cluster.any_broker(), elect, 2)
    assert answer.replica_election_results[0].partition_result[0].error_code == 0, answer
    cluster.until(cluster.purged, 300_000)
    assert cluster.leader in placed_at
    assert cluster.tiering.state is TieringState.DISABLED
    assert cluster.remote().count == 0
    assert not segments_in_store(cluster)
    assert described(cluster).purge_leaderless == ()


@deletions.MODES
def test_without_a_leader_of_the_metadata_a_topic_stays_disabling(zookeeper: bool) -> None:
    """No fence can be written, so a reader that replays the metadata would read the segments."""
    cluster = made(14, zookeeper=zookeeper)
    metadata = cluster.sim.image.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
    assert metadata is not None
    number = metadata_partition(cluster.topic_id, 0, len(metadata.partitions))
    dead = metadata.partitions[number].replicas
    [alone] = {1, 2, 3, 4} - set(dead)
    placed(cluster, alone)
    for node in dead:
        cluster.sim.nodes[node].crash(lose_unflushed=False)
    cluster.until(lambda: cluster.any_broker() == alone)
    cluster.sim.run(20_000)
    cluster.disable(DisablePolicy.DELETE)
    cluster.sim.run(120_000)
    assert cluster.tiering.state is TieringState.DISABLING
    [missing] = described(cluster).missing
    assert (missing.broker_id, missing.is_leader) == (alone, True)
    assert missing.error == Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS
    for node in dead:
        cluster.sim.nodes[node].restart()
    cluster.acknowledged()
    cluster.until(cluster.purged, 600_000)
    assert cluster.remote().count == 0
    assert not segments_in_store(cluster)
