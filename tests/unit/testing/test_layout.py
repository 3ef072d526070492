"""What nodes a local cluster has, on which ports, with which properties.

Method: the properties are parsed by the node's own configuration, so they cannot drift from it.
"""

import pytest

from ottla.metadata.node_config import NodeConfig
from ottla.testing.layout import (
    ClusterError,
    NodePlan,
    check_config,
    node_properties,
    place_nodes,
    plan_brokers,
    plan_nodes,
)


def rows(plans: tuple[NodePlan, ...]) -> list[tuple[int, str, int, int | None]]:
    return [(plan.id, ",".join(plan.roles), plan.port, plan.controller_port) for plan in plans]


def test_one_broker_is_its_own_controller() -> None:
    assert rows(plan_nodes(1, 0, 9092)) == [(1, "broker,controller", 9092, 9192)]


def test_three_of_several_brokers_are_controllers_too() -> None:
    assert rows(plan_nodes(2, 0, 9092)) == [
        (1, "broker,controller", 9092, 9192),
        (2, "broker", 9093, None),
    ]
    assert rows(plan_nodes(4, 0, 9092)) == [
        (1, "broker,controller", 9092, 9192),
        (2, "broker,controller", 9093, 9193),
        (3, "broker,controller", 9094, 9194),
        (4, "broker", 9095, None),
    ]


def test_separate_controllers_leave_the_brokers_alone() -> None:
    assert rows(plan_nodes(3, 1, 9092)) == [
        (1, "broker", 9092, None),
        (2, "broker", 9093, None),
        (3, "broker", 9094, None),
        (101, "controller", 9192, 9192),
    ]


def test_a_controller_can_be_separate_from_a_single_broker() -> None:
    assert rows(plan_nodes(1, 1, 9092)) == [(1, "broker", 9092, None), (101, "controller", 9192,
                                                                        9192)]  # fmt: skip


def test_several_controllers_are_a_quorum_of_their_own() -> None:
    plans = plan_nodes(1, 3, 9092)
    assert rows(plans)[1:] == [
        (101, "controller", 9192, 9192),
        (102, "controller", 9193, 9193),
        (103, "controller", 9194, 9194),
    ]
    voters = node_properties(plans[0], plans, "/data", {})["controller.quorum.voters"]
    assert voters == "101@127.0.0.1:9192,102@127.0.0.1:9193,103@127.0.0.1:9194"


@pytest.mark.parametrize(("controllers", "count"), [(0, 203), (5, 210)])
def test_no_two_nodes_of_the_largest_cluster_share_a_port(controllers: int, count: int) -> None:
    ports = [port for plan in plan_nodes(100, controllers, 9092) for port in plan.ports]
    assert len(set(ports)) == len(ports) == count


@pytest.mark.parametrize(
    ("brokers", "controllers", "port", "message"),
    [
        (0, 0, 9092, "0 brokers: expected 1 to 100"),
        (101, 0, 9092, "101 brokers: expected 1 to 100"),
        (1, 6, 9092, "6 controllers: expected 0 to 5"),
        (1, -1, 9092, "-1 controllers: expected 0 to 5"),
        (1, 0, 65_500, "port 65500: expected 1 to 64436"),
        (1, 3, 64_434, "port 64434: expected 1 to 64433"),
        (1, 0, 0, "port 0: expected 1 to 64436"),
    ],
)
def test_what_cannot_be_made(brokers: int, controllers: int, port: int, message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        plan_nodes(brokers, controllers, port)


@pytest.mark.parametrize(("brokers", "voters"), [(1, [1]), (2, [1]), (4, [1, 2, 3])])
def test_nodes_take_their_properties(brokers: int, voters: list[int]) -> None:
    controller_ports = [8000 + index for index in range(len(voters))]
    plans = place_nodes(brokers, 0, range(7000, 7000 + brokers), controller_ports)
    for plan in plans:
        config = NodeConfig.parse(
            node_properties(plan, plans, "/data", {"log.retention.ms": "9999"})
        )
        assert config.node_id == plan.id
        assert config.roles == plan.roles
        assert {each.port for each in config.listeners} == set(plan.ports)
        assert [(each.id, each.port) for each in config.quorum_voters] == list(
            zip(voters, controller_ports, strict=True)
        )
        assert config["log.retention.ms"] == 9999
        assert config["offsets.topic.replication.factor"] == min(3, brokers)
        assert config["transaction.state.log.min.isr"] == min(2, brokers)
        factor = config["rlmm.config.remote.log.metadata.topic.replication.factor"]
        assert factor == min(3, brokers)


def test_metrics_are_beside_each_node() -> None:
    plans = plan_nodes(2, 0, 9092)
    separate = plan_nodes(2, 1, 9092)
    assert [plan.metrics_port for plan in separate] == [10_092, 10_093, 10_192]
    assert [plan.metrics_port for plan in plans] == [10_092, 10_093]
    for plan in plans:
        config = NodeConfig.parse(node_properties(plan, plans, "/data", {}))
        assert config["metrics.port"] == plan.metrics_port
    with pytest.raises(ClusterError, match=r"metrics.port=1 cannot be set for a whole cluster"):
        check_config({"metrics.port": "1"})


def test_what_makes_a_node_one_of_its_cluster_cannot_be_configured() -> None:
    check_config({"log.retention.ms": "5"})
    with pytest.raises(ClusterError, match=r"log.dirs=/x cannot be set for a whole cluster"):
        check_config({"log.dirs": "/x"})


def test_over_zookeeper_there_are_brokers_alone_and_perhaps_zookeeper() -> None:
    brokers = [(1, "broker", 9092, None), (2, "broker", 9093, None)]
    assert rows(plan_brokers(2, 9092)) == brokers
    plans = plan_brokers(2, 9092, 9292)
    assert rows(plans) == [*brokers, (201, "zookeeper", 9292, None)]
    assert [plan.is_zookeeper for plan in plans] == [False, False, True]
    assert [plan.metrics_port for plan in plans] == [10092, 10093, None]


def test_brokers_over_zookeeper_have_properties_of_that_mode_alone() -> None:
    plans = plan_brokers(2, 9092, 9292)
    connect = "127.0.0.1:9292/chroot"
    config = NodeConfig.parse(
        node_properties(plans[1], plans, "/data", {"log.retention.ms": "9"}, connect)
    )
    assert (config.node_id, config.zookeeper_connect) == (2, connect)
    assert not config.values["process.roles"]
    assert config.values["offsets.topic.replication.factor"] == 2
    assert config.values["log.retention.ms"] == 9
