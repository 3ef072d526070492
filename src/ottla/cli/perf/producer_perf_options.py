"""The options of `ottla producer-perf-test`."""

from pathlib import Path
from typing import Annotated

import typer

Topic = Annotated[str, typer.Option("--topic", metavar="NAME", help="The topic to write to.")]
NumRecords = Annotated[
    int, typer.Option("--num-records", metavar="N", help="How many records to send.")
]
Throughput = Annotated[
    float,
    typer.Option("--throughput", metavar="N", help="Records a second, about; -1 = no limit."),
]
RecordSize = Annotated[
    int | None,
    typer.Option(
        "--record-size", metavar="BYTES", help="Size of each record, filled with random letters."
    ),
]
PayloadFile = Annotated[
    Path | None,
    typer.Option(
        "--payload-file", metavar="FILE", help="Take each record from a random line of this file."
    ),
]
PayloadDelimiter = Annotated[
    str,
    typer.Option("--payload-delimiter", metavar="REGEX", help="Separator of the file's payloads."),
]
PayloadMonotonic = Annotated[
    bool, typer.Option("--payload-monotonic", help="Use the record's number as its payload.")
]
CommandProperty = Annotated[
    list[str],
    typer.Option("--command-property", metavar="K=V ...", help="A property of the producer."),
]
CommandConfig = Annotated[
    str | None, typer.Option("--command-config", metavar="FILE", help="The same, in a file.")
]
ProducerProps = Annotated[
    list[str],
    typer.Option("--producer-props", metavar="K=V ...", help="Former --command-property."),
]
ProducerConfig = Annotated[
    str | None,
    typer.Option("--producer.config", metavar="FILE", help="Former --command-config."),
]
PrintMetrics = Annotated[
    bool, typer.Option("--print-metrics", help="Print the client's statistics at the end.")
]
TransactionalId = Annotated[str | None, typer.Option("--transactional-id", hidden=True)]
TransactionDurationMs = Annotated[
    int | None, typer.Option("--transaction-duration-ms", hidden=True)
]
WarmupRecords = Annotated[
    int,
    typer.Option(
        "--warmup-records", metavar="N", help="Exclude the first N records from a second summary."
    ),
]
ReportingInterval = Annotated[
    int, typer.Option("--reporting-interval", metavar="MS", help="Time between two lines.")
]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for brokers.")
]
