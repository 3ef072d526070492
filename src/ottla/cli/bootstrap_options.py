"""`--bootstrap-server` or `--bootstrap-controller`: for requests that both kinds of node serve.

kafka-features.sh and kafka-metadata-quorum.sh take these options before the sub-command.

With controllers, the request goes to the active one, whichever the option names: DescribeCluster
of any controller returns the addresses of all and the id of the active one (KIP-919).
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
from ottla.cli.progress import print_stderr
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, Refusal, check
from ottla.client.waiting import Waiting
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
"""Errors from a controller that is not the active one."""

BROKERS, CONTROLLERS = 1, 2
"""Endpoint types of DescribeCluster (KIP-919)."""

REACH_SECONDS = 3.0
"""Connect timeout for the active controller. After it, the active one is looked up again."""

R = TypeVar("R")


class Unreachable(CommandError):
    """The controller that others name as the active one accepts no connection."""


def choose(
    context: typer.Context,
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: BootstrapController = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Store the options of a command for its sub-commands."""
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
        """Return the endpoint type of DescribeCluster."""
        return BROKERS if self.controllers is None else CONTROLLERS

    def ask(
        self, client_id: str, action: Callable[[ClusterClient], R], *, node: int | None = None
    ) -> R:
        """Run `action` on any broker, which forwards requests, or on the active controller.

        `node`: the id of a controller to use instead. Raises: CommandError.
        """
        if self.controllers is None:
            with connect(self.brokers, self.command_config, self.timeout, client_id) as client:
                return client.with_retries(lambda: action(client))
        return self._ask_controllers(client_id, action, node)

    def any(self, client_id: str) -> ClusterClient:
        """Return a client of the first broker or controller that accepts a connection."""
        given = self.brokers if self.controllers is None else self.controllers
        return connect(given, self.command_config, self.timeout, client_id)

    def _ask_controllers(
        self, client_id: str, action: Callable[[ClusterClient], R], node: int | None
    ) -> R:
        waiting = Waiting(self.timeout, print_stderr)
        while True:
            try:
                with self._controller(client_id, node) as client:
                    return action(client)
            except Refusal as refusal:
                if refusal.code not in NOT_ACTIVE or waiting.is_over:
                    raise
                what = str(refusal)
            except Unreachable as error:
                # For a while the others still name a dead controller as the active one.
                if waiting.is_over:
                    raise
                what = str(error)
            waiting.pause(f"the active controller ({what})")

    @contextmanager
    def _controller(self, client_id: str, node: int | None) -> Iterator[ClusterClient]:
        with self.any(client_id) as client:
            cluster = describe_cluster(client, CONTROLLERS)
            wanted = cluster.controller_id if node is None else node
            addresses = {each.broker_id: (each.host, each.port) for each in cluster.brokers}
            if wanted not in addresses:
                known = ", ".join(map(str, sorted(addresses))) or "none"
                if node is not None:
                    raise CommandError(f"there is no controller {node}: expected one of {known}")
                raise Refusal(
                    f"controllers at {client.config.bootstrap}",
                    Error.NOT_CONTROLLER,
                    "no controller is active now",
                )
            host, port = addresses[wanted]
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        with connect(address, self.command_config, self.timeout, client_id) as client:
            patient = client.config
            client.config = patient.with_timeout(min(self.timeout, REACH_SECONDS))
            try:
                client.serves(cluster_wire.DescribeClusterRequest)  # Connects.
            except ClientError as error:
                raise Unreachable(str(error)) from None
            client.config = patient
            yield client


def describe_cluster(
    client: ClusterClient, endpoint_type: int, *, fenced: bool = False
) -> cluster_wire.DescribeClusterResponse:
    """Return a cluster's id, and its nodes of one kind. Raises: CommandError."""
    request = cluster_wire.DescribeClusterRequest(
        endpoint_type=endpoint_type,
        include_cluster_authorized_operations=False,
        include_fenced_brokers=fenced,
    )
    # Version 0 has no endpoint type: controllers need version 1.
    response = client.ask(request, cluster_wire.DescribeClusterResponse)
    check("the cluster", response.error_code, response.error_message)
    return response
