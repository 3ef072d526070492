"""The options of `ottla consumer-perf-test`."""

from typing import Annotated

import typer

Topic = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="The topic to read.")]
Include = Annotated[
    str | None, typer.Option("--include", metavar="REGEX", help="Read all topics that match.")
]
NumRecords = Annotated[
    int | None, typer.Option("--num-records", metavar="N", help="How many records to read.")
]
Messages = Annotated[
    int | None, typer.Option("--messages", metavar="N", help="Former --num-records.")
]
Group = Annotated[
    str | None,
    typer.Option("--group", metavar="NAME", help="The consumer group.  [default: a new one]"),
]
FromLatest = Annotated[
    bool, typer.Option("--from-latest", help="Start at the end, not at the first record.")
]
FetchSize = Annotated[
    int, typer.Option("--fetch-size", metavar="BYTES", help="max.partition.fetch.bytes")
]
SocketBufferSize = Annotated[
    int, typer.Option("--socket-buffer-size", metavar="BYTES", help="receive.buffer.bytes")
]
Timeout = Annotated[
    int,
    typer.Option("--timeout", metavar="[MS]", help="Exit when no record arrives for this long."),
]
CommandProperty = Annotated[
    list[str], typer.Option("--command-property", metavar="K=V", help="A property of the consumer.")
]
CommandConfig = Annotated[
    str | None, typer.Option("--command-config", metavar="FILE", help="The same, in a file.")
]
ConsumerConfig = Annotated[
    str | None,
    typer.Option("--consumer.config", metavar="FILE", help="Former --command-config."),
]
ReportingInterval = Annotated[
    int, typer.Option("--reporting-interval", metavar="MS", help="Time between two detailed lines.")
]
ShowDetailedStats = Annotated[
    bool, typer.Option("--show-detailed-stats", help="Print a line for each interval.")
]
HideHeader = Annotated[bool, typer.Option("--hide-header", help="Print no heading.")]
DateFormat = Annotated[
    str,
    typer.Option(
        "--date-format", metavar="PATTERN", help="A pattern of java.text.SimpleDateFormat."
    ),
]
PrintMetrics = Annotated[
    bool, typer.Option("--print-metrics", help="Print the client's statistics at the end.")
]
