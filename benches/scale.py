"""What rest and size cost, beside Apache Kafka where Maven can fetch it.

    python benches/scale.py [idle] [connections] [brokers] [partitions]

- idle: three nodes with 1,000 partitions of three replicas, to which nobody writes;
- connections: one node with 5,000 of them, and what one more client notices;
- brokers: one-record requests to one broker, and to two, on the same two cores;
- partitions: three nodes with 10,000 partitions of three replicas: see `many_partitions.py`.

What controllers of their own make of 10,000 partitions is in `controller.py`, a start in
`startup.py`.
"""

import argparse
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.table import Table

import raw_load
from against_kafka import new_topic, one_record
from kafka_peer import kafka_nodes
from many_partitions import many_partitions
from maven_jars import NoJarsError, jars_of
from ottla.wire.frames import encode_request
from ottla.wire.messages.api_versions import ApiVersionsRequest
from rows import Row
from servers import Server, ottla_nodes
from waiting import until

PARTITIONS = 1_000
SETTLE_S = 15.0
IDLE_S = 60.0
IDLE_PERCENT_MAX = 2.0

CONNECTIONS = 5_000
LOAD_S = 5.0
ROUNDS = 3


@contextmanager
def peers(nodes: int) -> Iterator[list[Server]]:
    """Run a cluster of Ottla, and one of Kafka where it can be had."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory, ExitStack() as running:
        found = [running.enter_context(ottla_nodes(nodes, Path(directory)))]
        with suppress(NoJarsError):
            jars_of("kafka")
            found.append(running.enter_context(kafka_nodes(nodes, Path(directory))))
        yield found


def idle() -> Iterator[Row]:
    """Measure the CPU of clusters that have nothing to do."""
    with peers(3) as found:
        for peer in found:
            topic = new_topic(peer, PARTITIONS, 3)
            until(lambda peer=peer, topic=topic: _are_in_sync(peer, topic))  # type: ignore[misc]
        time.sleep(SETTLE_S)
        before = [peer.cpu_s() for peer in found]
        time.sleep(IDLE_S)
        for peer, cpu_s in zip(found, before, strict=True):
            percent = 100 * (peer.cpu_s() - cpu_s) / IDLE_S
            yield Row(
                f"{peer.name}: idle, 3 nodes, {PARTITIONS} partitions, RF 3",
                f"{percent:.1f} % of a core",
                f"at most {IDLE_PERCENT_MAX:g} %",
                percent <= IDLE_PERCENT_MAX,
            )
            yield Row(f"{peer.name}: resident memory of the three", f"{peer.resident_mb():.0f} MB")


def _are_in_sync(peer: Server, topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
    partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
    return len(partitions) == PARTITIONS and all(len(p.isrs) == 3 for p in partitions.values())


def connections() -> Iterator[Row]:
    """Measure what thousands of idle connections cost, and what one busy one notices."""
    with peers(1) as found:
        for peer in found:
            topic = new_topic(peer, 1)
            alone = _median_load(peer, topic)
            memory_mb = peer.resident_mb()
            with ExitStack() as opened:
                began = time.perf_counter()
                _open(peer, CONNECTIONS, opened)
                took_s = time.perf_counter() - began
                grown_mb = peer.resident_mb() - memory_mb
                beside = _median_load(peer, topic)
            name = f"{peer.name}: {CONNECTIONS} connections"
            yield Row(f"{name}, opened and answered once", f"{took_s:.1f} s")
            yield Row(f"{name}, memory of each", f"{grown_mb * 1e3 / CONNECTIONS:.1f} kB")
            for quantile in ("p50_us", "p99_us"):
                yield Row(
                    f"{name}, {quantile[:3]} of one more client (without)",
                    f"{beside[quantile]:.0f} µs ({alone[quantile]:.0f} µs)",
                )


def _open(peer: Server, count: int, opened: ExitStack) -> None:
    """Open connections, each of which has asked for the versions of the APIs."""
    host, _, port = peer.bootstrap.split(",")[0].rpartition(":")
    request = encode_request(ApiVersionsRequest(), 0, 1, "bench")
    for _ in range(count):
        each = opened.enter_context(socket.create_connection((host, int(port))))
        each.sendall(request)
        size = int.from_bytes(each.recv(4, socket.MSG_WAITALL), "big")
        assert len(each.recv(size, socket.MSG_WAITALL)) == size


def _median_load(peer: Server, topic: str) -> dict[str, float]:
    _load(peer.bootstrap, one_record(topic), 1)  # A JVM compiles meanwhile.
    runs = [_load(peer.bootstrap, one_record(topic), 1) for _ in range(ROUNDS)]
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def _load(bootstrap: str, request: bytes, clients: int) -> dict[str, float]:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(request)
        return raw_load.measure(bootstrap, Path(file.name), clients, 1, LOAD_S)


def brokers() -> Iterator[Row]:
    """Compare one broker with two, by one-record requests of 64 connections."""
    rates: dict[tuple[str, int], float] = {}
    for nodes in (1, 2):
        with peers(nodes) as found:
            for peer in found:
                _rate(peer, nodes)  # A JVM compiles meanwhile.
                runs = [_rate(peer, nodes) for _ in range(ROUNDS)]
                rates[peer.name, nodes] = statistics.median(runs)
    for name in dict.fromkeys(name for name, _ in rates):
        one, two = rates[name, 1], rates[name, 2]
        yield Row(
            f"{name}: requests, 64 connections, to one broker and to two",
            f"{one:.0f}/s, {two:.0f}/s ({two / one:.2f} times)",
        )


def _rate(peer: Server, nodes: int) -> float:
    """Return requests per second to partitions that all brokers lead alike."""
    topic = new_topic(peer, nodes)
    admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
    metadata = admin.list_topics(topic, timeout=30)
    leaders = {
        number: metadata.brokers[each.leader]
        for number, each in metadata.topics[topic].partitions.items()
    }
    assert len({each.id for each in leaders.values()}) == nodes, "a broker leads nothing"
    with ThreadPoolExecutor(nodes) as pool:
        runs = [
            pool.submit(_load, f"{each.host}:{each.port}", one_record(topic, number), 64 // nodes)
            for number, each in leaders.items()
        ]
        return sum(each.result()["per_s"] for each in runs)


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "idle": idle,
    "connections": connections,
    "brokers": brokers,
    "partitions": many_partitions,
}


def _part(word: str) -> str:
    if word not in PARTS:
        raise argparse.ArgumentTypeError(f"{word}: expected one of {', '.join(PARTS)}")
    return word


def main(words: list[str]) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", type=_part, help=f"of {', '.join(PARTS)}; default: all")
    table = Table(title="rest and size")
    for heading in ("", "measured", "target"):
        table.add_column(heading)
    for word in parser.parse_args(words).parts or PARTS:
        for row in PARTS[word]():
            print(f"{row.name}: {row.measured}", flush=True)
            verdict = "" if row.met is None else f"{row.target}: {['MISSED', 'met'][row.met]}"
            table.add_row(row.name, row.measured, verdict)
    Console(width=140).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
