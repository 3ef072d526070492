"""Options that say which records of which topic a job reads."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.errors import UsageError
from ottla.cli.options import checked_topic_id, parse_number
from ottla.cli.pipeline.pipeline_options import check_store_uri, client_config

if TYPE_CHECKING:
    from ottla.spark.jobs.source_ranges import Bound, Source

OFFSET_MAX = 2**63 - 1
TIME_MS_MAX = 253_402_300_800_000
"""The end of the year 9999."""

Topic = Annotated[str, typer.Option("--topic", metavar="NAME", help="The topic to read.")]
SourceServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help="Brokers to read from. With --remote-storage alone, what the object store has is "
        "read.  [default: the cluster of ./ottla-data, if it runs]",
        show_default=False,
    ),
]
SourceStorage = Annotated[
    str | None,
    typer.Option(
        "--remote-storage",
        metavar="URI",
        help="The object store of a tiered topic: what it has is read from there.",
    ),
]
TopicId = Annotated[
    str | None,
    typer.Option(
        "--topic-id", metavar="ID", help="Which topic of that name, where the store has several."
    ),
]
FromOffset = Annotated[
    str | None,
    typer.Option(
        "--from-offset",
        metavar="OFFSET|PARTITION:OFFSET[,...]",
        help="Start here, in all partitions or in those that are named.  [default: the log start]",
        show_default=False,
    ),
]
ToOffset = Annotated[
    str | None,
    typer.Option(
        "--to-offset",
        metavar="OFFSET|PARTITION:OFFSET[,...]",
        help="End before this offset.  [default: the end of the log now]",
        show_default=False,
    ),
]
FromTime = Annotated[
    str | None,
    typer.Option(
        "--from-time",
        metavar="TIME",
        help="Start at the first record of this time or later: ISO 8601, UTC unless it says "
        "otherwise, or milliseconds since 1970.",
    ),
]
ToTime = Annotated[
    str | None,
    typer.Option("--to-time", metavar="TIME", help="End before the first record of this time."),
]
Isolation = Annotated[
    str,
    typer.Option(
        "--isolation",
        metavar="LEVEL",
        help="read_committed leaves out aborted transactions, and ends before open ones; "
        "read_uncommitted does neither.",
    ),
]
SkipLost = Annotated[
    bool,
    typer.Option(
        "--skip-lost",
        help="Continue behind records that expired before they were read, instead of failing.",
    ),
]


def parse_source(
    topic: str,
    bootstrap_server: str | None,
    remote_storage: str | None,
    *,
    command_config: str | None,
    isolation: str,
    skip_lost: bool,
    topic_id: str | None,
    timeout: float,
) -> "Source":
    """Return the topic to read, and how to reach it. Raises: UsageError, CommandError."""
    from ottla.spark.jobs.source_ranges import Source

    read_committed = parse_isolation(isolation)
    named_id = None if topic_id is None else checked_topic_id(topic_id)
    if remote_storage is not None:
        check_store_uri(remote_storage)
    cluster = None
    if bootstrap_server is not None or remote_storage is None:
        cluster = client_config(bootstrap_server, command_config, timeout)
    return Source(
        topic=topic,
        cluster=cluster,
        remote_storage=remote_storage,
        topic_id=named_id,
        read_committed=read_committed,
        skip_lost=skip_lost,
        timeout_s=timeout,
    )


def parse_bound(side: str, offset: str | None, time: str | None) -> "Bound":
    """Return where to start or end; `side`: from or to. Raises: UsageError."""
    from ottla.spark.jobs.source_ranges import Bound

    if offset is not None and time is not None:
        raise UsageError(f"only one of --{side}-offset and --{side}-time can be given")
    if time is not None:
        return Bound(time_ms=parse_time(f"--{side}-time", time))
    if offset is None:
        return Bound()
    number = parse_number(offset.strip())
    if number is not None and number <= OFFSET_MAX:
        return Bound(offset=number)
    offsets: dict[int, int] = {}
    for pair in offset.split(","):
        partition, colon, text = pair.strip().partition(":")
        index, value = parse_number(partition), parse_number(text)
        if not colon or index is None or value is None or value > OFFSET_MAX or index in offsets:
            raise UsageError(
                f"--{side}-offset {offset}: expected an offset, or PARTITION:OFFSET[,...]"
            )
        offsets[index] = value
    return Bound(offsets=offsets)


def parse_time(option: str, text: str) -> int:
    """Return a time in milliseconds since 1970. Raises: UsageError."""
    number = parse_number(text.strip())
    if number is not None and number < TIME_MS_MAX:
        return number
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        found = None
    if found is None or number is not None:
        raise UsageError(
            f"{option} {text}: expected a time such as 2026-11-26T12:00:00Z, or milliseconds"
        )
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1000)


def parse_isolation(text: str) -> bool:
    """Tell whether only committed records are to be read. Raises: UsageError."""
    if text not in ("read_committed", "read_uncommitted"):
        raise UsageError(f"--isolation {text}: expected read_committed or read_uncommitted")
    return text == "read_committed"
