"""Options that the commands of `ottla tier` share."""

from typing import Annotated

import typer

CLIENT_ID = "tier-tool"

TopicExpression = Annotated[
    str | None,
    typer.Option(
        "--topic", metavar="NAME", help="Only this topic, or those that match the expression."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
