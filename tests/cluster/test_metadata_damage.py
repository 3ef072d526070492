"""A damaged metadata log stops a real node from starting: exit code 1, one line on stderr.

Method: one node, whose bytes are flipped between two lives; `ottla server` is run to its end, as a
supervisor would. With the bytes put right again it serves, and has its topics.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.testing import Cluster

from .conftest import QUICK, new_topic
from .ottla_command import Ran, ottla

pytestmark = pytest.mark.cluster


def segment(cluster: Cluster) -> Path:
    (path,) = (cluster.data_dir(1) / "__cluster_metadata-0").glob("*.log")
    return path


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :]


def start_in_vain(cluster: Cluster) -> Ran:
    return ottla("server", str(cluster.data_dir(1).parent / "node.properties"))


def check_refused(cluster: Cluster, ran: Ran, offset: int) -> None:
    assert ran.code == 1
    (line,) = ran.err.splitlines()
    assert line.startswith(f"ottla server: {segment(cluster)}: the metadata log ")
    assert re.search(rf" offset {offset}, .*; restore the directory from a backup$", line)


@pytest.mark.parametrize("end", [Cluster.stop, lambda cluster, node: cluster.kill(node)],
                         ids=["stopped", "killed"])  # fmt: skip
def test_a_node_with_a_damaged_metadata_log_refuses_to_start(
    end: Callable[[Cluster, int], None],
) -> None:
    with Cluster(brokers=1, config=QUICK) as cluster:
        topic = new_topic(cluster.bootstrap, "damaged")
        end(cluster, 1)
        path = segment(cluster)
        whole = path.read_bytes()
        path.write_bytes(flipped(whole, 40))
        damaged = path.read_bytes()
        check_refused(cluster, start_in_vain(cluster), 0)
        # Nothing is cut, so the next start refuses as well.
        check_refused(cluster, start_in_vain(cluster), 0)
        assert path.read_bytes() == damaged

        path.write_bytes(whole)
        cluster.start(1)
        cluster.wait_ready()
        assert cluster.partitions(topic)[0].leader == 1


def test_a_torn_end_that_was_promised_to_nobody_is_cut_with_a_warning() -> None:
    with Cluster(brokers=1, config=QUICK) as cluster:
        topic = new_topic(cluster.bootstrap, "torn")
        cluster.kill(1)
        path = segment(cluster)
        whole = path.read_bytes()
        path.write_bytes(whole + whole[:70])
        cluster.start(1)
        cluster.wait_ready()
        assert cluster.partitions(topic)[0].leader == 1
        assert re.search(r"WARNING metadata log \S+: cut \d+ bytes from offset", cluster.logs(1))
