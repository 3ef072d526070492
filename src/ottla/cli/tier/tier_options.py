"""Options that the commands of `ottla tier` share."""

from typing import Annotated

import typer

from ottla.cli.options import DEFAULT_TIMEOUT_SECONDS

CLIENT_ID = "tier-tool"
WAIT_SECONDS = 300.0
"""The default of --timeout with --wait."""

TopicExpression = Annotated[
    str | None,
    typer.Option(
        "--topic", metavar="NAME", help="Only this topic, or those that match the expression."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait first until none of these topics is DISABLING.")
]
WaitPurged = Annotated[
    bool,
    typer.Option("--wait-purged", help="As --wait, and also until no purge of them is pending."),
]
WaitTimeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="How long to wait for brokers, and for each response; with --wait: in all. "
        f"[default: {DEFAULT_TIMEOUT_SECONDS:g}; with --wait: {WAIT_SECONDS:g}]",
        show_default=False,
    ),
]
