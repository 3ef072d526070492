"""The metrics of a node's process, sockets and controller.

Method: the families are rendered and parsed strictly. /proc is a directory of the test. The
controller is a real one over a disk in memory.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from ottla.base.ids import Uuid
from ottla.base.metrics import Family, Histogram, render
from ottla.host.metric_families import (
    ControllerFamilies,
    PartitionCounts,
    broker_state_families,
    count_partitions,
    loop_families,
    process_families,
    raft_families,
)
from ottla.metadata.deletions import STARTED, DeletionImage, Policy, header_record, replicas_record
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY
from ottla.metadata.records import PartitionChangeRecord, PartitionRecord, TopicRecord
from tests.exposition import Scrape
from tests.unit.host.kraft.test_controller_node import SESSION_MS, add_broker, running

from .harness import Harness
from .quorum_harness import Broker, Controller


def scrape(families: Iterable[Family]) -> Scrape:
    return Scrape("".join(render(families)))


def test_the_process(tmp_path: Path) -> None:
    (tmp_path / "statm").write_text("300 200 100 1 0 50 0\n")
    (tmp_path / "fd").mkdir()
    for name in ("0", "1", "2"):
        (tmp_path / "fd" / name).touch()
    found = scrape(process_families(1_700_000_000_500, tmp_path))
    page = os.sysconf("SC_PAGE_SIZE")
    assert found.value("process_virtual_memory_bytes") == 300 * page
    assert found.value("process_resident_memory_bytes") == 200 * page
    assert found.value("process_open_fds") == 3
    assert found.value("process_start_time_seconds") == 1_700_000_000.5
    assert found.value("process_cpu_seconds_total") > 0
    assert found.value("process_max_fds") >= 3


def test_without_proc_the_other_metrics_remain(tmp_path: Path) -> None:
    found = scrape(process_families(0, tmp_path / "nothing"))
    assert set(found.families) == {
        "process_cpu_seconds_total",
        "process_start_time_seconds",
        "process_max_fds",
    }


def test_lag_and_syncs() -> None:
    lag, syncs = Histogram((1_000_000,), 1_000_000_000), Histogram((1_000_000,), 1_000_000_000)
    lag.observe(2_000_000)
    found = scrape(loop_families(lag, syncs))
    assert found.value("ottla_loop_lag_seconds_sum") == 0.002
    assert found.value("ottla_disk_sync_seconds_count") == 0


def test_the_broker_state() -> None:
    found = scrape(broker_state_families(3))
    assert found.value("kafka_server_kafka_server_broker_state") == 3


# -- The controller --

PREFIX = "kafka_controller_kafka_controller"


def a_topic(number: int, *leaders: int) -> tuple[TopicRecord | PartitionRecord, ...]:
    topic_id = Uuid(bytes([number]) * 16)
    return (
        TopicRecord(name=f"t{number}", topic_id=topic_id),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=(2,),
                isr=(2,),
                leader=leader,
                leader_epoch=0,
                partition_epoch=0,
            )
            for index, leader in enumerate(leaders)
        ),
    )


def test_what_the_cluster_has() -> None:
    controller = Controller(Harness())
    families = ControllerFamilies(controller.log, controller.runtime)
    assert scrape(families.collect(0)).value(f"{PREFIX}_active_controller_count") == 1
    controller.harness.workers.run()
    controller.write(*a_topic(1, 2, 2, -1))
    assert scrape(families.collect(0)).value(f"{PREFIX}_global_topic_count") == 0, "not committed"
    controller.harness.workers.run()
    found = scrape(families.collect(0))
    assert found.value(f"{PREFIX}_global_topic_count") == 1
    assert found.value(f"{PREFIX}_global_partition_count") == 3
    assert found.value(f"{PREFIX}_offline_partitions_count") == 1
    controller.write(*a_topic(2, -1))
    controller.harness.workers.run()
    assert scrape(families.collect(0)).value(f"{PREFIX}_offline_partitions_count") == 2
    controller.log.stop()
    assert scrape(families.collect(0)).value(f"{PREFIX}_active_controller_count") == 0


def test_no_offline_partitions_change_for_topics_being_deleted() -> None:
    image = replay(EMPTY, [*a_topic(1, 2, -1), *a_topic(2, -1)], offset=1, epoch=1).image
    assert count_partitions(image) == PartitionCounts(2, 3, 2, 2)
    topic_id = Uuid(bytes([1]) * 16)
    asked = DeletionImage(topic_id=topic_id, name="t1", policy=Policy.CLASSIC, asked_ms=1)
    queued = replay(image, [header_record(asked)], offset=2, epoch=1).image
    assert count_partitions(queued) == PartitionCounts(2, 3, 2, 1)
    started = [replicas_record(topic_id, 2, STARTED, [0, 1])]
    assert count_partitions(replay(queued, started, offset=3, epoch=1).image) == PartitionCounts(
        2, 3, 1, 1
    )


def test_elections_show_and_what_is_not_led_as_preferred() -> None:
    controller = Controller(Harness())
    controller.write(*a_topic(1, 2, -1))
    controller.harness.workers.run()
    families = ControllerFamilies(controller.log, controller.runtime)
    elected = "kafka_controller_controller_stats_leader_elections_total"
    found = scrape(families.collect(0))
    assert found.value(f"{PREFIX}_preferred_replica_imbalance_count") == 1
    assert found.value(elected) == 0
    topic_id = Uuid(bytes([1]) * 16)
    controller.write(PartitionChangeRecord(partition_id=1, topic_id=topic_id, leader=2))
    controller.harness.workers.run()
    found = scrape(families.collect(0))
    assert found.value(f"{PREFIX}_preferred_replica_imbalance_count") == 0
    assert found.value(elected) == 1
    assert found.value("kafka_controller_controller_stats_unclean_leader_elections_total") == 0
    assert found.value(f"{PREFIX}_new_active_controllers_total") == 1


def test_records_and_their_commits() -> None:
    controller = Controller(Harness())
    controller.harness.workers.run()
    families = ControllerFamilies(controller.log, controller.runtime)
    before = scrape(families.collect(0))
    controller.write(*a_topic(1, 2))
    controller.harness.clock.elapsed_ms += 30
    records, latency = (
        "kafka_server_raft_metrics_append_records_total",
        "kafka_server_raft_metrics_commit_latency_seconds",
    )
    during = scrape(families.collect(0))
    assert during.value(records) - before.value(records) == 2
    assert during.value(f"{latency}_count") == before.value(f"{latency}_count")
    applied, committed = f"{PREFIX}_last_applied_record_offset", f"{PREFIX}_last_committed_record_"
    assert during.value(applied) - during.value(f"{committed}offset") == 2
    controller.harness.workers.run()
    after = scrape(families.collect(0))
    assert after.value(f"{latency}_count") - before.value(f"{latency}_count") == 1
    assert after.value(f"{latency}_sum") - before.value(f"{latency}_sum") == pytest.approx(0.03)
    assert after.value(applied) == after.value(f"{committed}offset")


def test_a_silent_broker_shows() -> None:
    harness = Harness()
    controller = running(harness)
    add_broker(harness, controller, 2)
    families = ControllerFamilies(controller.log, controller.runtime)
    found = scrape(families.collect(controller.timed_out_heartbeats))
    assert found.value(f"{PREFIX}_active_broker_count") == 1
    assert found.value(f"{PREFIX}_fenced_broker_count") == 0
    assert found.value(f"{PREFIX}_timed_out_broker_heartbeat_total") == 0
    harness.advance(SESSION_MS + 1)
    found = scrape(families.collect(controller.timed_out_heartbeats))
    assert found.value(f"{PREFIX}_active_broker_count") == 0
    assert found.value(f"{PREFIX}_fenced_broker_count") == 1
    assert found.value(f"{PREFIX}_timed_out_broker_heartbeat_total") == 1


def test_the_quorum_as_its_members_see_it() -> None:
    controller = Controller(Harness())
    prefix = "kafka_server_raft_metrics"
    found = scrape(raft_families(controller.log.raft))
    assert found.value(f"{prefix}_high_watermark") in (-1, 0)
    controller.harness.workers.run()
    found = scrape(raft_families(controller.log.raft))
    assert found.value(f"{prefix}_current_leader") == 1
    assert found.value(f"{prefix}_current_state", state="leader") == 1
    assert found.value(f"{prefix}_number_of_voters") == 1
    assert found.value(f"{prefix}_current_epoch") == 1
    end_offset = controller.storage.log.end_offset
    assert found.value(f"{prefix}_high_watermark") == end_offset
    assert found.value(f"{prefix}_log_end_offset") == end_offset
    broker = Broker(controller.harness, controller.serve)
    assert scrape(raft_families(broker.follower.raft)).value(f"{prefix}_log_end_offset") >= 0
