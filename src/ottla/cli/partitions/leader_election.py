"""`ottla leader-election`: preferred and unclean leader elections. As kafka-leader-election.sh."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from ottla.base.errors import Error
from ottla.cli.errors import CommandError, UsageError, shown
from ottla.cli.options import (
    BootstrapServer,
    CommandConfig,
    Timeout,
    ZooKeeper,
    check_number,
    check_zookeeper,
    choose_config,
    connect,
)
from ottla.cli.partitions import election_zookeeper
from ottla.cli.partitions import partition_file as files
from ottla.cli.typing_app import examples, new_app
from ottla.client.cluster import ClusterClient
from ottla.client.errors import check, reason_of
from ottla.client.partitions import TopicPartition
from ottla.wire.messages import elect_leaders as wire

app = new_app()

EPILOG = examples(
    "ottla leader-election --bootstrap-server localhost:9092 --election-type preferred "
    "--all-topic-partitions",
    "ottla leader-election --bootstrap-server localhost:9092 --election-type unclean "
    "--topic orders --partition 0",
    "ottla leader-election --bootstrap-server localhost:9092 --election-type preferred "
    "--path-to-json-file partitions.json",
) + (
    '\n\n\b\nThe file:\n  {"partitions": [{"topic": "orders", "partition": 0}]}'
    "\n\nAn unclean election can lose records: it elects any live replica where there is no leader."
)

ELECTION_TYPES = {"preferred": 0, "unclean": 1}
DEFAULT_TIMEOUT_SECONDS = 30.0

Outcomes = dict[TopicPartition, tuple[int, str | None]]
"""Error code and message of the controller, by partition."""


AdminConfig = Annotated[
    str | None,
    typer.Option(
        "--admin.config", metavar="FILE", help="Former --command-config.", show_default=False
    ),
]


@app.command("leader-election", epilog=EPILOG)
def leader_election(
    election_type: Annotated[
        str,
        typer.Option(
            "--election-type",
            metavar="TYPE",
            help="preferred: the first replica, if in sync; unclean: any live one.",
        ),
    ],
    bootstrap_server: BootstrapServer = None,
    zookeeper: ZooKeeper = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="NAME", help="The topic of --partition.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="N", help="One partition.")
    ] = None,
    path_to_json_file: Annotated[
        Path | None, typer.Option("--path-to-json-file", metavar="FILE", help="Many partitions.")
    ] = None,
    all_topic_partitions: Annotated[
        bool, typer.Option("--all-topic-partitions", help="All partitions that need an election.")
    ] = False,
    command_config: CommandConfig = None,
    admin_config: AdminConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Elect leaders of partitions: the preferred ones, or unclean ones where there is none."""
    kind = election_type.lower()
    if kind not in ELECTION_TYPES:
        raise UsageError(f"--election-type {shown(election_type)}: expected preferred or unclean")
    chosen = (topic is not None, all_topic_partitions, path_to_json_file is not None)
    if sum(chosen) != 1:
        raise UsageError(
            "One and only one of the following options is required: "
            "--topic, --all-topic-partitions, --path-to-json-file"
        )
    if topic is not None and partition is None:
        raise UsageError("--partition is required with --topic")
    if topic is None and partition is not None:
        raise UsageError("--partition is only allowed if --topic is used")
    check_number("--partition", partition, 0)
    wanted: list[TopicPartition] | None = None
    if path_to_json_file is not None:
        wanted = files.read_as(path_to_json_file, files.parse_partitions)
    elif topic is not None and partition is not None:
        wanted = [(topic, partition)]
    command_config = choose_config(
        "--command-config", command_config, "--admin.config", admin_config
    )
    if zookeeper is not None:
        check_zookeeper(bootstrap_server, command_config)
        if kind != "preferred":
            raise UsageError("--zookeeper serves --election-type preferred only")
        election_zookeeper.elect(zookeeper, timeout, wanted)
        return
    with connect(bootstrap_server, command_config, timeout, "leader-election-tool") as client:
        outcomes = elect(client, ELECTION_TYPES[kind], wanted)
    report(kind.upper(), outcomes)


def elect(
    client: ClusterClient, election_type: int, wanted: Collection[TopicPartition] | None
) -> Outcomes:
    """Send ElectLeaders, for all partitions where None; return the result of each."""
    topics: dict[str, list[int]] = {}
    for name, partition in sorted(wanted or ()):
        topics.setdefault(name, []).append(partition)
    request = wire.ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=None
        if wanted is None
        else tuple(
            wire.TopicPartitions(topic=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
        timeout_ms=client.timeout_ms,
    )

    def act() -> Outcomes:
        response = client.ask(request, wire.ElectLeadersResponse)
        check("the election", response.error_code)
        outcomes: Outcomes = {}
        for result in response.replica_election_results:
            for each in result.partition_result:
                if each.error_code == Error.NOT_CONTROLLER:
                    check("the election", each.error_code, each.error_message)  # Retried.
                key = (result.topic, each.partition_id)
                outcomes[key] = (each.error_code, each.error_message)
        return outcomes

    return client.with_retries(act)


def report(kind: str, outcomes: Outcomes) -> None:
    """Print the results of elections; raise CommandError if any failed."""
    done = [key for key, (code, _) in outcomes.items() if code == Error.NONE]
    needless = [key for key, (code, _) in outcomes.items() if code == Error.ELECTION_NOT_NEEDED]
    failed = sorted(set(outcomes) - set(done) - set(needless))
    if done:
        names = files.names_of(done, ", ")
        print(f"Successfully completed leader election ({kind}) for partitions {names}")
    if needless:
        names = files.names_of(needless, ", ")
        print(f"Valid replica already elected for partitions {names}")
    for key in failed:
        print(
            f"Error completing leader election ({kind}) for partition: "
            f"{files.name_of(key)}: {reason_of(*outcomes[key])}"
        )
    if failed:
        raise CommandError(f"{len(failed)} replica(s) could not be elected")
