"""Which cluster `ottla up` runs: what the folder holds, unless the options say otherwise."""

from pathlib import Path

import pytest

from ottla.cli.errors import UsageError
from ottla.cli.local_up import choose_plans
from ottla.testing import cluster_file
from ottla.testing.cluster_file import ClusterEntry, NodeEntry
from ottla.testing.layout import place_nodes, plan_nodes


def store(folder: Path, brokers: int, controllers: int, port: int) -> None:
    nodes = [NodeEntry(plan) for plan in plan_nodes(brokers, controllers, port)]
    cluster_file.save(folder, ClusterEntry(cluster_id="id", nodes=nodes))


def test_a_new_folder(tmp_path: Path) -> None:
    assert choose_plans(tmp_path, None, None, None) == plan_nodes(1, 0, 9092)
    assert choose_plans(tmp_path, 3, None, 7000) == plan_nodes(3, 0, 7000)
    assert choose_plans(tmp_path, 1, 1, None) == plan_nodes(1, 1, 9092)
    assert choose_plans(tmp_path, 3, 3, None) == plan_nodes(3, 3, 9092)
    with pytest.raises(UsageError, match="--controllers 6: expected 0 to 5"):
        choose_plans(tmp_path, 3, 6, None)


@pytest.mark.parametrize(
    ("brokers", "controllers"), [(1, 0), (1, 1), (2, 0), (3, 0), (3, 1), (3, 3)]
)
def test_a_folder_in_use_keeps_its_cluster(tmp_path: Path, brokers: int, controllers: int) -> None:
    store(tmp_path, brokers, controllers, 7000)
    assert choose_plans(tmp_path, None, None, None) == plan_nodes(brokers, controllers, 7000)
    assert choose_plans(tmp_path, None, None, 8000) == plan_nodes(brokers, controllers, 8000)
    assert choose_plans(tmp_path, brokers, None, None) == plan_nodes(brokers, controllers, 7000)


def test_ports_that_were_not_in_a_row_stay(tmp_path: Path) -> None:
    """As in a folder that `ottla.testing.Cluster` left."""
    plans = place_nodes(2, 0, [7000, 7777], [15_000])
    entry = ClusterEntry(cluster_id="id", nodes=[NodeEntry(plan) for plan in plans])
    cluster_file.save(tmp_path, entry)
    assert choose_plans(tmp_path, None, None, None) == plans


@pytest.mark.parametrize(
    ("brokers", "controllers", "port", "message"),
    [
        (0, None, None, "--brokers 0: expected 1 to 100"),
        (101, None, None, "--brokers 101: expected 1 to 100"),
        (1, -1, None, "--controllers -1: expected 0 to 5"),
        (1, None, 0, "--port 0: expected 1 to 64436, since the last node's metrics are on PORT"),
        (1, None, 64_437, "--port 64437: expected 1 to 64436"),
    ],
)
def test_numbers_out_of_range_are_wrong_usage(
    tmp_path: Path, brokers: int, controllers: int | None, port: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        choose_plans(tmp_path, brokers, controllers, port)
