"""Whom a command asks that brokers and controllers answer alike: `--bootstrap-server`, or
`--bootstrap-controller`. kafka-features.sh and kafka-metadata-quorum.sh take them before the
sub-command.

Any controller tells with DescribeCluster where the others are and which one is active (KIP-919);
that one is asked, whichever the option names.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

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
from ottla.cli.wire_client import Refusal, Waiting, WireClient, check
from ottla.wire.messages import describe_cluster as cluster_wire


def bootstrap_controller_option(*short: str) -> Any:
    """Return the option, with Kafka's short form where its tool has one."""
    return typer.Option(
        "--bootstrap-controller",
        *short,
        metavar="HOST:PORT[,...]",
        help="Controllers to ask, instead of brokers.",
        show_default=False,
    )


BootstrapController = Annotated[str | None, bootstrap_controller_option()]

NOT_ACTIVE = frozenset({Error.NOT_CONTROLLER, Error.NOT_LEADER_OR_FOLLOWER})
"""What a controller answers that is not active."""

BROKERS, CONTROLLERS = 1, 2
"""Kinds of endpoint that DescribeCluster tells of (KIP-919)."""

REACH_SECONDS = 3.0
"""How long the active controller may take to be connected to before the others are asked again."""

R = TypeVar("R")


class Unreachable(CommandError):
    """The controller that is said to be active takes no connection."""


def choose(
    context: typer.Context,
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: BootstrapController = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Take the options of a command, for its sub-commands."""
    context.obj = BootstrapOptions(bootstrap_server, bootstrap_controller, command_config, timeout)


@dataclass(frozen=True, slots=True)
class BootstrapOptions:
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

    @property
    def endpoint_type(self) -> int:
        """Return which kind of node is asked."""
        return BROKERS if self.controllers is None else CONTROLLERS

    def ask(
        self, client_id: str, question: Callable[[WireClient], R], *, node: int | None = None
    ) -> R:
        """Ask brokers, which pass it on; or, of the controllers, the active one.

        `node`: the id of the controller to ask instead. Raises: CommandError.
        """
        if self.controllers is None:
            with connect(self.brokers, self.command_config, self.timeout, client_id) as client:
                return client.with_retries(lambda: question(client))
        return self._ask_controllers(client_id, question, node)

    def any(self, client_id: str) -> WireClient:
        """Return a client of whichever broker or controller answers first."""
        given = self.brokers if self.controllers is None else self.controllers
        return connect(given, self.command_config, self.timeout, client_id)

    def _ask_controllers(
        self, client_id: str, question: Callable[[WireClient], R], node: int | None
    ) -> R:
        waiting = Waiting(self.timeout)
        while True:
            try:
                with self._controller(client_id, node) as client:
                    return question(client)
            except Refusal as refusal:
                if refusal.code not in NOT_ACTIVE or waiting.is_over:
                    raise
                what = str(refusal)
            except Unreachable as error:
                # Others say for a while that a controller leads which is dead.
                if waiting.is_over:
                    raise
                what = str(error)
            waiting.pause(f"the active controller ({what})")

    @contextmanager
    def _controller(self, client_id: str, node: int | None) -> Iterator[WireClient]:
        with self.any(client_id) as client:
            cluster = describe_cluster(client, CONTROLLERS)
            wanted = cluster.controller_id if node is None else node
            addresses = {each.broker_id: (each.host, each.port) for each in cluster.brokers}
            if wanted not in addresses:
                known = ", ".join(map(str, sorted(addresses))) or "none"
                if node is not None:
                    raise CommandError(f"there is no controller {node}: expected one of {known}")
                raise Refusal(
                    f"controllers at {client.bootstrap}",
                    Error.NOT_CONTROLLER,
                    "no controller is active now",
                )
            host, port = addresses[wanted]
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        with connect(address, self.command_config, self.timeout, client_id) as client:
            client.timeout = min(self.timeout, REACH_SECONDS)
            try:
                client.serves(cluster_wire.DescribeClusterRequest)  # Connects.
            except CommandError as error:
                raise Unreachable(str(error)) from None
            client.timeout = self.timeout
            yield client


def describe_cluster(
    client: WireClient, endpoint_type: int, *, fenced: bool = False
) -> cluster_wire.DescribeClusterResponse:
    """Return a cluster's id, and its nodes of one kind. Raises: CommandError."""
    request = cluster_wire.DescribeClusterRequest(
        endpoint_type=endpoint_type,
        include_cluster_authorized_operations=False,
        include_fenced_brokers=fenced,
    )
    # Before version 1 nobody could say that controllers are meant.
    response = client.ask(request, cluster_wire.DescribeClusterResponse)
    check("the cluster", response.error_code, response.error_message)
    return response
