"""Whom a command asks that brokers and controllers answer alike: `--bootstrap-server`, or
`--bootstrap-controller`, before the sub-command. As kafka-features.sh and kafka-metadata-quorum.sh.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

import typer

from ottla.base.errors import Error
from ottla.cli.errors import CommandError, UsageError
from ottla.cli.options import (
    DEFAULT_TIMEOUT_SECONDS,
    BootstrapServer,
    CommandConfig,
    Timeout,
    connect,
)
from ottla.cli.wire_client import Refusal, WireClient

BootstrapController = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-controller",
        metavar="HOST:PORT[,...]",
        help="Controllers to ask, instead of brokers.",
        show_default=False,
    ),
]

ASK_ANOTHER = frozenset({Error.NOT_CONTROLLER, Error.NOT_LEADER_OR_FOLLOWER})
"""What a controller answers that does not lead."""

R = TypeVar("R")


def choose(
    context: typer.Context,
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: BootstrapController = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Take the options of a command, for its sub-commands."""
    context.obj = Where(bootstrap_server, bootstrap_controller, command_config, timeout)


@dataclass(frozen=True, slots=True)
class Where:
    """The options. `timeout`: seconds. Raises: UsageError for brokers and controllers at once."""

    brokers: str | None
    controllers: str | None
    command_config: str | None
    timeout: float

    def __post_init__(self) -> None:
        if self.brokers is not None and self.controllers is not None:
            raise UsageError(
                "only one of --bootstrap-server and --bootstrap-controller can be given"
            )

    def ask(self, client_id: str, question: Callable[[WireClient], R]) -> R:
        """Ask brokers, which pass it on, or controllers, of which only the one that leads answers.

        Raises: CommandError, of several controllers the first one's.
        """
        if self.controllers is None:
            with connect(self.brokers, self.command_config, self.timeout, client_id) as client:
                return client.patiently(lambda: question(client))
        failure: CommandError | None = None
        for address in self.controllers.split(","):
            try:
                with connect(address, self.command_config, self.timeout, client_id) as client:
                    return question(client)
            except CommandError as error:
                if isinstance(error, Refusal) and error.code not in ASK_ANOTHER:
                    raise
                failure = failure or error
        assert failure is not None, "splitting gives one address at least"
        raise failure
