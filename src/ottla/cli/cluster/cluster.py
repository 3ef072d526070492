"""`ottla cluster`: cluster id, endpoints, unregistering a broker. As kafka-cluster.sh.

Source: ClusterTool, Kafka 4.3; KIP-646 (unregister), KIP-919 (controllers), KIP-1073 (fenced
brokers).
"""

from typing import Annotated

import typer

from ottla.cli.bootstrap_options import (
    BROKERS,
    CONTROLLERS,
    BootstrapOptions,
    bootstrap_controller_option,
    describe_cluster,
)
from ottla.cli.errors import UsageError
from ottla.cli.options import (
    DEFAULT_TIMEOUT_SECONDS,
    Timeout,
    bootstrap_server_option,
    check_number,
    choose_config,
    command_config_option,
    expect_kraft,
)
from ottla.cli.typing_app import examples, new_app
from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.wire.messages.describe_cluster import DescribeClusterBroker
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

app = new_app()

CLIENT_ID = "cluster-tool"

EPILOG = examples(
    "ottla cluster cluster-id --bootstrap-server localhost:9092",
    "ottla cluster list-endpoints --bootstrap-server localhost:9092 --include-fenced-brokers",
    "ottla cluster list-endpoints --bootstrap-controller localhost:9192",
    "ottla cluster unregister --bootstrap-server localhost:9092 --id 3",
)

BootstrapServer = Annotated[str | None, bootstrap_server_option("-b")]
BootstrapController = Annotated[str | None, bootstrap_controller_option("-C")]
CommandConfig = Annotated[str | None, command_config_option("-c")]
Config = Annotated[str | None, typer.Option("--config", metavar="FILE", hidden=True)]


@app.callback(epilog=EPILOG)
def cluster() -> None:
    """Show the cluster's id and endpoints, or unregister a broker."""


@app.command("cluster-id")
def cluster_id(
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: BootstrapController = None,
    command_config: CommandConfig = None,
    config: Config = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Show the cluster's id."""
    bootstrap = _bootstrap(bootstrap_server, bootstrap_controller, command_config, config, timeout)
    with bootstrap.any(CLIENT_ID) as client:
        print(f"Cluster ID: {describe_cluster(client, bootstrap.endpoint_type).cluster_id}")


@app.command("list-endpoints")
def list_endpoints(
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: BootstrapController = None,
    include_fenced_brokers: Annotated[
        bool,
        typer.Option("--include-fenced-brokers", help="Include brokers that are down or starting."),
    ] = False,
    command_config: CommandConfig = None,
    config: Config = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """List the brokers, or the controllers, and where they listen."""
    bootstrap = _bootstrap(bootstrap_server, bootstrap_controller, command_config, config, timeout)
    kind = bootstrap.endpoint_type
    if include_fenced_brokers and kind == CONTROLLERS:
        raise UsageError(
            "The option --include-fenced-brokers is only supported with --bootstrap-server option"
        )
    with bootstrap.any(CLIENT_ID) as client:
        nodes = describe_cluster(client, kind, fenced=include_fenced_brokers).brokers
    print("\n".join(endpoint_lines(nodes, kind)))


@app.command("unregister")
def unregister(
    broker_id: Annotated[
        int, typer.Option("--id", "-i", metavar="ID", help="The broker that will never return.")
    ],
    bootstrap_server: BootstrapServer = None,
    bootstrap_controller: BootstrapController = None,
    command_config: CommandConfig = None,
    config: Config = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Unregister a broker that will never return (KRaft only).

    Its replicas stay assigned until their partitions are reassigned or a broker with that id
    registers. If it does return, they are not eligible to lead until they have caught up.
    Deletions that it has not confirmed become abandoned.
    """
    check_number("--id", broker_id, 0)

    def act(client: ClusterClient) -> None:
        expect_kraft(client, UnregisterBrokerRequest)
        request = UnregisterBrokerRequest(broker_id=broker_id)
        response = client.ask(request, UnregisterBrokerResponse)
        check(f"broker {broker_id}", response.error_code, response.error_message)

    bootstrap = _bootstrap(bootstrap_server, bootstrap_controller, command_config, config, timeout)
    bootstrap.ask(CLIENT_ID, act)
    print(f"Broker {broker_id} is no longer registered.")


def _bootstrap(
    brokers: str | None,
    controllers: str | None,
    command_config: str | None,
    config: str | None,
    timeout: float,
) -> BootstrapOptions:
    chosen = choose_config("--command-config", command_config, "--config", config)
    return BootstrapOptions(brokers, controllers, chosen, timeout)


def endpoint_lines(nodes: tuple[DescribeClusterBroker, ...], kind: int = BROKERS) -> list[str]:
    """Return the table in Kafka's layout. Controllers are never fenced and have no state column."""
    width = max((len(each.host) for each in nodes), default=0)
    of_brokers = kind == BROKERS
    states = ("STATE",) if of_brokers else ()
    heading = ("ID", "HOST", "PORT", "RACK", *states, "ENDPOINT_TYPE")
    rows = [heading]
    for each in sorted(nodes, key=lambda each: each.broker_id):
        state = ("fenced" if each.is_fenced else "unfenced",) if of_brokers else ()
        endpoint_type = "broker" if of_brokers else "controller"
        rows.append(
            (
                str(each.broker_id),
                each.host,
                str(each.port),
                each.rack or "null",
                *state,
                endpoint_type,
            )
        )
    widths = (10, max(width, len("HOST")), 10, 10, *([10] if of_brokers else []), 15)
    return [
        " ".join(word.ljust(size) for word, size in zip(row, widths, strict=True)) for row in rows
    ]
