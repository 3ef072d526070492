"""Options that the jobs of `ottla pipeline` share."""

from typing import Annotated

import typer

from ottla.cli.errors import CommandError, UsageError
from ottla.cli.options import connect
from ottla.client.cluster import ClientConfig
from ottla.stores.uri import StoreUriError, parse_store_uri

CLIENT_ID = "pipeline"
TIMEOUT_SECONDS = 60.0

RemoteStorage = Annotated[
    str,
    typer.Option(
        "--remote-storage", metavar="URI", help="The object store: file:///DIR or s3://BUCKET."
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="NAME", help="Only this topic; may be repeated."),
]
PlanOnly = Annotated[bool, typer.Option("--plan", help="Show what would be read, and do nothing.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
StoreTimeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="How long to wait for brokers, and how long to repeat an operation of the store.",
    ),
]


def check_store_uri(uri: str) -> None:
    """Raise CommandError for a URI that is not a store's."""
    try:
        parse_store_uri(uri)
    except StoreUriError as error:
        raise CommandError(f"--remote-storage {error}") from None


def check_command_config(command_config: str | None, bootstrap_server: str | None) -> None:
    """Raise UsageError for a file of client properties where no brokers are asked."""
    if command_config is not None and bootstrap_server is None:
        raise UsageError("--command-config needs --bootstrap-server")


def optional_client_config(
    bootstrap_server: str | None, command_config: str | None, timeout: float
) -> ClientConfig | None:
    """As `client_config`; None = no brokers are named, and none are asked."""
    if bootstrap_server is None:
        return None
    return client_config(bootstrap_server, command_config, timeout)


def client_config(
    bootstrap_server: str | None, command_config: str | None, timeout: float
) -> ClientConfig:
    """Return how to reach the brokers. Raises: UsageError, CommandError."""
    with connect(bootstrap_server, command_config, timeout, CLIENT_ID) as client:
        return client.config
