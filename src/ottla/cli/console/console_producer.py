"""`ottla console-producer`: sends lines of standard input. As kafka-console-producer.sh."""

import sys
from typing import Annotated, Any

import typer

from ottla.cli.console import librdkafka
from ottla.cli.console.line_reader import LineReader, line_reader
from ottla.cli.errors import CommandError, UsageError
from ottla.cli.options import (
    BootstrapServer,
    bootstrap_or_local,
    key_values,
    read_property_file,
)
from ottla.cli.typing_app import examples, new_app

app = new_app()

OPTIONAL_VALUES = {"--compression-codec": "gzip"}

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

EPILOG = examples(
    "ottla console-producer --bootstrap-server localhost:9092 --topic orders < lines.txt",
    "ottla console-producer --bootstrap-server localhost:9092 --topic orders \\",
    "    --property parse.key=true --property key.separator=:",
    "ottla console-producer --bootstrap-server localhost:9092 --topic orders \\",
    "    --compression-codec zstd --command-property enable.idempotence=true",
)

PROPERTY_HELP = (
    "How to parse lines: parse.key, key.separator, parse.headers, headers.delimiter, "
    "headers.separator, headers.key.separator, null.marker, ignore.error."
)

Topic = Annotated[str, typer.Option("--topic", metavar="NAME", help="The topic to write to.")]
Properties = Annotated[
    list[str], typer.Option("--property", "--reader-property", metavar="K=V", help=PROPERTY_HELP)
]
ReaderConfig = Annotated[
    str | None, typer.Option("--reader-config", metavar="FILE", help="The same, in a file.")
]
CommandProperties = Annotated[
    list[str], typer.Option("--command-property", metavar="K=V", help="A property of the producer.")
]
CommandConfig = Annotated[
    str | None, typer.Option("--command-config", metavar="FILE", help="The same, in a file.")
]
ProducerProperties = Annotated[
    list[str],
    typer.Option("--producer-property", metavar="K=V", help="Former --command-property."),
]
ProducerConfig = Annotated[
    str | None, typer.Option("--producer.config", metavar="FILE", help="Former --command-config.")
]
Codec = Annotated[
    str | None,
    typer.Option(
        "--compression-codec",
        metavar="[CODEC]",
        help="none, gzip, snappy, lz4 or zstd; without a value: gzip.",
    ),
]
Acks = Annotated[
    str | None,
    typer.Option(
        "--request-required-acks", metavar="0|1|-1|all", help="Which replicas acknowledge."
    ),
]
Sync = Annotated[bool, typer.Option("--sync", help="Wait for the acknowledgement of each record.")]
LingerMs = Annotated[
    int | None, typer.Option("--timeout", metavar="MS", help="linger.ms  [default: 1000]")
]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", metavar="BYTES", help="batch.size  [default: 16384]")
]
PartitionMemory = Annotated[
    int | None,
    typer.Option("--max-partition-memory-bytes", metavar="BYTES", help="Overrides --batch-size."),
]
Retries = Annotated[
    int | None, typer.Option("--message-send-max-retries", metavar="N", help="[default: 3]")
]
RetryBackoff = Annotated[
    int | None, typer.Option("--retry-backoff-ms", metavar="MS", help="[default: 100]")
]
RequestTimeout = Annotated[
    int | None, typer.Option("--request-timeout-ms", metavar="MS", help="[default: 1500]")
]
MetadataExpiry = Annotated[
    int | None, typer.Option("--metadata-expiry-ms", metavar="MS", help="[default: 300000]")
]
MaxBlock = Annotated[
    int, typer.Option("--max-block-ms", metavar="MS", help="How long to wait for brokers.")
]
MaxMemory = Annotated[
    int | None, typer.Option("--max-memory-bytes", metavar="BYTES", help="[default: 33554432]")
]
SocketBuffer = Annotated[
    int | None, typer.Option("--socket-buffer-size", metavar="BYTES", help="[default: 102400]")
]
ReaderClass = Annotated[str | None, typer.Option("--line-reader", metavar="CLASS", hidden=True)]


