"""A producer and a watcher that go on while nodes are stopped, and what must be true afterwards."""

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from confluent_kafka import Producer

from ottla.base.errors import Error
from ottla.client.connection import Connection
from ottla.client.errors import NoSuchVersionError
from ottla.testing import Cluster
from ottla.wire.errors import WireError
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

from .background import Background
from .clients import Closing, eventually
from .confluent_client import consumer

PAUSE_SECONDS = 0.008
"""Between two messages: a hundred a second, so that acknowledgements never stop for long."""

LATEST = -1
ASK_SECONDS = 5.0
FLUSH_SECONDS = 60.0
"""How long the last messages may take, with the cluster whole again."""


class Workload(Background):
    """Writes numbered messages to all partitions of a topic, and watches its high watermarks.

    `config`: more properties of the producer, or other ones than the usual.
    Order: use it in a `with` block around the disturbance; `check` after the block, with the
           cluster whole again.
    """

    def __init__(
        self, cluster: Cluster, topic: str, partitions: int, **config: str | int | bool
    ) -> None:
        self._cluster = cluster
        self._config = {key.replace("_", "."): value for key, value in config.items()}
        self._topic = topic
        self._partitions = partitions
        self._addresses = [cluster.address(node.id) for node in cluster.brokers]
        super().__init__((self._write, self._watch), patience=FLUSH_SECONDS + 30)
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """Value by partition and offset."""
        self.marks: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
        """High watermarks by partition, each of the newest leader epoch heard of until then."""
        self._epochs = dict.fromkeys(range(partitions), -1)

    def begun(self) -> None:
        """Wait until it goes."""
        self.wait_progress()

    def ending(self) -> None:
        """Wait until it goes again."""
        self.wait_progress()

    def wait_progress(self, partitions: Callable[[int], bool] = lambda _: True) -> None:
        """Wait until each partition (of those named) has a new acknowledgement."""
        wanted = {each for each in range(self._partitions) if partitions(each)}
        before = len(self.acknowledged)

        def missing() -> set[int]:
            self.check_errors()
            fresh = list(self.acknowledged)[before:]
            return wanted - {partition for partition, _ in fresh}

        eventually(missing, lambda found: not found, within=90, what="new acknowledgements")

    def check(self) -> None:
        """Check that nothing acknowledged is lost or changed, and no watermark went back."""
        self.check_errors()
        for partition in range(self._partitions):
            acknowledged = {
                offset: value
                for (where, offset), value in self.acknowledged.items()
                if where == partition
            }
            stored = self._read(partition, max(acknowledged) + 1)
            lost = {
                offset: value for offset, value in acknowledged.items() if stored[offset] != value
            }
            assert not lost, f"partition {partition} lost {len(lost)} acknowledged records"
            marks = self.marks[partition]
            assert marks == sorted(marks), f"partition {partition}: the watermark went back"
            assert marks, f"partition {partition}: nobody saw a watermark"

    def check_once(self) -> None:
        """Check that no message is there twice: what an idempotent producer is promised."""
        for partition in range(self._partitions):
            count = max(offset for where, offset in self.acknowledged if where == partition) + 1
            stored = self._read(partition, count)
            assert len(set(stored)) == len(stored), f"partition {partition} has records twice"

    def _read(self, partition: int, count: int) -> list[bytes | None]:
        values: list[bytes | None] = []
        with Closing(consumer(self._cluster.bootstrap)) as reader:
            reader.assign([(self._topic, partition)])
            deadline = time.monotonic() + 60
            while len(values) < count:
                assert time.monotonic() < deadline, f"read {len(values)} of {count} records"
                values += [each.value for each in reader.poll(0.5)]
        return values

    def _write(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "acks": "all",
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "socket.timeout.ms": 10_000,
                "log_level": 0,
                "error_cb": lambda error: None,
                **self._config,
            }
        )

        def delivered(error: object, message: Any) -> None:
            if error is not None:
                self.errors.append(str(error))
            else:
                self.acknowledged[message.partition(), message.offset()] = message.value()

        number = 0
        while not self._stop.is_set():
            with suppress(BufferError):
                producer.produce(
                    self._topic,
                    value=b"%d" % number,
                    partition=number % self._partitions,
                    on_delivery=delivered,
                )
                number += 1
            producer.poll(PAUSE_SECONDS)
        left = producer.flush(FLUSH_SECONDS)
        if left:
            self.errors.append(f"{left} messages are not delivered after {FLUSH_SECONDS:g} s")

    def _watch(self) -> None:
        connections: dict[str, Connection] = {}
        while not self._stop.is_set():
            for address in self._addresses:
                broker = connections.pop(address, None)
                with suppress(OSError, WireError, NoSuchVersionError), ExitStack() as stack:
                    if broker is None:
                        host, port = address.split(":")
                        broker = Connection(host, int(port), client_id="watch", timeout=ASK_SECONDS)
                    stack.callback(broker.close)
                    self._note(
                        broker.ask(self._question(), ListOffsetsResponse, timeout=ASK_SECONDS)
                    )
                    stack.pop_all()
                    connections[address] = broker
            self._stop.wait(0.05)
        for broker in connections.values():
            broker.close()

    def _question(self) -> ListOffsetsRequest:
        asked = tuple(
            ListOffsetsPartition(partition_index=each, timestamp=LATEST)
            for each in range(self._partitions)
        )
        topic = ListOffsetsTopic(name=self._topic, partitions=asked)
        return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,))

    def _note(self, answer: ListOffsetsResponse) -> None:
        for each in answer.topics[0].partitions:
            partition = each.partition_index
            # A leader that wakes up answers for its own epoch until it hears of the next one;
            # clients tell by the epoch that it is the past (KIP-320).
            if each.error_code == Error.NONE and each.leader_epoch >= self._epochs[partition]:
                self._epochs[partition] = each.leader_epoch
                self.marks[partition].append(each.offset)
