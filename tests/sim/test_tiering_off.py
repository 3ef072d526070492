"""Tiered storage is turned off and on in a cluster of real brokers, whose local logs differ.

Method: a simulated cluster without other faults but those of the test. After each change the log is
read from its earliest to its latest offset by a client: without a gap, and the same records as
before from there on. In the end objects and metadata agree, and the brokers' images are equal.
"""

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.metadata.configs import ResourceType
from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering
from ottla.records.batch import iter_headers
from ottla.records.builder import encode_batch
from ottla.records.record import iter_records
from ottla.tiered.object_names import parse_object_name
from ottla.tiered.remote_log import RemoteLog
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import fetch as fetch_wire
from ottla.wire.messages import incremental_alter_configs as alter_wire
from ottla.wire.messages import list_offsets as offsets_wire
from ottla.wire.messages import produce as produce_wire
from tests.drawn import SIM_STORIES, drawn
from tests.sim import test_tiered_deletions as deletions

pytestmark = [pytest.mark.timeout(900), pytest.mark.forms(1), pytest.mark.drawn(3)]

TOPIC_CONFIG = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "1000",
    "local.retention.bytes": "1500",
}
RECORDS = 24
BROKERS = (4, 3, 1)


class Cluster(deletions.Cluster):
    """One partition with replicas on three brokers. `values`: what was written, by offset."""

    def __init__(self, seed: int = 1, *, zookeeper: bool = False) -> None:
        deletions.CONFIG["log.retention.check.interval.ms"] = "1000"
        try:
            super().__init__(zookeeper=zookeeper, seed=seed)
        finally:
            del deletions.CONFIG["log.retention.check.interval.ms"]
        self.values: dict[int, bytes] = {}
        self.topic_id = self.create()

    def create(self) -> Uuid:
        placed = create_wire.CreatableReplicaAssignment(partition_index=0, broker_ids=BROKERS)
        configs = tuple(
            create_wire.CreatableTopicConfig(name=name, value=value)
            for name, value in TOPIC_CONFIG.items()
        )
        topic = create_wire.CreatableTopic(
            name="t", num_partitions=-1, replication_factor=-1, assignments=(placed,),
            configs=configs,
        )  # fmt: skip
        request = create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=5_000)
        assert self.ask(self.any_broker(), request, 5).topics[0].error_code == 0
        self.until(lambda: "t" in self.sim.image.topics)
        topic_id = self.sim.image.topics.id_of("t")
        assert topic_id is not None
        return topic_id

    # -- the controller ------------------------------------------------------------------------

    @property
    def tiering(self) -> TopicTiering:
        """The newest state that a broker has."""
        images = [each.broker.image for each in self.sim.nodes.values() if each.broker is not None]
        found = [each.tiering[self.topic_id] for each in images if self.topic_id in each.tiering]
        return max(found, key=lambda each: each.age)

    def alter(self, **configs: str) -> None:
        """Set configurations of the topic; names have _ for their dots."""
        resource = alter_wire.AlterConfigsResource(
            resource_type=ResourceType.TOPIC,
            resource_name="t",
            configs=tuple(
                alter_wire.AlterableConfig(
                    name=name.replace("_", "."), config_operation=0, value=value
                )
                for name, value in configs.items()
            ),
        )
        epoch = self.tiering.tiered_epoch
        request = alter_wire.IncrementalAlterConfigsRequest(
            resources=(resource,), validate_only=False
        )
        answer = self.ask(self.any_broker(), request, 1)
        assert answer.responses[0].error_code == 0, answer
        self.until(lambda: self.tiering.tiered_epoch > epoch)

    def disable(self, policy: DisablePolicy) -> None:
        self.alter(remote_storage_enable="false", remote_log_disable_policy=policy.name.lower())
        assert self.tiering.policy is policy

    def enable(self) -> None:
        self.alter(remote_storage_enable="true")
        assert self.tiering.state is TieringState.ENABLED

    def acknowledged(self) -> None:
        """Wait until all live replicas have acknowledged."""
        self.until(lambda: self.tiering.state is TieringState.DISABLED)

    # -- brokers -------------------------------------------------------------------------------

    @property
    def leader(self) -> int:
        topic = self.sim.image.topics.by_name("t")
        assert topic is not None
        return topic.partitions[0].leader

    def broker(self, node: int) -> Any:
        found = self.sim.nodes[node].broker
        assert found is not None
        return found

    def hosts(self, node: int) -> bool:
        return any(each.topic == "t" for each in self.broker(node).replicas.hosted())

    def log(self, node: int) -> Any:
        return self.broker(node).replicas.partition("t", 0).log

    def starts(self, node: int) -> tuple[int, int]:
        log = self.log(node)
        return log.log_start_offset, log.local_log_start_offset

    def write(self, count: int = RECORDS) -> None:
        """Append records, each once, whoever leads."""
        for offset in range(len(self.values), len(self.values) + count):
            while not self.append():
                self.sim.run(3_000)
                if self.bound(-1) > offset:
                    break  # It was appended, and the answer was lost.
            self.values[offset] = deletions.VALUE
        self.sim.run(1_000)

    def append(self) -> bool:
        self.until(lambda: self.leader in BROKERS)
        batch = encode_batch([(b"k", deletions.VALUE, (), self.sim.clock.now_ms())])
        data = produce_wire.PartitionProduceData(index=0, records=batch)
        topic = produce_wire.TopicProduceData(name="t", partition_data=(data,))
        request = produce_wire.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(topic,))
        answer = self.ask(self.leader, request, 9)
        if isinstance(answer, ApiError):
            return False
        return not answer.responses[0].partition_responses[0].error_code

    def tiered(self) -> None:
        """Wait until what is sealed is copied, and deleted locally by some replica."""
        leader = self.log(self.leader)
        active = leader.segments.active.base_offset
        self.until(lambda: self.log(self.leader).highest_remote_offset + 1 >= active)
        self.until(lambda: self.log(self.leader).local_log_start_offset > 0)

    def bound(self, timestamp: int) -> int:
        def ask() -> int:
            part = offsets_wire.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            topic = offsets_wire.ListOffsetsTopic(name="t", partitions=(part,))
            request = offsets_wire.ListOffsetsRequest(replica_id=-1, topics=(topic,))
            answer = self.ask(self.leader, request, 7)
            found = None if isinstance(answer, ApiError) else answer.topics[0].partitions[0]
            return -1 if found is None or found.error_code else int(found.offset)

        for _ in range(100):
            if (offset := ask()) >= 0:
                return offset
            self.sim.run(200)
        raise AssertionError(f"no offset for {timestamp}")

    def read_all(self) -> int:
        """Read from earliest to latest, as a consumer does; return the earliest offset."""
        earliest, latest = self.bound(-2), self.bound(-1)
        assert latest == len(self.values)
        offset = earliest
        while offset < latest:
            part = fetch_wire.FetchPartition(
                partition=0, fetch_offset=offset, partition_max_bytes=100_000
            )
            topic = fetch_wire.FetchTopic(topic_id=self.topic_id, partitions=(part,))
            request = fetch_wire.FetchRequest(
                max_wait_ms=500, min_bytes=1, topics=(topic,), session_epoch=-1
            )
            response = self.ask(self.leader, request, 17)
            if isinstance(response, ApiError):
                self.sim.run(100)
                continue
            answer = response.responses[0].partitions[0]
            # An earliest offset is readable, always.
            assert answer.error_code != Error.OFFSET_OUT_OF_RANGE, (offset, earliest)
            if answer.error_code:
                self.sim.run(100)
                continue
            data = bytes(answer.records or b"")
            size = sum(each.size_in_bytes for _, each in iter_headers(data, allow_partial=True))
            for record in iter_records(data[:size]):
                if record.offset >= offset:
                    assert record.offset == offset
                    assert bytes(record.value or b"") == self.values[offset]
                    offset += 1
        return earliest

    def remote(self) -> RemoteLog:
        found = self.broker(self.leader).remote.metadata.remote_log(self.topic_id, 0)
        assert found is not None
        return found

    def check_store(self) -> None:
        """Objects and metadata agree, and all brokers have the same image."""
        listed = {
            parse_object_name(name).segment_id  # type: ignore[union-attr]
            for name in self.objects(self.topic_id)
            if parse_object_name(name) is not None
        }
        assert listed == {each.segment_id for each in self.remote().segments()}
        images = {
            self.broker(node).remote.metadata.remote_log(self.topic_id, 0).image()
            for node in BROKERS
        }
        assert len(images) == 1

    def purged(self) -> bool:
        return not self.tiering.purge_pending

    def restart(self, node: int) -> None:
        failed = self.sim.nodes[node]
        failed.crash()
        self.until(lambda: self.leader not in (node, -1))
        failed.restart()
        self.until(lambda: failed.serves)

    def in_sync(self) -> bool:
        topic = self.sim.image.topics.by_name("t")
        assert topic is not None
        return set(topic.partitions[0].isr) == set(BROKERS)