@app.command("console-producer", epilog=EPILOG)
def console_producer(
    topic: Topic,
    bootstrap_server: BootstrapServer = None,
    property_: Properties = [],  # noqa: B006 - typer copies it
    reader_config: ReaderConfig = None,
    command_property: CommandProperties = [],  # noqa: B006
    command_config: CommandConfig = None,
    producer_property: ProducerProperties = [],  # noqa: B006
    producer_config: ProducerConfig = None,
    compression_codec: Codec = None,
    request_required_acks: Acks = None,
    sync: Sync = False,
    timeout: LingerMs = None,
    batch_size: BatchSize = None,
    max_partition_memory_bytes: PartitionMemory = None,
    message_send_max_retries: Retries = None,
    retry_backoff_ms: RetryBackoff = None,
    request_timeout_ms: RequestTimeout = None,
    metadata_expiry_ms: MetadataExpiry = None,
    max_block_ms: MaxBlock = 60_000,
    max_memory_bytes: MaxMemory = None,
    socket_buffer_size: SocketBuffer = None,
    reader_class: ReaderClass = None,
) -> int:
    """Send each line of standard input as a record."""
    librdkafka.check_topic(topic)
    if reader_class is not None and not reader_class.endswith("LineMessageReader"):
        raise UsageError(f"--line-reader {reader_class}: Java classes cannot be loaded here")
    if compression_codec is not None and compression_codec not in CODECS:
        raise UsageError(
            f"--compression-codec {compression_codec}: expected one of {', '.join(CODECS)}"
        )
    reader = line_reader(read_property_file(reader_config) | key_values(property_, "--property"))
    in_file, extra = librdkafka.given_properties(
        "producer", command_config, command_property, producer_config, producer_property
    )
    given = in_file | extra
    settings = {
        "linger.ms": (timeout, 1000),
        "acks": (request_required_acks, "-1"),
        "request.timeout.ms": (request_timeout_ms, 1500),
        "retries": (message_send_max_retries, 3),
        "retry.backoff.ms": (retry_backoff_ms, 100),
        "socket.send.buffer.bytes": (socket_buffer_size, 102_400),
        "queue.buffering.max.kbytes": (_kilobytes(max_memory_bytes), 32_768),
        "batch.size": (max_partition_memory_bytes or batch_size, 16_384),
        "metadata.max.age.ms": (metadata_expiry_ms, 300_000),
        "compression.type": (compression_codec, "none"),
    }
    if max_block_ms < 1:
        raise UsageError(f"--max-block-ms {max_block_ms}: expected 1 or more")
    bootstrap = bootstrap_or_local(bootstrap_server)
    config = producer_settings(bootstrap, given, settings)
    return _send_lines(config, topic, reader, sync=sync, find_s=max_block_ms / 1000)


def producer_settings(
    bootstrap: str, given: dict[str, str], settings: dict[str, tuple[Any, Any]]
) -> dict[str, Any]:
    """Return the producer's configuration: options override properties, these override defaults."""
    config = {
        "client.id": "console-producer",
        # The Java producer's partitioner: a key goes to the same partition from any client.
        "partitioner": "murmur2_random",
        **{name: default for name, (_, default) in settings.items()},
        **librdkafka.translate(given),
        **{name: value for name, (value, _) in settings.items() if value is not None},
    }
    if str(config.get("enable.idempotence", "")).lower() == "true":
        # An idempotent producer requires acks=all and unlimited retries.
        for name in ("retries", "acks"):
            if name not in given and settings[name][0] is None:
                del config[name]
    return config | librdkafka.base_config(bootstrap)


def _kilobytes(count: int | None) -> int | None:
    return None if count is None else max(1, count // 1024)


def _send_lines(
    config: dict[str, Any], topic: str, reader: LineReader, *, sync: bool, find_s: float
) -> int:
    from confluent_kafka import KafkaException, Producer

    producer = librdkafka.make(Producer, config)
    librdkafka.find_broker(producer, topic, config, find_s)
    failures: list[int] = []
    is_typed = sys.stdin.isatty() and sys.stdout.isatty()
    number = 0
    try:
        while True:
            if is_typed:
                print(">", end="", flush=True)
            line = sys.stdin.buffer.readline()
            if not line:
                break
            number += 1
            record = reader.read(line.removesuffix(b"\n").removesuffix(b"\r"), number)
            try:
                _send(producer, topic, record, number, _report(number, failures))
            except KafkaException as error:
                reason = librdkafka.reason_of(error)
                raise CommandError(f"line {number} was not sent: {reason}") from None
            if sync:
                producer.flush()
    finally:
        producer.flush()
    return 1 if failures else 0


def _send(producer: Any, topic: str, record: Any, number: int, on_delivery: Any) -> None:
    while True:
        try:
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers) or None,
                on_delivery=on_delivery,
            )
        except BufferError:  # The queue is full: let some of it be sent.
            if not len(producer):
                raise CommandError(
                    f"line {number} was not sent: it is larger than --max-memory-bytes"
                ) from None
            producer.poll(0.1)
            continue
        producer.poll(0)
        return


def _report(number: int, failures: list[int]) -> Any:
    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(number)
            reason = librdkafka.reason_of(error)
            print(f"line {number} was not sent: {reason}", file=sys.stderr, flush=True)

    return delivered
