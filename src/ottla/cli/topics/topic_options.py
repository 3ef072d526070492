"""The options of `ottla topics`, and which can be combined.

Source: TopicCommand.TopicCommandOptions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from ottla.base.ids import Uuid, parse_uuid
from ottla.cli.errors import UsageError, shown
from ottla.cli.options import (
    DEFAULT_TIMEOUT_SECONDS,
    NUMBER_MAX,
    check_allowed,
    check_number,
    flag,
    parse_ids,
)
from ottla.cli.topics.topic_text import Report

REPLICAS_MAX = 32_767

WAIT_SECONDS = 60.0
"""The default of --timeout with --wait."""

Create = Annotated[bool, typer.Option("--create", help="Create a topic.")]
Delete = Annotated[bool, typer.Option("--delete", help="Delete topics.")]
Describe = Annotated[bool, typer.Option("--describe", help="Show topics in detail.")]
List = Annotated[bool, typer.Option("--list", help="List the names of topics.")]
Alter = Annotated[bool, typer.Option("--alter", help="Add partitions.")]
DescribeDeletions = Annotated[
    bool,
    typer.Option(
        "--describe-deletions", help="Show the deletion ledger: deletions under way and finished."
    ),
]
DescribeIdle = Annotated[
    bool,
    typer.Option(
        "--describe-idle",
        help="Show which idle topics will be deleted (ottla.topic.ttl.ms), and when.",
    ),
]
Topic = Annotated[
    str | None,
    typer.Option(
        "--topic", metavar="NAME", help="A name; except with --create, also a regular expression."
    ),
]
TopicId = Annotated[
    str | None,
    typer.Option(
        "--topic-id", metavar="ID", help="Describe the topic or the deletion with this id."
    ),
]
Partitions = Annotated[
    int | None, typer.Option("--partitions", metavar="N", help="Number of partitions, in total.")
]
ReplicationFactor = Annotated[
    int | None,
    typer.Option("--replication-factor", metavar="N", help="Replicas of each partition."),
]
ReplicaAssignment = Annotated[
    str | None,
    typer.Option(
        "--replica-assignment",
        metavar="IDS",
        help="Manual assignment: ':' between the replicas of a partition, ',' between partitions, "
        "as 1:2,2:3.",
    ),
]
Config = Annotated[
    list[str],
    typer.Option("--config", metavar="NAME=VALUE", help="A topic configuration, with --create."),
]
DeleteConfig = Annotated[
    list[str],
    typer.Option("--delete-config", metavar="NAME", help="No effect: use 'ottla configs --alter'."),
]
DELETE_CONFIG_NOTICE = (
    "delete-config option is no longer supported and deprecated since version 4.0. "
    "The config will be fully removed in future releases."
)
"""The warning of kafka-topics.sh on stderr; the command then continues."""
IfExists = Annotated[bool, typer.Option("--if-exists", help="Do nothing if no topic matches.")]
IfNotExists = Annotated[
    bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.")
]
ExcludeInternal = Annotated[
    bool, typer.Option("--exclude-internal", help="Leave internal topics out.")
]
UnderReplicated = Annotated[
    bool,
    typer.Option(
        "--under-replicated-partitions", help="Describe only under-replicated partitions."
    ),
]
Unavailable = Annotated[
    bool,
    typer.Option(
        "--unavailable-partitions", help="Describe only partitions without a live leader."
    ),
]
UnderMinIsr = Annotated[
    bool,
    typer.Option(
        "--under-min-isr-partitions", help="Describe only partitions below min.insync.replicas."
    ),
]
AtMinIsr = Annotated[
    bool,
    typer.Option(
        "--at-min-isr-partitions", help="Describe only partitions at min.insync.replicas."
    ),
]
WithOverrides = Annotated[
    bool,
    typer.Option(
        "--topics-with-overrides", help="Describe only topics with configuration overrides."
    ),
]
PartitionLimit = Annotated[
    int,
    typer.Option(
        "--partition-size-limit-per-response",
        metavar="N",
        help="Partitions in one response, at most.",
    ),
]


AsJson = Annotated[
    bool, typer.Option("--json", help="With --describe-deletions: print JSON for programs.")
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait", help="With --describe-deletions: wait until open deletions are finished."
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="How long to wait for brokers, and for each response; with --wait: in all. "
        f"[default: {DEFAULT_TIMEOUT_SECONDS:g}; with --wait: {WAIT_SECONDS:g}]",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """The options. Fields are named as the options."""

    topic: str | None = None
    topic_id: Uuid | None = None
    partitions: int | None = None
    replication_factor: int | None = None
    replica_assignment: tuple[tuple[int, ...], ...] = ()
    config: tuple[tuple[str, str], ...] = ()
    if_exists: bool = False
    if_not_exists: bool = False
    exclude_internal: bool = False
    under_replicated_partitions: bool = False
    unavailable_partitions: bool = False
    under_min_isr_partitions: bool = False
    at_min_isr_partitions: bool = False
    topics_with_overrides: bool = False
    partition_limit: int = 2000
    json: bool = False
    wait: bool = False

    @property
    def report(self) -> Report:
        """Return which partitions to describe."""
        return Report(
            under_replicated=self.under_replicated_partitions,
            unavailable=self.unavailable_partitions,
            under_min_isr=self.under_min_isr_partitions,
            at_min_isr=self.at_min_isr_partitions,
            overridden_topics=self.topics_with_overrides,
        )


_DESCRIBE = frozenset({"describe"})
_DELETIONS = frozenset({"describe_deletions"})
ALLOWED_ACTIONS: dict[str, frozenset[str]] = {
    "topic_id": _DESCRIBE | _DELETIONS,
    "partitions": frozenset({"create", "alter"}),
    "replication_factor": frozenset({"create"}),
    "replica_assignment": frozenset({"create", "alter"}),
    "config": frozenset({"create"}),
    "if_exists": frozenset({"alter", "delete", "describe"}),
    "if_not_exists": frozenset({"create"}),
    "exclude_internal": frozenset({"describe", "list"}),
    "under_replicated_partitions": _DESCRIBE,
    "unavailable_partitions": _DESCRIBE,
    "under_min_isr_partitions": _DESCRIBE,
    "at_min_isr_partitions": _DESCRIBE,
    "topics_with_overrides": _DESCRIBE,
    "json": _DELETIONS | {"describe_idle"},
    "wait": _DELETIONS,
}
"""The actions that an option can be used with; options not listed: all."""


def parse_options(given: Mapping[str, Any]) -> TopicOptions:
    """Return the options from the command's arguments by name. Raises: UsageError."""
    parts = {each.name: given[each.name] for each in fields(TopicOptions)}
    parts["topic_id"] = parse_topic_id(given["topic_id"])
    parts["replica_assignment"] = parse_assignment(given["replica_assignment"])
    parts["config"] = parse_configs(given["config"])
    return TopicOptions(**parts)


