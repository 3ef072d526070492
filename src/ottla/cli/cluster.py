"""`ottla cluster`: the cluster's id and endpoints; brokers that never return. As kafka-cluster.sh.

Source: ClusterTool, Kafka 4.1; KIP-646 (unregister), KIP-1073 (fenced brokers).
"""

from typing import Annotated

import typer

from ottla.cli.options import (
    DEFAULT_TIMEOUT_SECONDS,
    BootstrapServer,
    CommandConfig,
    Timeout,
    check_number,
    connect,
)
from ottla.cli.typing_app import examples, new_app
from ottla.cli.wire_client import WireClient, check
from ottla.wire.messages import describe_cluster as wire
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

app = new_app()

BROKERS = 1
"""The kind of endpoint that DescribeCluster tells of (KIP-919)."""

CLIENT_ID = "cluster-tool"

EPILOG = examples(
    "ottla cluster cluster-id --bootstrap-server localhost:9092",
    "ottla cluster list-endpoints --bootstrap-server localhost:9092 --include-fenced-brokers",
    "ottla cluster unregister --bootstrap-server localhost:9092 --id 3",
)


@app.callback(epilog=EPILOG)
def cluster() -> None:
    """Show the cluster's id and endpoints, or take a broker out of it for good."""


@app.command("cluster-id")
def cluster_id(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Show the cluster's id."""
    with connect(bootstrap_server, command_config, timeout, CLIENT_ID) as client:
        print(f"Cluster ID: {_describe(client).cluster_id}")


@app.command("list-endpoints")
def list_endpoints(
    bootstrap_server: BootstrapServer = None,
    include_fenced_brokers: Annotated[
        bool,
        typer.Option("--include-fenced-brokers", help="Also brokers that are down, or starting."),
    ] = False,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """List the brokers and where they listen."""
    with connect(bootstrap_server, command_config, timeout, CLIENT_ID) as client:
        brokers = _describe(client, include_fenced=include_fenced_brokers).brokers
    print("\n".join(endpoint_lines(brokers)))


@app.command("unregister")
def unregister(
    broker_id: Annotated[
        int, typer.Option("--id", metavar="ID", help="The broker that will never return.")
    ],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Take a broker out of a KRaft cluster for good.

    Its replicas stay listed until their partitions are reassigned, or a broker of that id comes;
    what it has not deleted yet is given up.
    """
    check_number("--id", broker_id, 0)
    with connect(bootstrap_server, command_config, timeout, CLIENT_ID) as client:
        client.expect_kraft(UnregisterBrokerRequest)
        request = UnregisterBrokerRequest(broker_id=broker_id)
        answer = client.patiently(lambda: client.ask(request, UnregisterBrokerResponse))
        check(f"broker {broker_id}", answer.error_code, answer.error_message)
    print(f"Broker {broker_id} is no longer registered.")


def _describe(client: WireClient, *, include_fenced: bool = False) -> wire.DescribeClusterResponse:
    request = wire.DescribeClusterRequest(
        include_cluster_authorized_operations=False,
        endpoint_type=BROKERS,
        include_fenced_brokers=include_fenced,
    )
    answer = client.ask(request, wire.DescribeClusterResponse)
    check("the cluster", answer.error_code, answer.error_message)
    return answer


def endpoint_lines(brokers: tuple[wire.DescribeClusterBroker, ...]) -> list[str]:
    """Return the table as Kafka lays it out."""
    width = max((len(each.host) for each in brokers), default=0)
    heading = ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")
    rows = [heading] + [
        (
            str(each.broker_id),
            each.host,
            str(each.port),
            each.rack or "null",
            "fenced" if each.is_fenced else "unfenced",
            "broker",
        )
        for each in sorted(brokers, key=lambda each: each.broker_id)
    ]
    widths = (10, max(width, len("HOST")), 10, 10, 10, 15)
    return [
        " ".join(word.ljust(size) for word, size in zip(row, widths, strict=True)) for row in rows
    ]
