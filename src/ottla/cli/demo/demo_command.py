"""`ottla demo`: the options of the demonstration."""

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.charts import ChartFile, check_chart_file
from ottla.cli.errors import UsageError
from ottla.cli.typing_app import examples, new_app

app = new_app()


@app.command(
    "demo",
    epilog=examples(
        "ottla demo                                 in a temporary directory, removed at the end",
        "ottla demo --full                          also waits for purges, some three minutes",
        "ottla demo --data-dir /tmp/demo            kept: ottla up --data-dir /tmp/demo",
    ),
)
def demo(
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="DIR", help="The cluster's data directory; kept."),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep the data directory, and the topic with both tiers."),
    ] = False,
    full: Annotated[
        bool,
        typer.Option("--full", help="Wait for purges, and prove that nothing is left."),
    ] = False,
    chart: ChartFile = None,
) -> int:
    """Run three brokers with an object store, 336,776 real records, clients and Spark.

    The topic is written, read by a group, moved to the store, counted by Spark, turned off tiered
    storage and on again, and deleted. Every result is compared with the source file; the first
    difference ends it with exit code 1.
    """
    from rich.console import Console

    from ottla.cli.demo.story import DemoOptions, run

    if full and (keep or data_dir is not None):
        raise UsageError("--full deletes the topic: it cannot be kept with --keep or --data-dir")
    check_chart_file(chart)
    options = DemoOptions(data_dir=data_dir, keep=keep, full=full, chart=chart)
    return run(Console(), options)
