"""`ottla consumer-perf-test`: how fast records are read. As kafka-consumer-perf-test.sh.

It stops at the very count that was asked for, where Kafka's tool takes the rest of a batch, too.
Source: ConsumerPerformance, Kafka 4.3.
"""

import random
import time as clock
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ottla.cli import librdkafka
from ottla.cli.closing import close
from ottla.cli.errors import CommandError, UsageError
from ottla.cli.options import BootstrapServer, bootstrap_or_local, check_number, warn_deprecated
from ottla.cli.perf_client import STATISTICS_MS, Statistics
from ottla.cli.perf_text import DateFormat, consumed_columns, consumer_heading
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
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="NAME", help="What to read.")
    ] = None,
    include: Annotated[
        str | None, typer.Option("--include", metavar="REGEX", help="All topics that match.")
    ] = None,
    num_records: Annotated[
        int | None, typer.Option("--num-records", metavar="N", help="How many records to read.")
    ] = None,
    messages: Annotated[
        int | None, typer.Option("--messages", metavar="N", help="Former --num-records.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="NAME", help="As a member of it.  [default: a new one]"),
    ] = None,
    from_latest: Annotated[
        bool, typer.Option("--from-latest", help="Begin at the end, not at the first record.")
    ] = False,
    fetch_size: Annotated[
        int, typer.Option("--fetch-size", metavar="BYTES", help="max.partition.fetch.bytes")
    ] = 1024 * 1024,
    socket_buffer_size: Annotated[
        int, typer.Option("--socket-buffer-size", metavar="BYTES", help="receive.buffer.bytes")
    ] = 2 * 1024 * 1024,
    timeout: Annotated[
        int, typer.Option("--timeout", metavar="[MS]", help="End when none comes for so long.")
    ] = 10_000,
    command_property: Annotated[
        list[str], typer.Option("--command-property", metavar="K=V", help="For the consumer.")
    ] = [],  # noqa: B006 - typer copies it
    command_config: Annotated[
        str | None, typer.Option("--command-config", metavar="FILE", help="Likewise, in a file.")
    ] = None,
    consumer_config: Annotated[
        str | None,
        typer.Option("--consumer.config", metavar="FILE", help="Former --command-config."),
    ] = None,
    reporting_interval: Annotated[
        int, typer.Option("--reporting-interval", metavar="MS", help="Between two detailed lines.")
    ] = 5_000,
    show_detailed_stats: Annotated[
        bool, typer.Option("--show-detailed-stats", help="A line for each interval instead.")
    ] = False,
    hide_header: Annotated[bool, typer.Option("--hide-header", help="Print no heading.")] = False,
    date_format: Annotated[
        str, typer.Option("--date-format", metavar="PATTERN", help="Java's, as for years.")
    ] = "yyyy-MM-dd HH:mm:ss:SSS",
    print_metrics: Annotated[
        bool, typer.Option("--print-metrics", help="Print the client's statistics at the end.")
    ] = False,
) -> int:
    """Read records, and print how many came a second."""
    if (topic is None) == (include is None):
        raise UsageError("Exactly one of the following arguments is required: [topic], [include]")
    if (num_records is None) == (messages is None):
        raise UsageError(
            "Exactly one of the following arguments is required: [messages], [num-records]"
        )
    if messages is not None:
        warn_deprecated("--messages", "--num-records")
    if topic is not None:
        librdkafka.check_topic(topic)
    count = messages if num_records is None else num_records
    assert count is not None
    check_number("--num-records", count, 1, COUNT_MAX)
    check_number("--fetch-size", fetch_size, 1)
    check_number("--socket-buffer-size", socket_buffer_size, 1)
    check_number("--timeout", timeout, 0)
    check_number("--reporting-interval", reporting_interval, 1)
    dates = DateFormat(date_format)
    in_file, extra = librdkafka.given_properties(
        "consumer", command_config, command_property, consumer_config, []
    )
    given = in_file | extra
    statistics = Statistics()
    bootstrap = bootstrap_or_local(bootstrap_server or given.get("bootstrap.servers"))
    config = {
        "client.id": "perf-consumer-client",
        **librdkafka.translate(given),
        "group.id": group or given.get("group.id") or f"perf-consumer-{random.randrange(100_000)}",
        "auto.offset.reset": "latest" if from_latest else "earliest",
        "max.partition.fetch.bytes": fetch_size,
        "socket.receive.buffer.bytes": socket_buffer_size,
        "check.crcs": "false",
        **librdkafka.base_config(bootstrap),
        **(statistics.settings() if print_metrics else {}),
    }
    run = _Run(count, timeout, dates, reporting_interval if show_detailed_stats else None)
    if not hide_header:
        print(consumer_heading(detailed=show_detailed_stats), flush=True)
    run.read(config, topic, include)
    if not show_detailed_stats:
        print(run.summary())
    if print_metrics:
        print("\n".join(statistics.lines()))
    return 0


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
        """Read until enough came or none for too long. Raises: CommandError."""
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
        """Return the whole test's line."""
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
        told = self.dates.text(self.wall_ms + now_ms - self.began_ms)
        print(f"{told}, 0, {columns}", flush=True)
        self.shown = (now_ms, self.size, self.count, self.rebalance_ms)

    def _joined(self) -> None:
        if self.joining_ms is not None:
            self.rebalance_ms += _now_ms() - self.joining_ms
            self.joining_ms = None

    def _left(self) -> None:
        self.joining_ms = _now_ms()


def _now_ms() -> float:
    return clock.monotonic() * 1000
