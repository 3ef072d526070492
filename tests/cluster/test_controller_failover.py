"""The controller fails softly and hard while many partitions change state in quick succession.

Method: workers create and delete topics of 10 partitions and three replicas all the time
(`topic_churn.py`); the active controller is frozen (SIGSTOP, a soft failure: it wakes up and
thinks that it leads), killed or stopped, again and again: in some ways, drawn by the commit; `make
soak` runs them all. At the end every acknowledged change holds on every broker, every partition is
led, and the logs of a quorum's voters are equally long. KAFKA-499 asked for these two: soft and
hard failures, and many partitions.
"""

from collections.abc import Callable

import pytest

from ottla.testing import Cluster, cluster_facts

from ..drawn import FAULT_ROUNDS, drawn
from .clients import eventually
from .conftest import Kind, NewCluster, kinds
from .fault_rounds import QUICK_SESSIONS
from .topic_churn import Churn

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300), pytest.mark.forms(1)]

QUICK = QUICK_SESSIONS | {"log.segment.delete.delay.ms": "100"}

Failure = Callable[[Cluster, int, Churn], None]


def frozen(cluster: Cluster, controller: int, churn: Churn) -> None:
    cluster.pause(controller)
    cluster.wait_controller(besides=controller)
    churn.wait_progress()
    cluster.resume(controller)


def frozen_and_woken_at_once(cluster: Cluster, controller: int, churn: Churn) -> None:
    """It wakes in the middle of the election of its successor."""
    cluster.pause(controller)
    cluster.wait_controller(besides=controller)
    cluster.resume(controller)


def killed(cluster: Cluster, controller: int, churn: Churn) -> None:
    cluster.kill(controller)
    cluster.wait_controller(besides=controller)
    churn.wait_progress()
    cluster.start(controller)


def killed_twice(cluster: Cluster, controller: int, churn: Churn) -> None:
    cluster.kill(controller)
    second = cluster.wait_controller(besides=controller)
    cluster.start(controller)
    cluster.kill(second)
    cluster.wait_controller(besides=second)
    cluster.start(second)


def stopped(cluster: Cluster, controller: int, churn: Churn) -> None:
    cluster.stop(controller)
    churn.wait_progress()
    cluster.start(controller)


FAILURES: tuple[Failure, ...] = (killed, frozen, stopped, killed_twice, frozen_and_woken_at_once)
PLAYED = drawn(FAILURES, 2, FAULT_ROUNDS)


@kinds()
def test_no_acknowledged_change_of_metadata_is_lost(kind: Kind, new_cluster: NewCluster) -> None:
    # Over ZooKeeper a dead broker is not known, so that topics need one more than replicas.
    brokers = 4 if kind is Kind.ZOOKEEPER else 3
    with new_cluster(kind, brokers, config=QUICK) as cluster:
        with Churn(cluster) as churn:
            for fail in PLAYED:
                fail(cluster, cluster.wait_controller(), churn)
                churn.wait_progress()
                cluster.wait_ready()
        churn.check()
        assert churn.changes > 5 * len(PLAYED)
        if kind is not Kind.ZOOKEEPER:
            eventually(lambda: spread(cluster), lambda found: found <= 1, what="equal logs")


def spread(cluster: Cluster) -> int:
    """Return how much longer the longest of the voters' logs is than the shortest."""
    found = cluster_facts.quorum(cluster.nodes)
    assert found is not None
    ends = [voter.log_end_offset for voter in found.current_voters]
    assert len(ends) == len(cluster.controllers)
    return max(ends) - min(ends)
