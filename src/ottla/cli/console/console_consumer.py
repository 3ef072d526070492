"""`ottla console-consumer`: prints records. As kafka-console-consumer.sh."""

import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Annotated, Any

import typer

from ottla.cli.console import librdkafka
from ottla.cli.console.closing import close
from ottla.cli.console.record_text import RecordText, Shown, record_text
from ottla.cli.errors import INTERRUPTED, CommandError, UsageError, shortened, shown
from ottla.cli.options import (
    BootstrapServer,
    bootstrap_or_local,
    check_seconds,
    key_values,
    parse_number,
    read_property_file,
)
from ottla.cli.typing_app import examples, new_app

app = new_app()

EPILOG = examples(
    "ottla console-consumer --bootstrap-server localhost:9092 --topic orders --from-beginning",
    "ottla console-consumer --bootstrap-server localhost:9092 --topic orders --group billing \\",
    "    --property print.key=true --property print.timestamp=true",
    "ottla console-consumer --bootstrap-server localhost:9092 --topic orders --partition 0 \\",
    "    --offset 42 --max-messages 1",
)

FORMATTERS = ("DefaultMessageFormatter", "NoOpMessageFormatter")

PROPERTY_HELP = (
    "What to print: print.{timestamp,key,value,offset,partition,epoch,headers}=true, "
    "key.separator, line.separator, headers.separator, null.literal, "
    "{key,value,headers}.deserializer."
)

POLL_SECONDS = 0.5
BATCH = 500
OFFSET_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1

Topic = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="The topic to read.")]
Include = Annotated[
    str | None, typer.Option("--include", metavar="REGEX", help="Read all topics that match.")
]
Partition = Annotated[
    int | None, typer.Option("--partition", metavar="N", help="Read this partition alone.")
]
Offset = Annotated[
    str | None,
    typer.Option(
        "--offset",
        metavar="N|earliest|latest",
        help="Where to start in the partition.  [default: latest]",
    ),
]
FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", help="Start at the first record, not at the end.")
]
MaxMessages = Annotated[
    int | None, typer.Option("--max-messages", metavar="N", help="Exit after this many records.")
]
TimeoutMs = Annotated[
    int | None,
    typer.Option("--timeout-ms", metavar="MS", help="Exit when no record arrives for this long."),
]
Group = Annotated[
    str | None, typer.Option("--group", metavar="NAME", help="Read as a member of this group.")
]
Isolation = Annotated[
    str | None,
    typer.Option(
        "--isolation-level",
        metavar="LEVEL",
        help="read_committed or read_uncommitted.  [default: read_uncommitted]",
    ),
]
Properties = Annotated[
    list[str], typer.Option("--property", "--formatter-property", metavar="K=V", help=PROPERTY_HELP)
]
FormatterConfig = Annotated[
    str | None, typer.Option("--formatter-config", metavar="FILE", help="The same, in a file.")
]
CommandProperties = Annotated[
    list[str], typer.Option("--command-property", metavar="K=V", help="A property of the consumer.")
]
CommandConfig = Annotated[
    str | None, typer.Option("--command-config", metavar="FILE", help="The same, in a file.")
]
ConsumerProperties = Annotated[
    list[str],
    typer.Option("--consumer-property", metavar="K=V", help="Former --command-property."),
]
ConsumerConfig = Annotated[
    str | None, typer.Option("--consumer.config", metavar="FILE", help="Former --command-config.")
]
SkipOnError = Annotated[
    bool,
    typer.Option("--skip-message-on-error", help="Skip records that a deserializer cannot read."),
]
Formatter = Annotated[
    str | None,
    typer.Option("--formatter", metavar="CLASS", help="Default or NoOp."),
]
KeyDeserializer = Annotated[
    str | None, typer.Option("--key-deserializer", metavar="CLASS", help="One of Kafka's own.")
]
ValueDeserializer = Annotated[
    str | None, typer.Option("--value-deserializer", metavar="CLASS", help="One of Kafka's own.")
]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for brokers.")
]


