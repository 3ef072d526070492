"""`ottla get-offsets`: partition offsets by timestamp or position. As kafka-get-offsets.sh.

Source: GetOffsetShell, Kafka 4.3; KIP-635, KIP-734 (max-timestamp), KIP-405 and KIP-1005 (tiers).
"""

import re
import sys
from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from ottla.base.errors import Error
from ottla.base.ids import INTERNAL_TOPICS
from ottla.cli.errors import CommandError, UsageError, shortened, shown
from ottla.cli.options import (
    DEFAULT_TIMEOUT_SECONDS,
    BootstrapServer,
    CommandConfig,
    Timeout,
    connect,
    parse_ids,
)
from ottla.cli.topics.topic_filter import compile_filter
from ottla.cli.typing_app import examples, new_app
from ottla.client.cluster import ClusterClient
from ottla.client.errors import reason_of
from ottla.client.offsets import list_offsets
from ottla.client.partitions import TopicPartition

app = new_app()

EPILOG = examples(
    "ottla get-offsets --bootstrap-server localhost:9092 --topic orders",
    "ottla get-offsets --bootstrap-server localhost:9092 --topic orders --time earliest",
    "ottla get-offsets --bootstrap-server localhost:9092 --topic-partitions 'orders:0-4,bills'",
)

TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
TIMESTAMP_MAX = 2**63 - 1

RULE = re.compile(r"([^:,]*)(?::(?:([0-9]{0,10})|([0-9]{0,10})-([0-9]{0,10})))?")

Chooser = Callable[[str, int], bool]


@app.command("get-offsets", epilog=EPILOG)
def get_offsets(
    bootstrap_server: BootstrapServer = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="REGEX", help="Topics.  [default: all]"),
    ] = None,
    partitions: Annotated[
        str | None,
        typer.Option(
            "--partitions", metavar="N,...", help="Partitions of these topics.  [default: all]"
        ),
    ] = None,
    topic_partitions: Annotated[
        str | None,
        typer.Option(
            "--topic-partitions",
            metavar="RULES",
            help="Comma-separated TOPIC:PARTITIONS, instead of the above; each part is optional. "
            "Partitions: N, N-M (without M), N- or -M.",
        ),
    ] = None,
    time: Annotated[
        str,
        typer.Option(
            "--time", metavar="MS|NAME", help=f"A timestamp, or one of {', '.join(TIMES)}."
        ),
    ] = "latest",
    exclude_internal_topics: Annotated[
        bool, typer.Option("--exclude-internal-topics", help="Leave internal topics out.")
    ] = False,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Print TOPIC:PARTITION:OFFSET, without partitions that have no such offset."""
    is_chosen = chooser(topic, partitions, topic_partitions)
    timestamp = parse_time(time)
    with connect(bootstrap_server, command_config, timeout, "GetOffsetShell") as client:
        found = {
            (each.name or "", partition.partition_index): partition.leader_id
            for each in client.topics()
            for partition in each.partitions
            if is_chosen(each.name or "", partition.partition_index)
            and not (exclude_internal_topics and each.name in INTERNAL_TOPICS)
        }
        if not found:
            raise CommandError("Could not match any topic-partitions with the specified filters")
        offsets = fetch_offsets(client, found, timestamp)
    for topic_name, partition_id in in_order(offsets):
        error, offset = offsets[topic_name, partition_id]
        if error:
            reason = reason_of(error)
            print(
                f"Skip getting offsets for topic-partition {topic_name}-{partition_id} due to "
                f"error: {reason}",
                file=sys.stderr,
            )
        elif offset >= 0:
            print(f"{topic_name}:{partition_id}:{offset}")


def in_order(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return partitions in the order of Kafka's tool, which sorts text: x-10 before x-2."""
    return sorted(partitions, key=lambda each: f"{each[0]}-{each[1]}")


def chooser(topic: str | None, partitions: str | None, rules: str | None) -> Chooser:
    """Return the predicate that selects partitions by the options."""
    if rules is not None:
        if topic is not None or partitions is not None:
            raise UsageError("--topic-partitions cannot be used with --topic or --partitions")
        choosers = [_rule(each) for each in rules.split(",")]
        return lambda name, partition: any(each(name, partition) for each in choosers)
    pattern = None if topic is None else compile_filter(topic)
    ids = None if partitions is None else parse_ids(partitions)
    if partitions is not None and ids is None:
        raise UsageError(
            "--partitions expects a comma separated list of numeric partition ids, but received: "
            + shown(shortened(partitions))
        )
    return lambda name, partition: (
        (pattern is None or pattern.fullmatch(name) is not None)
        and (ids is None or partition in ids)
    )


def _rule(text: str) -> Chooser:
    match = RULE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"Invalid rule specification: {shown(shortened(text))}")
    topic, single, first, end = match.groups()
    pattern = compile_filter(topic) if topic else None
    only = single or None
    return lambda name, partition: (
        (pattern is None or pattern.fullmatch(name) is not None)
        and (only is None or partition == int(only))
        and (not first or partition >= int(first))
        and (not end or partition < int(end))
    )


def parse_time(text: str) -> int:
    """Return the ListOffsets timestamp of a name or number."""
    word = text.strip().lower()
    if word in TIMES:
        return TIMES[word]
    if re.fullmatch(r"-?[0-9]{1,19}", word) and -TIMESTAMP_MAX <= int(word) <= TIMESTAMP_MAX:
        return int(word)
    names = " / ".join(f"{timestamp} or {name}" for name, timestamp in TIMES.items())
    raise UsageError(
        f"Malformed time argument {shown(shortened(text))}. Please use {names}, "
        "or a specified long format timestamp"
    )


def fetch_offsets(
    client: ClusterClient, leaders: dict[TopicPartition, int], timestamp: int
) -> dict[TopicPartition, tuple[int, int]]:
    """Return an error code and an offset for each partition; -1 = no such offset."""
    live = set(client.broker_ids())
    offsets = {
        key: (int(Error.LEADER_NOT_AVAILABLE), -1)
        for key, leader in leaders.items()
        if leader not in live
    }
    asked = dict.fromkeys(leaders.keys() - offsets.keys(), timestamp)
    for key, each in list_offsets(client, asked).items():
        offsets[key] = (each.error_code, each.offset)
    return offsets
