"""`ottla metadata-quorum`: the KRaft metadata quorum. As kafka-metadata-quorum.sh."""

import time
from typing import Annotated

import typer

from ottla.base.ids import METADATA_TOPIC
from ottla.cli.bootstrap_options import BootstrapOptions, choose, describe_cluster
from ottla.cli.cluster.quorum_text import Quorum, replication_lines, status_lines
from ottla.cli.errors import CommandError, UsageError
from ottla.cli.options import expect_kraft
from ottla.cli.typing_app import examples, new_app
from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.wire.messages import describe_quorum as wire

app = new_app()

CLIENT_ID = "metadata-quorum-tool"

EPILOG = examples(
    "ottla metadata-quorum --bootstrap-server localhost:9092 describe --status",
    "ottla metadata-quorum --bootstrap-controller localhost:9192 describe --replication "
    "--human-readable",
)

FIXED_VOTERS = (
    "is not supported: the voters are those of controller.quorum.voters (kraft.version 0)"
)


app.callback(epilog=EPILOG, help="Describe the metadata quorum.")(choose)


@app.command("describe")
def describe(
    context: typer.Context,
    status: Annotated[bool, typer.Option("--status", help="Leader, lag and members.")] = False,
    replication: Annotated[
        bool, typer.Option("--replication", help="Log end offset and lag of each member.")
    ] = False,
    human_readable: Annotated[
        bool, typer.Option("--human-readable", help="With --replication: times as ages.")
    ] = False,
) -> None:
    """Show the quorum's state."""
    if status == replication:
        what = "only one" if status else "one"
        raise UsageError(f"{what} of --status and --replication must be given with describe")
    if human_readable and not replication:
        raise UsageError("--human-readable goes with --replication only")
    bootstrap: BootstrapOptions = context.obj
    quorum = bootstrap.ask(CLIENT_ID, lambda client: _describe(client, bootstrap.endpoint_type))
    if status:
        lines = status_lines(quorum)
    else:
        now_ms = time.time_ns() // 1_000_000 if human_readable else None
        lines = replication_lines(quorum, now_ms)
    print("\n".join(lines))


@app.command("add-controller")
def add_controller(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing.")] = False,
) -> None:
    """Refused: the voters are fixed in each node's properties."""
    raise CommandError(f"add-controller {FIXED_VOTERS}")


@app.command("remove-controller")
def remove_controller(
    controller_id: Annotated[int | None, typer.Option("--controller-id", metavar="ID")] = None,
    controller_directory_id: Annotated[
        str | None, typer.Option("--controller-directory-id", metavar="UUID")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing.")] = False,
) -> None:
    """Refused: the voters are fixed in each node's properties."""
    raise CommandError(f"remove-controller {FIXED_VOTERS}")


def _describe(client: ClusterClient, kind: int) -> Quorum:
    expect_kraft(client, wire.DescribeQuorumRequest)
    cluster = describe_cluster(client, kind)
    partition = wire.RequestPartitionData(partition_index=0)
    topic = wire.RequestTopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    response = client.ask(wire.DescribeQuorumRequest(topics=(topic,)), wire.DescribeQuorumResponse)
    check("the quorum", response.error_code, response.error_message)
    partitions = [each for topic in response.topics for each in topic.partitions]
    if len(partitions) != 1:
        raise CommandError(f"the response has {len(partitions)} partitions: expected one")
    check("the quorum", partitions[0].error_code, partitions[0].error_message)
    return Quorum(cluster.cluster_id, partitions[0], response.nodes)
