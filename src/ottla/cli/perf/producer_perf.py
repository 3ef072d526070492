"""`ottla producer-perf-test`: measures producer throughput and latency.

As kafka-producer-perf-test.sh, over librdkafka: Python's loop limits throughput to some hundred
thousand records a second. Source: ProducerPerformance, Kafka 4.3.
"""

import random
import re
import sys
import time as clock
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.cli.console import librdkafka
from ottla.cli.errors import CommandError, UsageError
from ottla.cli.options import (
    BootstrapServer,
    bootstrap_or_local,
    check_number,
    check_seconds,
)
from ottla.cli.perf import producer_perf_options as opt
from ottla.cli.perf.perf_client import STATISTICS_MS, Statistics
from ottla.cli.perf.perf_text import Sent, Window
from ottla.cli.typing_app import examples, new_app

app = new_app()

MANY_VALUES = ("--producer-props", "--command-property")

EPILOG = examples(
    "ottla producer-perf-test --bootstrap-server localhost:9092 --topic t --num-records 100000 \\",
    "    --record-size 100 --throughput -1",
    "ottla producer-perf-test --bootstrap-server localhost:9092 --topic t --num-records 100000 \\",
    "    --payload-file lines.txt --throughput 5000 --command-property acks=1 linger.ms=10",
)

POOL_BYTES = 1 << 20
COUNT_MAX = 2**63 - 1
NAP_SECONDS = 0.05

Payload = Callable[[int], bytes]
"""From the record's number, from 0, to its value."""


@app.command("producer-perf-test", epilog=EPILOG)
def producer_perf_test(
    topic: opt.Topic,
    num_records: opt.NumRecords,
    throughput: opt.Throughput,
    bootstrap_server: BootstrapServer = None,
    record_size: opt.RecordSize = None,
    payload_file: opt.PayloadFile = None,
    payload_delimiter: opt.PayloadDelimiter = "\\n",
    payload_monotonic: opt.PayloadMonotonic = False,
    command_property: opt.CommandProperty = [],  # noqa: B006
    command_config: opt.CommandConfig = None,
    producer_props: opt.ProducerProps = [],  # noqa: B006
    producer_config: opt.ProducerConfig = None,
    print_metrics: opt.PrintMetrics = False,
    transactional_id: opt.TransactionalId = None,
    transaction_duration_ms: opt.TransactionDurationMs = None,
    warmup_records: opt.WarmupRecords = 0,
    reporting_interval: opt.ReportingInterval = 5_000,
    timeout: opt.Timeout = 15.0,
) -> int:
    """Send records and print throughput and latency."""
    librdkafka.check_topic(topic)
    check_seconds(timeout)
    check_numbers(num_records, record_size, warmup_records, reporting_interval, throughput)
    if transactional_id is not None or transaction_duration_ms is not None:
        raise CommandError("transactions are not supported yet")
    if sum((record_size is not None, payload_file is not None, payload_monotonic)) != 1:
        raise UsageError(
            "expected exactly one of --record-size, --payload-file and --payload-monotonic"
        )
    in_file, extra = librdkafka.given_properties(
        "producer",
        command_config,
        command_property,
        producer_config,
        producer_props,
        former_name="--producer-props",
    )
    given = in_file | extra
    bootstrap = bootstrap_or_local(bootstrap_server or given.get("bootstrap.servers"))
    statistics = Statistics() if print_metrics else None
    config = producer_settings(bootstrap, given, statistics)
    payload = choose_payload(record_size, payload_file, payload_delimiter)
    run = _Run(topic, num_records, warmup_records, reporting_interval)
    failed = run.send(config, payload, throughput, timeout)
    print("\n".join(run.lines()))
    if statistics is not None:
        print("\n".join(statistics.lines()))
    if failed:
        raise CommandError(f"{failed} of {num_records} records were not sent")
    return 0


def check_numbers(
    num_records: int,
    record_size: int | None,
    warmup_records: int,
    reporting_interval: int,
    throughput: float,
) -> None:
    """Raise UsageError where a number is out of its range."""
    check_number("--num-records", num_records, 1, COUNT_MAX)
    check_number("--record-size", record_size, 1)
    check_number("--reporting-interval", reporting_interval, 1)
    check_number("--warmup-records", warmup_records, 0, num_records - 1)
    if throughput == 0 or throughput != throughput:
        raise UsageError(f"--throughput {throughput:g}: expected records a second, or -1")


def producer_settings(
    bootstrap: str, given: dict[str, str], statistics: Statistics | None
) -> dict[str, Any]:
    """Return the producer's configuration."""
    return {
        "client.id": "perf-producer-client",
        # The Java producer's partitioner: a key goes to the same partition from any client.
        "partitioner": "murmur2_random",
        **librdkafka.translate(given),
        **librdkafka.base_config(bootstrap),
        **({} if statistics is None else statistics.settings()),
    }


