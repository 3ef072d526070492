"""Apache Kafka 4.3.1 as a peer: its jars from Maven, its nodes as processes of this machine.

Each node is a broker and a controller, as Ottla's are. What differs from Kafka's defaults is only
where nodes listen, and the replication of internal topics, which fits the number of nodes.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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


@contextmanager
def kafka_nodes(count: int, directory: Path) -> Iterator[Server]:
    """Run so many nodes, with 1 GB of heap each. Raises: NoJarsError, NoPeerError."""
    jars = jars_of("kafka")
    ports = free_ports(2 * count)
    brokers, controllers = ports[:count], ports[count:]
    voters = ",".join(f"{i + 1}@127.0.0.1:{port}" for i, port in enumerate(controllers))
    with ExitStack() as stack:
        processes = []
        for number, (port, controller) in enumerate(zip(brokers, controllers, strict=True), 1):
            home = directory / f"kafka-{number}"
            home.mkdir(parents=True)
            properties = home / "server.properties"
            properties.write_text(_properties(number, port, controller, voters, home, count))
            words = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
            subprocess.run(_java(jars, "256M", *words), check=True, stdout=subprocess.DEVNULL)
            log = stack.enter_context((home / "log").open("wb"))
            words = _java(jars, HEAP, "kafka.Kafka", str(properties))
            process = subprocess.Popen(words, stdout=log, stderr=log)
            stack.callback(_stop, process)
            processes.append(psutil.Process(process.pid))
        peer = Server(
            f"Kafka {VERSION}",
            ",".join(f"127.0.0.1:{port}" for port in brokers),
            tuple(processes),
        )
        _wait(peer.bootstrap, count, directory)
        yield peer


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


def _wait(bootstrap: str, count: int, directory: Path) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        try:
            if len(client.list_topics(timeout=2).brokers) == count:
                return
        except Exception:  # Not yet: librdkafka names many reasons.
            time.sleep(0.2)
    raise NoPeerError(f"it did not start within {START_S_MAX:g} s: see {directory}/kafka-*/log")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
