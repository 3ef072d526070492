"""Leaders and controllers die, freeze and restart under load: no acknowledged record is lost.

Method: three nodes, three replicas, min.insync.replicas=2; an idempotent librdkafka producer with
its defaults writes numbered records to several partitions all the time, a consumer reads along.
Twenty rounds of SIGKILL, SIGSTOP and restarts follow on each other (`fault_rounds.py`). At the end
every record is on every replica once and in order, and no client was told of a failure. What each
round cost is printed at the end of the run. `benches/failover.py` prints the same.
"""

import pytest

from ottla.testing import Cluster

from .conftest import Reports, new_replicated_topic
from .fault_rounds import QUICK_SESSIONS, ROUNDS, Act, table, under_load

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

PARTITIONS = 6


SEPARATE = (*ROUNDS[:4], *ROUNDS[9:14])
"""Rounds that are something else where controllers are nodes of their own."""


@pytest.mark.parametrize(
    ("controllers", "rounds"), [(0, ROUNDS), (3, SEPARATE)], ids=["combined", "separate"]
)
def test_no_acknowledged_record_is_lost(
    controllers: int, rounds: tuple[Act, ...], reports: Reports
) -> None:
    with Cluster(brokers=3, controllers=controllers, config=QUICK_SESSIONS) as cluster:
        topic = new_replicated_topic(cluster, "faults", PARTITIONS)
        with under_load(cluster, topic, PARTITIONS) as scene:
            costs = [scene.run(act) for act in rounds]
    kind = f"{controllers} separate controllers" if controllers else "combined nodes"
    reports.append(f"time without a leader: three brokers, {kind}", table(costs))
