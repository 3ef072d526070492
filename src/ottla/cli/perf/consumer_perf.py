"""`ottla consumer-perf-test`: measures consumer throughput. As kafka-consumer-perf-test.sh.

It stops at exactly --num-records. Kafka's tool also counts the rest of the last batch.
Source: ConsumerPerformance, Kafka 4.3.
"""

import random
import time as clock
from dataclasses import dataclass
from typing import Any

from ottla.cli.console import librdkafka
from ottla.cli.console.closing import close
from ottla.cli.errors import CommandError, UsageError
from ottla.cli.options import BootstrapServer, bootstrap_or_local, check_number, warn_deprecated
from ottla.cli.perf import consumer_perf_options as opt
from ottla.cli.perf.perf_client import STATISTICS_MS, Statistics
from ottla.cli.perf.perf_text import DateFormat, consumed_columns, consumer_heading
from ottla.cli.typing_app import examples, new_app

app = new_app()

OPTIONAL_VALUES = {"--timeout": "10000"}

EPILOG = examples(
    "ottla consumer-perf-test --bootstrap-server localhost:9092 --topic t --num-records 100000",
    "ottla consumer-perf-test --bootstrap-server localhost:9092 --topic t --num-records 100000 \\",
    "    --show-detailed-stats --reporting-interval 1000",
)

COUNT_MAX = 2**63 - 1
BATCH = 500
POLL_SECONDS = 0.1
FIND_SECONDS = 15.0


@app.command("consumer-perf-test", epilog=EPILOG)
def consumer_perf_test(
    bootstrap_server: BootstrapServer = None,
    topic: opt.Topic = None,
    include: opt.Include = None,
    num_records: opt.NumRecords = None,
    messages: opt.Messages = None,
    group: opt.Group = None,
    from_latest: opt.FromLatest = False,
    fetch_size: opt.FetchSize = 1024 * 1024,
    socket_buffer_size: opt.SocketBufferSize = 2 * 1024 * 1024,
    timeout: opt.Timeout = 10_000,
    command_property: opt.CommandProperty = [],  # noqa: B006
    command_config: opt.CommandConfig = None,
    consumer_config: opt.ConsumerConfig = None,
    reporting_interval: opt.ReportingInterval = 5_000,
    show_detailed_stats: opt.ShowDetailedStats = False,
    hide_header: opt.HideHeader = False,
    date_format: opt.DateFormat = "yyyy-MM-dd HH:mm:ss:SSS",
    print_metrics: opt.PrintMetrics = False,
) -> int:
    """Read records and print the throughput."""
    count = record_count(topic, include, num_records, messages)
    check_number("--fetch-size", fetch_size, 1)
    check_number("--socket-buffer-size", socket_buffer_size, 1)
    check_number("--timeout", timeout, 0)
    check_number("--reporting-interval", reporting_interval, 1)
    dates = DateFormat(date_format)
    in_file, extra = librdkafka.given_properties(
        "consumer", command_config, command_property, consumer_config, []
    )
    given = in_file | extra
    statistics = Statistics() if print_metrics else None
    bootstrap = bootstrap_or_local(bootstrap_server or given.get("bootstrap.servers"))
    name = group or given.get("group.id") or f"perf-consumer-{random.randrange(100_000)}"
    config = {
        "client.id": "perf-consumer-client",
        **librdkafka.translate(given),
        "group.id": name,
        "auto.offset.reset": "latest" if from_latest else "earliest",
        "max.partition.fetch.bytes": fetch_size,
        "socket.receive.buffer.bytes": socket_buffer_size,
        "check.crcs": "false",
        **librdkafka.base_config(bootstrap),
        **({} if statistics is None else statistics.settings()),
    }
    run = _Run(count, timeout, dates, reporting_interval if show_detailed_stats else None)
    if not hide_header:
        print(consumer_heading(detailed=show_detailed_stats), flush=True)
    run.read(config, topic, include)
    if not show_detailed_stats:
        print(run.summary())
    if statistics is not None:
        print("\n".join(statistics.lines()))
    return 0


