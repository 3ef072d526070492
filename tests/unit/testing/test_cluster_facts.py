"""Asking a cluster that does not answer; what one that does answers is a matter of cluster tests.

Method: nodes on ports where nobody listens.
"""

import pytest

from ottla.testing import cluster_facts
from ottla.testing.layout import ClusterError, plan_nodes
from ottla.testing.ports import free_ports


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


def test_waiting_ends_with_what_was_waited_for() -> None:
    answers = iter([None, None, 7])
    assert cluster_facts.until(lambda: next(answers), "seven", 10.0) == 7
    with pytest.raises(ClusterError, match=r"waited 0 s for a miracle in vain"):
        cluster_facts.until(lambda: None, "a miracle", 0.0)
