"""How fast a follower that was away copies what it missed, beside the same bytes sent plainly.

Three brokers, each a process. While one is down a topic with three replicas is filled; then it
comes back, and its logs are watched until they are as long as the leader's. The comparison is one
process that sends the leader's files through a socket on this machine to another, which writes
them: what any follower would have to do at least.
"""

import multiprocessing
import os
import socket
import tempfile
import time
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from ottla.testing import Cluster
from waiting import until

AMOUNT_MB = 600
RECORD = os.urandom(1000)
BATCH_BYTES = 16_384
"""What the Java client sends at most by default: many small batches are the hard case."""
TARGET_MB_S = 100.0
CHUNK_BYTES = 1 << 20
POLL_S = 0.002

BROKERS = (1, 2, 3)


def fill(bootstrap: str, topic: str, partitions: int, amount_mb: int) -> None:
    """Produce so much in batches of `BATCH_BYTES`."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": 1,
            "batch.size": BATCH_BYTES,
            "linger.ms": 50,
            "queue.buffering.max.kbytes": 65_536,
            "log_level": 0,
        }
    )
    for number in range(amount_mb * 1000):
        while True:
            try:
                producer.produce(topic, RECORD, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    assert producer.flush(120) == 0


def segments(cluster: Cluster, node: int, topic: str) -> list[Path]:
    """Return the log files that a broker has of a topic."""
    return sorted(cluster.data_dir(node).glob(f"{topic}-*/*.log"))


def size(files: list[Path]) -> int:
    """Return how many bytes the files hold."""
    return sum(each.stat().st_size for each in files)


def plain_copy_s(files: list[Path], folder: Path) -> float:
    """Return the seconds that it takes to send the files through a socket and write them."""
    listener = socket.create_server(("127.0.0.1", 0))
    sender = multiprocessing.Process(target=send, args=(listener.getsockname()[1], files))
    sender.start()
    peer, _ = listener.accept()
    begun = time.perf_counter()
    buffer = memoryview(bytearray(CHUNK_BYTES))
    with peer, (folder / "copy").open("wb", buffering=0) as target:
        while count := peer.recv_into(buffer):
            target.write(buffer[:count])
    elapsed = time.perf_counter() - begun
    sender.join()
    (folder / "copy").unlink()
    return elapsed


def send(port: int, files: list[Path]) -> None:
    """Send files to a port of this machine."""
    with socket.create_connection(("127.0.0.1", port)) as peer:
        for each in files:
            with each.open("rb") as file:
                peer.sendfile(file)


def catch_up(cluster: Cluster, partitions: int, table: Table) -> None:
    """Fill a topic while a broker is down, bring it back, and measure."""
    topic = f"catch-up-{partitions}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(30)
    cluster.wait_in_sync(topic)
    cluster.kill(3)
    while any(3 in each.isr for each in cluster.partitions(topic).values()):
        time.sleep(0.05)
    fill(cluster.bootstrap, topic, partitions, AMOUNT_MB)
    until(
        lambda: size(segments(cluster, 1, topic)) == size(segments(cluster, 2, topic)),
        every_s=POLL_S,
    )
    wanted = size(segments(cluster, 1, topic))
    cluster.start(3)
    began = until(lambda: size(segments(cluster, 3, topic)) > 0, every_s=POLL_S)
    process = psutil.Process(cluster.pid(3))
    cpu_before = sum(process.cpu_times()[:2])
    ended = until(lambda: size(segments(cluster, 3, topic)) >= wanted, every_s=POLL_S)
    cpu_s = sum(process.cpu_times()[:2]) - cpu_before
    with tempfile.TemporaryDirectory(dir=cluster.data_dir()) as folder:
        plain_s = plain_copy_s(segments(cluster, 1, topic), Path(folder))
    amount_mb = wanted / 1e6
    rate, plain = amount_mb / (ended - began), amount_mb / plain_s
    table.add_row(
        f"{partitions}",
        f"{amount_mb:.0f}",
        f"{rate:.0f}",
        f"{plain:.0f}",
        f"{rate / plain:.2f}",
        f"{1000 * cpu_s / amount_mb:.2f}",
        f"over {TARGET_MB_S:g} MB/s: {'met' if rate > TARGET_MB_S else 'MISSED'}",
    )
    admin.delete_topics([topic])[topic].result(30)


def main(console: Console) -> None:
    """Run and print."""
    table = Table(title=f"follower catch-up, batches of {BATCH_BYTES} bytes")
    for heading in ("partitions", "MB", "MB/s", "plain copy MB/s", "ratio", "CPU ms/MB", "target"):
        table.add_column(heading, justify="right")
    config = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}
    with Cluster(brokers=3, controllers=1, config=config) as cluster:
        for partitions in (1, 6):
            catch_up(cluster, partitions, table)
    console.print(table)


if __name__ == "__main__":
    main(Console(width=140))