def record_count(
    topic: str | None, include: str | None, num_records: int | None, messages: int | None
) -> int:
    """Return how many records to read. Raises: UsageError where the options do not fit."""
    if (topic is None) == (include is None):
        raise UsageError("Exactly one of the following arguments is required: [topic], [include]")
    if topic is not None:
        librdkafka.check_topic(topic)
    if messages is not None and num_records is None:
        warn_deprecated("--messages", "--num-records")
        num_records = messages
    elif messages is not None or num_records is None:
        raise UsageError(
            "Exactly one of the following arguments is required: [messages], [num-records]"
        )
    check_number("--num-records", num_records, 1, COUNT_MAX)
    return num_records


@dataclass(slots=True)
class _Run:
    """One test. Times are of the monotonic clock; `wall_ms` is when it began."""

    wanted: int
    timeout_ms: int
    dates: DateFormat
    interval_ms: int | None
    count: int = 0
    size: int = 0
    began_ms: float = 0.0
    ended_ms: float = 0.0
    wall_ms: float = 0.0
    rebalance_ms: float = 0.0
    joining_ms: float | None = None
    shown: tuple[float, int, int, float] = (0.0, 0, 0, 0.0)
    """At the last detailed line: time, bytes, records and time in rebalances."""

    def read(self, config: dict[str, Any], topic: str | None, include: str | None) -> None:
        """Read until the count or the timeout is reached. Raises: CommandError."""
        from confluent_kafka import Consumer, KafkaException

        consumer = librdkafka.make(Consumer, config)
        try:
            librdkafka.find_broker(consumer, topic, config, FIND_SECONDS)
            self.began_ms = self.joining_ms = _now_ms()
            self.wall_ms = clock.time() * 1000
            self.shown = (self.began_ms, 0, 0, 0.0)
            consumer.subscribe(
                [f"^({include})$"] if topic is None else [topic],
                on_assign=lambda *_: self._joined(),
                on_revoke=lambda *_: self._left(),
            )
            self._poll(consumer)
            self.ended_ms = _now_ms()
            if "stats_cb" in config:
                consumer.poll(2 * STATISTICS_MS / 1000)
        except KafkaException as error:
            raise CommandError(librdkafka.reason_of(error)) from None
        finally:
            close(consumer)

    def _poll(self, consumer: Any) -> None:
        last_ms = _now_ms()
        while self.count < self.wanted:
            found = consumer.consume(min(BATCH, self.wanted - self.count), timeout=POLL_SECONDS)
            for message in found:
                error = message.error()
                if error is not None:
                    raise CommandError(librdkafka.reason_of(error))
                self.count += 1
                self.size += len(message.key() or b"") + len(message.value() or b"")
            now_ms = _now_ms()
            if found:
                last_ms = now_ms
            self._report(now_ms)
            if not found and now_ms - last_ms > self.timeout_ms:
                print(
                    "WARNING: Exiting before consuming the expected number of records: timeout "
                    f"({self.timeout_ms} ms) exceeded. You can use the --timeout option to "
                    "increase the timeout.",
                    flush=True,
                )
                return

    def summary(self) -> str:
        """Return the summary line."""
        elapsed_ms = self.ended_ms - self.began_ms
        times = (self.dates.text(self.wall_ms), self.dates.text(self.wall_ms + elapsed_ms))
        columns = consumed_columns(
            self.size,
            self.count,
            elapsed_ms,
            self.rebalance_ms,
            totals=(self.size, self.count),
        )
        return ", ".join((*times, columns))

    def _report(self, now_ms: float) -> None:
        since_ms, size, count, rebalance_ms = self.shown
        if self.interval_ms is None or now_ms - since_ms < self.interval_ms:
            return
        columns = consumed_columns(
            self.size - size,
            self.count - count,
            now_ms - since_ms,
            self.rebalance_ms - rebalance_ms,
            totals=(self.size, self.count),
        )
        time_text = self.dates.text(self.wall_ms + now_ms - self.began_ms)
        print(f"{time_text}, 0, {columns}", flush=True)
        self.shown = (now_ms, self.size, self.count, self.rebalance_ms)

    def _joined(self) -> None:
        if self.joining_ms is not None:
            self.rebalance_ms += _now_ms() - self.joining_ms
            self.joining_ms = None

    def _left(self) -> None:
        self.joining_ms = _now_ms()


def _now_ms() -> float:
    return clock.monotonic() * 1000
