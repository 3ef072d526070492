"""`cluster.json` keeps what one command must know of another's cluster."""

import json
import threading
from pathlib import Path

import pytest

from ottla.testing import cluster_file
from ottla.testing.cluster_file import ClusterEntry, NodeEntry
from ottla.testing.layout import ClusterError, plan_brokers, plan_nodes
from ottla.testing.processes import Identity


def entry() -> ClusterEntry:
    nodes = [NodeEntry(plan) for plan in plan_nodes(2, 1, 9092)]
    nodes[0] = NodeEntry(nodes[0].plan, Identity(123, "boot:5"), wanted=True)
    return ClusterEntry(cluster_id="id", nodes=nodes, config={"a": "b"})


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    assert not cluster_file.exists(tmp_path)
    cluster_file.save(tmp_path, entry())
    assert cluster_file.exists(tmp_path)
    assert cluster_file.load(tmp_path) == entry()


def test_other_programs_find_the_address(tmp_path: Path) -> None:
    cluster_file.save(tmp_path, entry())
    content = json.loads((tmp_path / "cluster.json").read_text())
    assert content["bootstrap"] == "127.0.0.1:9092,127.0.0.1:9093"
    assert (content["mode"], content["zookeeper"]) == ("kraft", None)


def test_a_cluster_over_zookeeper_says_where_that_is(tmp_path: Path) -> None:
    nodes = [NodeEntry(plan) for plan in plan_brokers(1, 9092, 9292)]
    made = ClusterEntry(cluster_id="", nodes=nodes, zookeeper="127.0.0.1:9292")
    cluster_file.save(tmp_path, made)
    assert cluster_file.load(tmp_path) == made
    content = json.loads((tmp_path / "cluster.json").read_text())
    assert (content["mode"], content["zookeeper"]) == ("zookeeper", "127.0.0.1:9292")
    assert content["bootstrap"] == "127.0.0.1:9092"


def test_files_of_before_zookeeper_was_known_are_read(tmp_path: Path) -> None:
    cluster_file.save(tmp_path, entry())
    path = tmp_path / "cluster.json"
    content = json.loads(path.read_text())
    del content["zookeeper"]
    path.write_text(json.dumps(content))
    assert cluster_file.load(tmp_path) == entry()


def test_nodes_by_id() -> None:
    assert entry().node(101).plan.roles == ("controller",)
    with pytest.raises(ClusterError, match="no node 3 in this cluster: expected one of 1, 2, 101"):
        entry().node(3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ('{"version": 2}', "has version 2: expected 1"),
        ('{"version": 1}', "lacks or garbles 'nodes'"),
        ("[]", "holds no JSON object"),
        ('{"version": 1, "cluster_id": "x", "config": {}, "nodes": [1]}', "lacks or garbles"),
        ('{"version": 1, "cluster_id": "x", "config": "x", "nodes": []}', "lacks or garbles"),
        ('{"version": 1, "cluster_id": "x", "config": {}, "nodes": []}', "names no nodes"),
    ],
)
def test_files_that_are_not_one_of_ours(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(ClusterError, match=message):
        cluster_file.load(tmp_path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"no cluster in .*: expected .*cluster\.json"):
        cluster_file.load(tmp_path)


def test_what_cannot_be_saved_leaves_what_there_was(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").mkdir()  # In the file's place, so that replacing it fails.
    with pytest.raises(OSError, match=r"cluster\.json"):
        cluster_file.save(tmp_path, entry())
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    order: list[str] = []

    def wait_for_it() -> None:
        with cluster_file.locked(tmp_path):
            order.append("second")

    with cluster_file.locked(tmp_path):
        other = threading.Thread(target=wait_for_it)
        other.start()
        order.append("first")
    other.join(10)
    assert order == ["first", "second"]