def made(seed: int = 1, *, zookeeper: bool = False) -> Cluster:
    cluster = Cluster(seed, zookeeper=zookeeper)
    cluster.write()
    cluster.tiered()
    assert cluster.read_all() == 0
    return cluster


@deletions.MODES
def test_delete_and_on_again_with_a_restart_in_each_state(zookeeper: bool) -> None:
    cluster = made(zookeeper=zookeeper)
    local = cluster.log(cluster.leader).local_log_start_offset
    for node in BROKERS:
        assert cluster.starts(node)[0] == 0
    cluster.disable(DisablePolicy.DELETE)
    assert cluster.read_all() >= local
    cluster.acknowledged()
    earliest = cluster.read_all()
    assert {cluster.starts(node) for node in BROKERS} == {(earliest, earliest)}
    cluster.restart(cluster.leader)
    assert cluster.read_all() == earliest
    cluster.until(cluster.purged, 600_000)
    assert cluster.remote().count == 0
    cluster.check_store()
    cluster.until(cluster.in_sync)
    cluster.enable()
    cluster.write()
    cluster.tiered()
    cluster.restart(cluster.leader)
    assert cluster.read_all() == earliest
    cluster.sim.run(400_000)
    cluster.check_store()
    assert {each.tiered_epoch for each in cluster.remote().segments()} == {3}


