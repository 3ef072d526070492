"""One message at a time: produce, wait for the acknowledgement, again. Ottla beside the mock."""

import time

from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from servers import Server, mock_cluster, ottla_node
from throughput import new_topic

MESSAGES = 3000
TARGET_P99_MS = 1.0


def latencies_ms(server: Server) -> list[float]:
    """Return the sorted times from produce to acknowledgement."""
    settings = {"bootstrap.servers": server.bootstrap, "linger.ms": 0, "acks": 1, "log_level": 0}
    producer = Producer(settings)
    topic = new_topic(server)
    times: list[float] = []
    for _ in range(MESSAGES):
        begun = time.perf_counter()
        producer.produce(topic, b"x" * 100, partition=0)
        assert producer.flush(30) == 0
        times.append((time.perf_counter() - begun) * 1000)
    return sorted(times[MESSAGES // 10 :])  # The first tenth warms the connection up.


def main(console: Console) -> None:
    """Run and print."""
    table = Table(title="one message at a time, acks=1, milliseconds")
    for heading in ("", "p50", "p90", "p99", "target"):
        table.add_column(heading, justify="right")
    with ottla_node() as ottla, mock_cluster() as mock:
        for server in (ottla, mock):
            times = latencies_ms(server)
            p50, p90, p99 = (times[int(len(times) * part)] for part in (0.5, 0.9, 0.99))
            met = "met" if p99 < TARGET_P99_MS else "MISSED"
            target = f"p99 under {TARGET_P99_MS} ms: {met}" if server is ottla else ""
            table.add_row(server.name, f"{p50:.2f}", f"{p90:.2f}", f"{p99:.2f}", target)
    console.print(table)


if __name__ == "__main__":
    main(Console(width=140))