@app.command("console-consumer", epilog=EPILOG)
def console_consumer(
    bootstrap_server: BootstrapServer = None,
    topic: Topic = None,
    include: Include = None,
    partition: Partition = None,
    offset: Offset = None,
    from_beginning: FromBeginning = False,
    max_messages: MaxMessages = None,
    timeout_ms: TimeoutMs = None,
    group: Group = None,
    isolation_level: Isolation = None,
    property_: Properties = [],  # noqa: B006 - typer copies it
    formatter_config: FormatterConfig = None,
    command_property: CommandProperties = [],  # noqa: B006
    command_config: CommandConfig = None,
    consumer_property: ConsumerProperties = [],  # noqa: B006
    consumer_config: ConsumerConfig = None,
    skip_message_on_error: SkipOnError = False,
    formatter: Formatter = None,
    key_deserializer: KeyDeserializer = None,
    value_deserializer: ValueDeserializer = None,
    timeout: Timeout = 15.0,
) -> int:
    """Print the records of topics."""
    check(topic, include, partition, offset, from_beginning)
    check_seconds(timeout)
    printed = read_property_file(formatter_config)
    printed |= {"key.deserializer": key_deserializer} if key_deserializer else {}
    printed |= {"value.deserializer": value_deserializer} if value_deserializer else {}
    text = record_text(printed | key_values(property_, "--property"))
    silent = _is_silent(formatter)
    in_file, extra = librdkafka.given_properties(
        "consumer", command_config, command_property, consumer_config, consumer_property
    )
    given = in_file | extra
    name = one_group(group, in_file.get("group.id"), extra.get("group.id"))
    if name is not None and partition is not None:
        raise UsageError("--group cannot be used with --partition")
    if isolation_level is not None:
        given["isolation.level"] = isolation_level
    bootstrap = bootstrap_or_local(bootstrap_server)
    config = consumer_settings(bootstrap, given, name, from_beginning)
    start = parse_offset(offset, from_beginning)
    printer = _Printer(None if silent else text, skip_message_on_error)
    consumer = _open(config, topic, include, partition, start, timeout)
    return _read(consumer, printer, max_messages, timeout_ms)


def check(
    topic: str | None,
    include: str | None,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
) -> None:
    """Raise UsageError for options that cannot be combined."""
    if (topic is None) == (include is None):
        raise UsageError("exactly one of --topic and --include is required")
    if topic is not None:
        librdkafka.check_topic(topic)
    if include is not None and not librdkafka.is_valid_text(include):
        raise UsageError(f"--include {shown(shortened(include))}: expected text in UTF-8")
    if partition is not None and topic is None:
        raise UsageError("--partition needs --topic")
    if partition is not None and not 0 <= partition <= PARTITION_MAX:
        raise UsageError(f"--partition {partition}: expected 0 to {PARTITION_MAX}")
    if partition is None and offset is not None:
        raise UsageError("--offset needs --partition")
    if from_beginning and offset is not None:
        raise UsageError("--from-beginning cannot be used with --offset")


def one_group(option: str | None, *properties: str | None) -> str | None:
    """Return the group that the options name.

    Raises UsageError for several groups or an invalid name: librdkafka aborts the process on
    some invalid names.
    """
    named = [("--group", option), *(("group.id", each) for each in properties)]
    for where, name in named:
        if name is not None and not (name.strip() and librdkafka.is_valid_text(name)):
            raise UsageError(
                f"{where} {shown(shortened(name))}: expected a group's name, text in UTF-8"
            )
    given = sorted({name for _, name in named if name is not None})
    if len(given) > 1:
        raise UsageError(
            "--group, --command-property and --command-config name different groups: "
            + ", ".join(f"'{name}'" for name in given)
        )
    return given[0] if given else None


def parse_offset(text: str | None, from_beginning: bool) -> int | str:
    """Return a number, "earliest" or "latest"."""
    if text is None:
        return "earliest" if from_beginning else "latest"
    word = text.lower()
    if word in ("earliest", "latest"):
        return word
    number = parse_number(word)
    if number is None or number > OFFSET_MAX:
        raise UsageError(
            f"--offset {shown(shortened(text))}: expected 'earliest', 'latest' or a number "
            f"from 0 to {OFFSET_MAX}"
        )
    return number


def consumer_settings(
    bootstrap: str, given: dict[str, str], group: str | None, from_beginning: bool
) -> dict[str, Any]:
    """Return the consumer's configuration: options override properties, these override defaults."""
    reset = given.get("auto.offset.reset")
    if from_beginning and reset not in (None, "earliest"):
        raise UsageError(f"--from-beginning cannot be used with auto.offset.reset={reset}")
    config: dict[str, Any] = {
        "client.id": "console-consumer",
        "isolation.level": "read_uncommitted",
        "auto.offset.reset": "earliest" if from_beginning else "latest",
        "allow.auto.create.topics": "true",
        # Else offsets are stored, and committed, before their records are printed.
        "enable.auto.offset.store": "false",
        **librdkafka.translate(given),
    }
    if group is None:
        # The group is used once, so its offsets are not committed.
        config["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        config.setdefault("enable.auto.commit", "false")
    else:
        config["group.id"] = group
    return config | librdkafka.base_config(bootstrap)


def _is_silent(formatter: str | None) -> bool:
    if formatter is None:
        return False
    name = formatter.rpartition(".")[2]
    if name not in FORMATTERS:
        raise UsageError(f"--formatter {formatter}: expected {' or '.join(FORMATTERS)}")
    return name == "NoOpMessageFormatter"


def _open(
    config: dict[str, Any],
    topic: str | None,
    include: str | None,
    partition: int | None,
    start: int | str,
    timeout: float,
) -> Any:
    from confluent_kafka import (
        OFFSET_BEGINNING,
        OFFSET_END,
        Consumer,
        KafkaException,
        TopicPartition,
    )

    consumer = librdkafka.make(Consumer, config)
    partitions = librdkafka.find_broker(consumer, topic, config, timeout).get(topic or "", 0)
    if partition is not None and 0 < partitions <= partition:
        close(consumer)
        raise CommandError(
            f"there is no partition {topic}-{partition}: expected 0 to {partitions - 1}"
        )
    try:
        if partition is not None:
            ends = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}
            offset = ends[start] if isinstance(start, str) else start
            consumer.assign([TopicPartition(topic, partition, offset)])
        elif topic is not None:
            consumer.subscribe([topic])
        else:
            consumer.subscribe([f"^({include})$"])
    except KafkaException as error:
        close(consumer)
        subject = "" if include is None else f"--include {include}: "
        raise CommandError(subject + librdkafka.reason_of(error)) from None
    return consumer