def check(action: str, options: TopicOptions) -> None:
    """Raise UsageError for options that cannot be combined."""
    check_allowed(action, options, ALLOWED_ACTIONS)
    if (
        action == "describe_deletions"
        and options.topic is not None
        and options.topic_id is not None
    ):
        raise UsageError("only one of --topic and --topic-id can be given")
    if action in ("create", "delete", "alter") and options.topic is None:
        raise UsageError(f"--topic is required with --{action}")
    if action == "alter" and options.partitions is None:
        raise UsageError("--partitions is required with --alter")
    if action == "create" and options.replica_assignment:
        for name in ("partitions", "replication_factor"):
            if getattr(options, name) is not None:
                raise UsageError(f"{flag(name)} cannot be used with --replica-assignment")
    check_number("--partitions", options.partitions, 1)
    check_number("--replication-factor", options.replication_factor, 1, REPLICAS_MAX)
    check_number("--partition-size-limit-per-response", options.partition_limit, 1)


def parse_assignment(text: str | None) -> tuple[tuple[int, ...], ...]:
    """Return the replicas of each partition from text as `1:2,2:3`."""
    if text is None:
        return ()
    partitions: list[tuple[int, ...]] = []
    for each in text.split(","):
        ids = parse_ids(each, ":")
        if ids is None:
            raise UsageError(
                f"--replica-assignment {shown(text)}: expected broker ids from 0 to {NUMBER_MAX}, "
                "as 1:2,2:3"
            )
        replicas = tuple(ids)
        if len(set(replicas)) != len(replicas):
            raise UsageError(f"--replica-assignment {text}: a partition names a broker twice")
        if partitions and len(replicas) != len(partitions[0]):
            raise UsageError(
                f"--replica-assignment {text}: partition {len(partitions)} has "
                f"{len(replicas)} replicas, expected {len(partitions[0])} as partition 0"
            )
        partitions.append(replicas)
    return tuple(partitions)


def parse_configs(pairs: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return `NAME=VALUE` pairs; a value may be empty."""
    configs = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise UsageError(f"--config {shown(pair)}: expected NAME=VALUE")
        configs[name.strip()] = value.strip()
    return tuple(configs.items())


def parse_topic_id(text: str | None) -> Uuid | None:
    """Return the topic id in a text."""
    try:
        return parse_uuid(text) if text is not None else None
    except ValueError as error:
        raise UsageError(f"--topic-id {error}") from None