@deletions.MODES
def test_rule_34_no_failover_loses_what_the_leader_had_locally(zookeeper: bool) -> None:
    """The local retention has deleted less on the leader than on its followers."""
    cluster = Cluster(5, zookeeper=zookeeper)
    leader = cluster.leader
    cluster.until(lambda: cluster.hosts(leader))
    log = cluster.log(leader)
    log.reconfigure(replace(log.config, local_retention_bytes=10**9, local_retention_ms=-1))
    cluster.write()
    followers = [each for each in BROKERS if each != leader]
    cluster.until(lambda: all(cluster.starts(each)[1] > 0 for each in followers))
    assert cluster.starts(leader) == (0, 0)
    cluster.disable(DisablePolicy.DELETE)
    cluster.acknowledged()
    assert {cluster.starts(node) for node in BROKERS} == {(0, 0)}
    cluster.restart(leader)
    assert cluster.leader in followers
    assert cluster.read_all() == 0
    for node in followers:  # Also what is on their disks.
        cluster.restart(node)
        cluster.until(cluster.in_sync)
        assert cluster.starts(node) == (0, 0)
    assert cluster.read_all() == 0


@deletions.MODES
def test_retain_and_on_again(zookeeper: bool) -> None:
    cluster = made(2, zookeeper=zookeeper)
    cluster.disable(DisablePolicy.RETAIN)
    cluster.acknowledged()
    cluster.write()
    cluster.restart(cluster.leader)
    assert cluster.read_all() == 0
    count = cluster.remote().count
    cluster.sim.run(60_000)
    assert cluster.remote().count == count
    cluster.until(cluster.in_sync)
    cluster.enable()
    cluster.write()
    cluster.tiered()
    assert cluster.read_all() == 0
    cluster.sim.run(400_000)
    cluster.check_store()
    assert {each.tiered_epoch for each in cluster.remote().segments()} == {1, 3}


@pytest.mark.parametrize("policy", [DisablePolicy.RETAIN, DisablePolicy.DELETE])
@deletions.MODES
def test_the_store_is_down_through_all_of_it(policy: DisablePolicy, zookeeper: bool) -> None:
    cluster = made(3, zookeeper=zookeeper)
    cluster.sim.object_store.faults.is_down = True
    cluster.write(9)
    cluster.disable(policy)
    cluster.acknowledged()
    cluster.write(9)
    cluster.sim.object_store.faults.is_down = False
    earliest = cluster.read_all()
    assert (earliest == 0) == (policy is DisablePolicy.RETAIN)
    if policy is DisablePolicy.DELETE:
        cluster.until(cluster.purged, 900_000)
    cluster.sim.run(400_000)
    cluster.check_store()


DEATHS = [
    (ms, is_leader, zookeeper)
    for ms in (0, 5, 20, 60, 150, 400)
    for is_leader in (True, False)
    for zookeeper in (False, True)
]


@pytest.mark.parametrize(("ms", "is_leader", "zookeeper"), drawn(DEATHS, 2, SIM_STORIES))
def test_a_broker_dies_while_the_topic_is_disabling(
    ms: int, is_leader: bool, zookeeper: bool
) -> None:
    cluster = made(4, zookeeper=zookeeper)
    cluster.disable(DisablePolicy.DELETE)
    cluster.sim.run(ms)
    victim = cluster.leader if is_leader else next(n for n in BROKERS if n != cluster.leader)
    cluster.restart(victim)
    cluster.acknowledged()
    earliest = cluster.read_all()
    cluster.until(cluster.in_sync)
    assert {cluster.starts(node) for node in BROKERS} == {(earliest, earliest)}
    cluster.until(cluster.purged, 900_000)
    cluster.sim.run(300_000)
    cluster.check_store()
