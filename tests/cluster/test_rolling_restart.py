"""Every node of a cluster restarts in order, one after the other, and no client is told of it.

Method: three replicas under an idempotent producer and a consumer with librdkafka's defaults; each
node is stopped (SIGTERM) and started while both go on.
"""

import pytest

from .conftest import Kind, NewCluster, Reports, kinds, new_replicated_topic
from .fault_rounds import Scene, table, under_load

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.forms(1),
    pytest.mark.drawn(2, of="long faults"),
]

PARTITIONS = 6
GAP_SECONDS_MAX = 5.0
"""Without an acknowledgement on one partition; a session of 9 s that ran out would be longer."""


def each_node_restarted(scene: Scene) -> None:
    for plan in scene.cluster.nodes:
        scene.stop(plan.id)
        scene.start(plan.id)
        scene.cluster.wait_ready()
        # The next stop would take the second of three replicas away.
        scene.cluster.wait_in_sync(scene.load.topic)


@kinds()
def test_a_rolling_restart_under_load(
    kind: Kind, new_cluster: NewCluster, reports: Reports
) -> None:
    with new_cluster(kind) as cluster:
        topic = new_replicated_topic(cluster, "rolling", PARTITIONS)
        with under_load(cluster, topic, PARTITIONS) as scene:
            cost = scene.run(each_node_restarted)
    title = f"rolling restart, Kafka's default timeouts, {kind.value}"
    reports.append(title, table([cost]))
    assert cost.unacknowledged < GAP_SECONDS_MAX
    assert cost.leaderless < GAP_SECONDS_MAX
