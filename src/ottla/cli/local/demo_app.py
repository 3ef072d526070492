"""`ottla demo`: the options of the demonstration."""

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.typing_app import examples, new_app

app = new_app()


@app.command(
    "demo",
    epilog=examples(
        "ottla demo                                 in a temporary directory, removed at the end",
        "ottla demo --data-dir /tmp/demo            kept: ottla up --data-dir /tmp/demo",
    ),
)
def demo(
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="The cluster's data directory.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data directory.")] = False,
) -> int:
    """Start three brokers, write 336,776 real records, read them with clients and with Spark.

    Every result is compared with the source file; the first difference ends it with exit code 1.
    """
    from rich.console import Console

    from ottla.cli.local.demo import run

    return run(Console(), keep=keep, data_dir=data_dir)
