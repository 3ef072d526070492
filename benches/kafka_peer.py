"""Apache Kafka 4.3.1 as a peer: its jars from Maven, its nodes as processes of this machine.

Each node is a broker and a controller, as Ottla's are. What differs from Kafka's defaults is only
where nodes listen, and the replication of internal topics, which fits the number of nodes.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient

from maven_jars import jars_of
from ottla.testing.ports import free_ports
from servers import Server

VERSION = "4.3.1"
CLUSTER_ID = "b3R0bGEtYmVuY2hlcy1wZQ"
HEAP = "1G"
START_S_MAX = 60.0


class NoPeerError(Exception):
    """Kafka did not start; the text says why."""


class KafkaNodes:
    """So many nodes, with ids from 1; `bootstrap`: their addresses."""

    name = f"Kafka {VERSION}"

    def __init__(self, count: int, directory: Path, heap: str = HEAP) -> None:
        """Format their directories. Raises: NoJarsError."""
        self._jars = jars_of("kafka")
        self._heap = heap
        self._directory = directory
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        ports = free_ports(2 * count)
        brokers, controllers = ports[:count], ports[count:]
        voters = ",".join(f"{i + 1}@127.0.0.1:{port}" for i, port in enumerate(controllers))
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in brokers)
        for number, (port, controller) in enumerate(zip(brokers, controllers, strict=True), 1):
            home = self._home(number)
            home.mkdir(parents=True)
            properties = home / "server.properties"
            properties.write_text(_properties(number, port, controller, voters, home, count))
            words = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
            java = _java(self._jars, "256M", *words)
            subprocess.run(java, check=True, stdout=subprocess.DEVNULL)

    def _home(self, node: int) -> Path:
        return self._directory / f"kafka-{node}"

    def start(self, node: int) -> None:
        """Start a node; it does not serve yet."""
        with (self._home(node) / "log").open("ab") as log:
            properties = str(self._home(node) / "server.properties")
            words = _java(self._jars, self._heap, "kafka.Kafka", properties)
            self._running[node] = subprocess.Popen(words, stdout=log, stderr=log)

    def kill(self, node: int) -> None:
        """Kill a node (SIGKILL), and wait for its end."""
        process = self._running.pop(node)
        process.kill()
        process.wait()

    def processes(self) -> tuple[psutil.Process, ...]:
        """Return the processes of the running nodes."""
        return tuple(psutil.Process(each.pid) for each in self._running.values())

    def wait_ready(self, within_s: float = START_S_MAX) -> None:
        """Wait until all that were started serve. Raises: NoPeerError."""
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            try:
                if len(client.list_topics("none", timeout=2).brokers) == len(self._running):
                    return
            except Exception:  # Not yet: librdkafka names many reasons.
                pass
            time.sleep(0.2)
        raise NoPeerError(f"not ready within {within_s:g} s: see {self._directory}/kafka-*/log")

    def close(self) -> None:
        """End all nodes."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def kafka_nodes(count: int, directory: Path) -> Iterator[Server]:
    """Run so many nodes, with 1 GB of heap each. Raises: NoJarsError, NoPeerError."""
    with closing(KafkaNodes(count, directory)) as nodes:
        for node in range(1, count + 1):
            nodes.start(node)
        nodes.wait_ready()
        yield Server(nodes.name, nodes.bootstrap, nodes.processes())


def _java(jars: Path, heap: str, *words: str) -> list[str]:
    options = [f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", "-server"]
    logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", *options, logging, "-cp", f"{jars}/*", *words]


def _properties(
    number: int, port: int, controller: int, voters: str, home: Path, count: int
) -> str:
    return f"""\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={home / "data"}
offsets.topic.replication.factor={count}
transaction.state.log.replication.factor={count}
transaction.state.log.min.isr=1
"""
