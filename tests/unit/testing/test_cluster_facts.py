"""Asking a cluster that does not answer; what one that does answers is a matter of cluster tests.

Method: nodes on ports where nobody listens.
"""

from dataclasses import replace

import pytest

from ottla.testing import cluster_facts
from ottla.testing.layout import ClusterError, plan_nodes
from ottla.testing.ports import free_ports

WHOLE = cluster_facts.PartitionFacts(leader=1, leader_epoch=0, replicas=(1, 2), isr=(1, 2))


def test_no_node_leads_where_none_answers() -> None:
    nodes = plan_nodes(1, 0, min(free_ports(1)[0], 60_000))
    assert cluster_facts.quorum(nodes) is None
    assert cluster_facts.active_controller(nodes) is None
    assert cluster_facts.active_controller(()) is None


def test_partitions_are_asked_of_brokers_alone() -> None:
    nodes = plan_nodes(1, 1, min(free_ports(1)[0], 60_000))
    with pytest.raises(ClusterError, match="no broker answered Metadata for orders"):
        cluster_facts.partitions(nodes, "orders")
    assert cluster_facts.all_in_sync(nodes[1:], "orders") is None


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ({0: WHOLE, 1: WHOLE}, True),
        ({0: WHOLE}, None),  # It has not got the new partition's metadata yet.
        ({0: WHOLE, 1: replace(WHOLE, isr=(1,))}, None),
        ({0: WHOLE, 1: replace(WHOLE, leader=-1)}, None),
        ({}, None),
    ],
)
def test_all_brokers_must_say_that_replicas_are_in_sync(
    monkeypatch: pytest.MonkeyPatch,
    second: dict[int, cluster_facts.PartitionFacts],
    expected: bool | None,
) -> None:
    nodes = plan_nodes(2, 1, 10_000)
    views = {nodes[0].id: {0: WHOLE, 1: WHOLE}, nodes[1].id: second}
    monkeypatch.setattr(cluster_facts, "topics", lambda asked, topic: {topic: views[asked[0].id]})
    assert cluster_facts.all_in_sync(nodes, "orders") is expected


def test_waiting_ends_with_what_was_waited_for() -> None:
    answers = iter([None, None, 7])
    assert cluster_facts.until(lambda: next(answers), "seven", 10.0) == 7
    with pytest.raises(ClusterError, match=r"waited 0 s for a miracle in vain"):
        cluster_facts.until(lambda: None, "a miracle", 0.0)
