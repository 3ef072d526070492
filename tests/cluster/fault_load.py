"""Numbered records that an idempotent producer writes all the time, and a consumer reading along.

The clients are librdkafka with its defaults, but for what idempotence needs, and what tells of
faults. The producer has one request in flight at a time: of several, one that is refused has
librdkafka take another producer epoch, and send again what other partitions have stored already
(librdkafka #4953; `docs/not-done.md`).

Each partition has its own numbers, 0, 1, 2 and so on, so that a lost record is a missing number, a
duplicate one that comes twice, and a record out of order one that comes late.
"""

import threading
import time
from contextlib import suppress
from itertools import pairwise
from typing import Any

from confluent_kafka import Producer

from ottla.testing import Cluster, ClusterError

from . import stored
from .background import Background
from .clients import eventually
from .fault_reader import DRAIN_SECONDS, Reader

PAUSE_SECONDS = 0.02
"""Between two records of one partition."""

BATCHES_TOLD, LINES_TOLD = 12, 40
"""Of each replica and of each node's log, once something has gone wrong."""

FLUSH_SECONDS = 60.0
"""How long the last records may take, with the cluster whole again. librdkafka would go on for
300 s before it tells its user of a failure (delivery.timeout.ms): then a test's own time is over,
and nobody hears which records were not delivered."""


class Load(Background):
    """Writers and readers of one topic. Use it in a `with` block; `check` after it.

    Fields: `acknowledged`: by partition, when each record was acknowledged (`time.monotonic`).
            `offsets`: by partition, where. `errors`: what a user would have been told of.
            `batch_bytes`: of the largest batch, if more than one record is in it.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partitions: int,
        value_bytes: int = 0,
        *,
        batch_bytes: int = 1_000_000,
    ) -> None:
        self.partitions = partitions
        self.topic = topic
        self._value_bytes = value_bytes
        self._batch_bytes = batch_bytes
        self._cluster = cluster
        super().__init__((self._write, self._read), patience=FLUSH_SECONDS + DRAIN_SECONDS)
        self._written = threading.Event()
        self._is_told = False
        self.sent = [0] * partitions
        self.acknowledged: list[list[float]] = [[] for _ in range(partitions)]
        self.offsets: list[list[int]] = [[] for _ in range(partitions)]
        self._reader: Reader | None = None

    @property
    def seen(self) -> list[list[int]]:
        """What the consumer read, by partition."""
        return [[] for _ in range(self.partitions)] if self._reader is None else self._reader.seen

    def begun(self) -> None:
        """Wait until it goes."""
        self.wait_progress()

    def wait_progress(self, within: float = 60.0) -> None:
        """Wait until a record that is sent from now on is acknowledged, on each partition."""
        sent = list(self.sent)

        def behind() -> list[int]:
            self.check_errors()
            each = range(self.partitions)
            return [p for p in each if len(self.acknowledged[p]) <= sent[p]]

        eventually(behind, lambda found: not found, within=within, what="new acknowledgements")

    def check_errors(self) -> None:
        """Check that nothing went wrong so far; else tell what the replicas and nodes have."""
        if self.errors and not self._is_told:
            self._is_told = True
            with suppress(OSError, ClusterError):  # The cluster may be gone already.
                self.errors += self._evidence()
        super().check_errors()

    def _evidence(self) -> list[str]:
        nodes = [plan.id for plan in self._cluster.brokers]
        lines: list[str] = []
        for partition in range(self.partitions):
            for node in nodes:
                last = stored.last_batches(self._cluster, self.topic, partition, node)
                lines += [f"partition {partition} on node {node}, the last batches:"]
                lines += [f"  {each}" for each in last[-BATCHES_TOLD:]]
        for node in nodes:
            lines += [f"node {node} is {self._cluster.state(node)}, and said:"]
            lines += self._cluster.logs(node).splitlines()[-LINES_TOLD:]
        return lines

    def longest_gap(self, begin: float, end: float) -> float:
        """Return the longest time without an acknowledgement of one partition, in seconds."""
        gaps = [0.0]
        for times in self.acknowledged:
            inside = [begin, *(each for each in times if begin <= each <= end), end]
            gaps += [after - before for before, after in pairwise(inside)]
        return max(gaps)

    def check(self) -> None:
        """Check that all that was sent is there, once, in order, on every replica."""
        self.check_errors()
        self._cluster.wait_in_sync(self.topic)
        for partition in range(self.partitions):
            expected = list(range(self.sent[partition]))
            assert self.seen[partition] == expected, f"the consumer of {partition}"
            assert len(self.acknowledged[partition]) == len(expected)
            # Nothing but the records is in the log, so a number is an offset.
            notified = sorted(self.offsets[partition])
            assert notified == sorted(set(expected).intersection(notified))
            for node in self._cluster.partitions(self.topic)[partition].replicas:
                self._check_replica(partition, node, expected)

    def _check_replica(self, partition: int, node: int, expected: list[int]) -> None:
        def values() -> list[int]:
            records = stored.records(self._cluster, self.topic, partition, node)
            return [int(each.value or b"-1") for each in records]

        # A follower is in sync also while it is a moment behind.
        found = eventually(values, lambda found: len(found) >= len(expected), what="the replica")
        assert found == expected, f"partition {partition} on node {node}"

    def _write(self) -> None:
        try:
            self._produce()
        finally:
            self._written.set()

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "enable.idempotence": True,
                "max.in.flight": 1,
                "batch.size": self._batch_bytes,
                "log_level": 0,
                "error_cb": self._noticed,
            }
        )
        while not self._stop.is_set():
            for partition in range(self.partitions):
                with suppress(BufferError):
                    producer.produce(
                        self.topic,
                        # Blanks do not change a number.
                        value=(b"%d" % self.sent[partition]).ljust(self._value_bytes),
                        partition=partition,
                        on_delivery=self._delivered,
                    )
                    self.sent[partition] += 1
            producer.poll(PAUSE_SECONDS)
        left = producer.flush(FLUSH_SECONDS)
        if left:
            acknowledged = [len(each) for each in self.acknowledged]
            self.errors.append(
                f"{left} records are not delivered {FLUSH_SECONDS:g} s after the last was sent;"
                f" by partition {acknowledged} of {self.sent} are"
            )

    def _noticed(self, error: Any) -> None:
        """Hear what librdkafka tells its user; that it cannot reach a broker is no failure."""
        if error.fatal():
            self.errors.append(f"fatal: {error}")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(f"record {message.value()!r}: {error}")
            return
        self.acknowledged[message.partition()].append(time.monotonic())
        # librdkafka learns from a later answer that a batch is there, not where.
        if message.offset() is not None:
            self.offsets[message.partition()].append(message.offset())

    def _read(self) -> None:
        self._reader = Reader(
            self._cluster.bootstrap,
            self.topic,
            self.partitions,
            errors=self.errors,
            on_error=self._noticed,
        )
        while not self._stop.is_set():
            self._reader.poll()
        self._reader.drain(self.acknowledged, self._written.is_set)