def choose_payload(size: int | None, file: Path | None, delimiter: str) -> Payload:
    """Return the payloads: random letters, parts of a file, or record numbers."""
    if file is not None:
        return of_file(file, delimiter)
    return _number if size is None else of_letters(size)


def _number(number: int) -> bytes:
    return str(number).encode()


def of_letters(size: int) -> Payload:
    """Return payloads of random capital letters, the same in each run."""
    dice = random.Random(0)
    pool = bytes(dice.choices(range(65, 91), k=max(POOL_BYTES, 2 * size)))
    last = len(pool) - size

    def payload(number: int) -> bytes:
        start = dice.randrange(last)
        return pool[start : start + size]

    return payload


def of_file(path: Path, delimiter: str) -> Payload:
    """Return payloads that are random parts of a text file. Raises: CommandError, UsageError."""
    print(f"Reading payloads from: {path.absolute()}")
    try:
        text = path.read_text(encoding="utf-8")
        parts = re.split(delimiter, text)
    except OSError as error:
        raise CommandError(f"{path}: {(error.strerror or 'unreadable').lower()}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{path}: expected text in UTF-8") from None
    except re.error as error:
        raise UsageError(f"--payload-delimiter {delimiter}: {error}") from None
    while parts and not parts[-1]:
        parts.pop()
    if not parts:
        raise CommandError(f"{path}: the file is empty: expected payloads")
    print(f"Number of records read: {len(parts)}", flush=True)
    lines = [part.encode() for part in parts]
    dice = random.Random(0)
    return lambda number: lines[dice.randrange(len(lines))]


@dataclass(slots=True)
class _Run:
    """One test: records sent and acknowledged, and the interval of reports."""

    topic: str
    count: int
    warmup: int
    interval_ms: int
    sent: Sent = None  # type: ignore[assignment]
    steady: Sent | None = None
    window: Window = None  # type: ignore[assignment]
    failed: int = 0
    ended_ms: float = 0.0

    def send(
        self, config: dict[str, Any], payload: Payload, throughput: float, timeout: float
    ) -> int:
        """Send all records; return how many failed. Raises: CommandError without a broker."""
        from confluent_kafka import KafkaException, Producer

        producer = librdkafka.make(Producer, config)
        librdkafka.find_broker(producer, self.topic, config, timeout)
        if self.warmup:
            print(
                f"Warmup first {self.warmup} records. Steady state results will print after the "
                "complete test summary.",
                flush=True,
            )
        began_ms = _now_ms()
        self.sent = Sent(began_ms, self.count)
        self.window = Window(began_ms)
        try:
            for number in range(self.count):
                if throughput > 0:
                    self._wait(producer, began_ms / 1000 + number / throughput)
                if self.warmup and number == self.warmup:
                    print("In steady state.", flush=True)
                    self.steady = Sent(_now_ms(), self.count - number, "steady state ")
                is_steady = self.steady is not None
                self._produce(producer, payload(number), is_steady)
                self._report()
        except KafkaException as error:
            raise CommandError(librdkafka.reason_of(error)) from None
        finally:
            producer.flush()
        self.ended_ms = _now_ms()
        if "stats_cb" in config:
            producer.poll(2 * STATISTICS_MS / 1000)
        return self.failed

    def lines(self) -> list[str]:
        """Return the summary; with a warm-up also that of the steady state."""
        return [each.line(self.ended_ms) for each in (self.sent, self.steady) if each is not None]

    def _wait(self, producer: Any, due_s: float) -> None:
        while (left_s := due_s - _now_ms() / 1000) > 0:
            producer.poll(min(left_s, NAP_SECONDS))
            self._report()

    def _produce(self, producer: Any, value: bytes, is_steady: bool) -> None:
        def delivered(error: Any, message: Any) -> None:
            self._acknowledged(error, message, len(value), is_steady)

        while True:
            try:
                producer.produce(self.topic, value, on_delivery=delivered)
            except BufferError:  # The queue is full: let some of it be sent.
                producer.poll(NAP_SECONDS)
                self._report()
                continue
            producer.poll(0)
            return

    def _acknowledged(self, error: Any, message: Any, size: int, is_steady: bool) -> None:
        if error is not None:
            self.failed += 1
            if self.failed == 1:
                print(f"a record was not sent: {librdkafka.reason_of(error)}", file=sys.stderr)
            return
        latency_ms = message.latency() * 1000
        self.sent.acknowledged(size, latency_ms)
        if is_steady and self.steady is not None:
            self.steady.acknowledged(size, latency_ms)
        window = self.window
        window.count += 1
        window.size += size
        window.latency_ms += latency_ms
        window.latency_ms_max = max(window.latency_ms_max, latency_ms)

    def _report(self) -> None:
        now_ms = _now_ms()
        if now_ms - self.window.began_ms >= self.interval_ms:
            print(self.window.line(now_ms), flush=True)
            self.window = Window(now_ms)


def _now_ms() -> float:
    return clock.monotonic() * 1000