class _Printer:
    """Writes records to standard output. `text` None = only count them."""

    def __init__(self, text: RecordText | None, skip_on_error: bool) -> None:
        self._text = text
        self._skip = skip_on_error
        self.count = 0

    def show(self, messages: list[Any], store: Callable[[Any], None]) -> None:
        """Print messages. Partition errors go to stderr.

        `store`: takes the last message of each partition that is printed, also where this raises:
        the group must read again what follows it.
        """
        newest: dict[tuple[str, int], Any] = {}
        try:
            for message in messages:
                if message.error() is not None:
                    self._complain(message.error())
                    continue
                self.count += 1
                self._print(message)
                newest[message.topic(), message.partition()] = message
        finally:
            sys.stdout.buffer.flush()
            for message in newest.values():
                store(message)

    def _print(self, message: Any) -> None:
        if self._text is None:
            return
        record = _shown(message)
        try:
            sys.stdout.buffer.write(self._text.line(record))
        except ValueError as error:
            where = f"{message.topic()}-{record.partition}, offset {record.offset}"
            if not self._skip:
                raise CommandError(f"{where}: {error}") from None
            print(f"skipped {where}: {error}", file=sys.stderr)

    def _complain(self, error: Any) -> None:
        reason = librdkafka.reason_of(error)
        if error.fatal():
            raise CommandError(reason)
        print(f"WARN: {reason}", file=sys.stderr, flush=True)


def _shown(message: Any) -> Shown:
    kind, timestamp = message.timestamp()
    names = {1: "CreateTime", 2: "LogAppendTime"}
    return Shown(
        partition=message.partition(),
        offset=message.offset(),
        timestamp=(names[kind], timestamp) if kind in names else None,
        leader_epoch=message.leader_epoch(),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )


def _read(
    consumer: Any, printer: _Printer, max_messages: int | None, timeout_ms: int | None
) -> int:
    """Print until `max_messages`, `timeout_ms` or a signal; return the exit code."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    code = 0
    try:
        _read_on(consumer, printer, max_messages, timeout_ms)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        print("Unable to write to standard out, closing consumer.", file=sys.stderr)
    finally:
        signal.signal(signal.SIGTERM, before)
        close(consumer)
        print(f"Processed a total of {printer.count} messages", file=sys.stderr)
    return code


def _read_on(
    consumer: Any, printer: _Printer, max_messages: int | None, timeout_ms: int | None
) -> None:
    # A negative count or time means no limit, as in Kafka.
    most = max_messages if max_messages is not None and max_messages >= 0 else None
    patience_s = timeout_ms / 1000 if timeout_ms is not None and timeout_ms >= 0 else None
    store = partial(_store, consumer)
    last = time.monotonic()
    while most is None or printer.count < most:
        wanted = BATCH if most is None else min(BATCH, most - printer.count)
        wait_s = POLL_SECONDS
        if patience_s is not None:
            wait_s = min(wait_s, max(0.0, last + patience_s - time.monotonic()))
        # Wait for one record, then take all that are buffered: no delay on a slow topic.
        # The first is stored before the next call, in which the group may rebalance.
        messages = consumer.consume(1, timeout=wait_s)
        if messages:
            printer.show(messages, store)
            if wanted > 1:
                printer.show(consumer.consume(wanted - 1, timeout=0), store)
            last = time.monotonic()
        elif patience_s is not None and time.monotonic() >= last + patience_s:
            print(f"no record came for {timeout_ms} ms", file=sys.stderr)
            return


def _store(consumer: Any, message: Any) -> None:
    """Store the offset after a message: the next commit includes it."""
    from confluent_kafka import KafkaException

    # Refused for a partition that another member has by now: that one reads the message again.
    with suppress(KafkaException):
        consumer.store_offsets(message=message)
