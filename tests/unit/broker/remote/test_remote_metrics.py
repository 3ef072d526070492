"""Copies and deletions are counted under the names that docs/metrics.md has."""

from ottla.base.metrics import render
from ottla.broker.remote.remote_metrics import RemoteMetrics, remote_families
from tests.unit.broker.remote.copy_bench import TOPIC_ID, Bench

PREFIX = "kafka_server_broker_topic_metrics_remote"


def test_what_a_leader_copies_and_deletes_is_counted() -> None:
    bench = Bench()
    broker = bench.broker(1)
    broker.fill(3)
    size = broker.log.local_segments()[0].size_bytes
    broker.lead(5)
    bench.run(40)
    broker.log.delete_records(10)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(200)
    text = "".join(render(remote_families(broker.life.environment.metrics)))
    for line in (
        f'copy_bytes_total{{topic="topic"}} {3 * size}',
        'copy_requests_total{topic="topic"} 3',
        'copy_errors_total{topic="topic"} 0',
        'delete_requests_total{topic="topic"} 1',
        'delete_errors_total{topic="topic"} 0',
        'copy_lag_segments{topic="topic",partition="0"} 0',
        'delete_lag_segments{topic="topic",partition="0"} 0',
        'log_metadata_count{topic="topic",partition="0"} 2',
        f'log_size_bytes{{topic="topic",partition="0"}} {2 * size}',
    ):
        assert f"{PREFIX}_{line}\n" in text, line


def test_the_gauges_of_a_partition_go_with_its_leader() -> None:
    metrics = RemoteMetrics()
    old = metrics.add_partition("t", 0)
    new = metrics.add_partition("t", 0)
    metrics.remove_partition(old)
    assert metrics.partitions == [new]
    metrics.remove_partition(new)
    assert metrics.partitions == []
