"""The servers that the benchmarks drive: one Ottla node, and librdkafka's own mock cluster.

Both run in a process of their own, so that their CPU time and memory can be told from the
client's, and both are driven by the same client code in the same run.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from ottla.testing import Cluster

MOCK = """
import sys
from confluent_kafka.admin import AdminClient
admin = AdminClient({"test.mock.num.brokers": 1, "log_level": 0})
broker = next(iter(admin.list_topics(timeout=10).brokers.values()))
print(f"{broker.host}:{broker.port}", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A running cluster: its name in the tables, where it listens, and its nodes' processes."""

    name: str
    bootstrap: str
    processes: tuple[psutil.Process, ...]

    def cpu_s(self) -> float:
        """Return the CPU seconds that all nodes have used."""
        times = [each.cpu_times() for each in self.processes]
        return float(sum(each.user + each.system for each in times))

    def resident_mb(self) -> float:
        """Return the resident memory of all nodes in MB."""
        return float(sum(each.memory_info().rss for each in self.processes)) / 1e6


@contextmanager
def ottla_nodes(count: int, directory: Path) -> Iterator[Server]:
    """Run so many combined nodes."""
    with Cluster(brokers=count, data_dir=directory / "ottla") as cluster:
        cluster.wait_ready(60)
        processes = tuple(psutil.Process(cluster.pid(node.id)) for node in cluster.nodes)
        yield Server("Ottla", cluster.bootstrap, processes)


@contextmanager
def ottla_node(**config: str) -> Iterator[Server]:
    """Run one combined node in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        options = {name.replace("_", "."): value for name, value in config.items()}
        with Cluster(brokers=1, data_dir=Path(directory), config=options) as cluster:
            cluster.wait_ready(60)
            (node,) = cluster.nodes
            yield Server("ottla", cluster.bootstrap, (psutil.Process(cluster.pid(node.id)),))


@contextmanager
def mock_cluster() -> Iterator[Server]:
    """Run librdkafka's mock cluster with one broker."""
    child = subprocess.Popen(
        [sys.executable, "-c", MOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        yield Server("mock", child.stdout.readline().strip(), (psutil.Process(child.pid),))
    finally:
        child.stdin.close()
        child.wait(30)
