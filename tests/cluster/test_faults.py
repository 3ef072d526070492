"""Leaders and controllers die, freeze and restart under load: no acknowledged record is lost.

Method: three nodes, three replicas, min.insync.replicas=2; an idempotent librdkafka producer
(`fault_load.py`) writes numbered records to several partitions all the time, and a consumer
reads along. Rounds of SIGKILL, SIGSTOP and restarts follow on each other (`fault_rounds.py`): some
of twenty, drawn by the commit; `make soak` runs them all. At the end every record is on every
replica once and in order, and no client got an error. What each round cost is printed at the end of
the run. `benches/failover.py` prints the same.
"""

import pytest

from ..drawn import FAULT_ROUNDS, drawn
from .conftest import Kind, NewCluster, Reports, new_replicated_topic
from .fault_rounds import QUICK_SESSIONS, ROUNDS, Act, table, under_load

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

PARTITIONS = 6


SEPARATE = (*ROUNDS[:4], *ROUNDS[9:14])
"""Rounds that are something else where controllers are nodes of their own."""


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [
        (Kind.COMBINED, drawn(ROUNDS, 1, FAULT_ROUNDS)),
        (Kind.SEPARATE, drawn(SEPARATE, 1, FAULT_ROUNDS)),
        (Kind.ZOOKEEPER, drawn(ROUNDS[::-1], 1, FAULT_ROUNDS)),
    ],
    ids=lambda each: each.value if isinstance(each, Kind) else "",
)
def test_no_acknowledged_record_is_lost(
    kind: Kind, rounds: list[Act], new_cluster: NewCluster, reports: Reports
) -> None:
    with new_cluster(kind, config=QUICK_SESSIONS) as cluster:
        topic = new_replicated_topic(cluster, "faults", PARTITIONS)
        with under_load(cluster, topic, PARTITIONS) as scene:
            costs = [scene.run(act) for act in rounds]
    reports.append(f"time without a leader: three brokers, {kind.value}", table(costs))
