"""The families of a broker's groups and replicas, made from what it coordinates and hosts.

Method: the real coordinator and broker over real logs. The other families are in test_metrics,
beside the counters that they show.
"""

from ottla.base.ids import Uuid
from ottla.base.metrics import render
from ottla.broker.metric_families import broker_families
from ottla.coordinator.group_states import NAMES
from ottla.metadata.records import PartitionChangeRecord
from tests.exposition import Scrape

from .group_harness import GroupHarness, commit_request
from .harness import BrokerHarness

GROUPS = "kafka_coordinator_group_group_metadata_manager_num_groups"
OFFSETS = "kafka_coordinator_group_group_metadata_manager_num_offsets"


def by_state(found: Scrape) -> dict[str, float]:
    states = [dict(labels)["state"] for labels in found.labels(GROUPS)]
    return {state: found.value(GROUPS, state=state) for state in states}


def scrape(harness: GroupHarness) -> Scrape:
    return Scrape("".join(render(broker_families(harness.broker))))


def test_groups_by_state_and_their_offsets() -> None:
    harness = GroupHarness()
    harness.add_topic("t")
    harness.add_offsets_topic()
    states = dict.fromkeys(NAMES.values(), 0.0)
    assert (by_state(scrape(harness)), scrape(harness).value(OFFSETS)) == (states, 0)
    harness.later(commit_request({("t", 0): 5}, group_id="idle"), 8)
    states["Empty"] = 1
    assert (by_state(scrape(harness)), scrape(harness).value(OFFSETS)) == (states, 1)
    harness.join("busy")
    states["CompletingRebalance"] = 1
    assert by_state(scrape(harness)) == states
    harness.stable("calm")
    states["Stable"] = 1
    assert by_state(scrape(harness)) == states


def test_what_is_in_sync_of_what_is_led() -> None:
    """Of four partitions: all in sync; at and below min.insync.replicas; led elsewhere."""
    harness = BrokerHarness()
    for node_id in (1, 2, 3):
        harness.add_broker(node_id)
    replicas = (1, 2, 3)
    for name, isr, leader in (
        ("a", replicas, 1),
        ("b", (1, 2), 1),
        ("c", (1,), 1),
        ("d", (2,), 2),
    ):
        topic_id = Uuid(name.encode() * 16)
        harness.add_topic(
            name, topic_id, replicas=replicas, isr=isr, leader=leader, min_insync_replicas="2"
        )
    harness.commit(
        PartitionChangeRecord(
            partition_id=0,
            topic_id=Uuid(b"a" * 16),
            replicas=(1, 2, 3, 4),
            adding_replicas=(4,),
            removing_replicas=(3,),
        )
    )
    harness.broker.isr.shrinks, harness.broker.isr.expands, harness.broker.isr.failures = 1, 2, 3
    found = scrape_of(harness)
    prefix = "kafka_server_replica_manager"
    assert {
        name: found.value(f"{prefix}_{name}")
        for name in (
            "partition_count",
            "leader_count",
            "under_replicated_partitions",
            "at_min_isr_partition_count",
            "under_min_isr_partition_count",
            "reassigning_partitions",
            "isr_shrinks_total",
            "isr_expands_total",
            "failed_isr_updates_total",
        )
    } == {
        "partition_count": 4,
        "leader_count": 3,
        "under_replicated_partitions": 2,
        "at_min_isr_partition_count": 1,
        "under_min_isr_partition_count": 1,
        "reassigning_partitions": 1,
        "isr_shrinks_total": 1,
        "isr_expands_total": 2,
        "failed_isr_updates_total": 3,
    }


def test_replicated_bytes() -> None:
    harness = BrokerHarness()
    harness.add_broker()
    harness.add_topic()
    (metrics,) = harness.broker.replicas.topic_metrics
    metrics.replication_bytes_in, metrics.replication_bytes_out = 5, 7
    found = scrape_of(harness)
    prefix = "kafka_server_broker_topic_metrics_replication_bytes"
    assert found.value(f"{prefix}_in_total", topic="t") == 5
    assert found.value(f"{prefix}_out_total", topic="t") == 7


def scrape_of(harness: BrokerHarness) -> Scrape:
    return Scrape("".join(render(broker_families(harness.broker))))
