"""`ottla tier`: where the tiers of partitions begin and end, and what deleted topics have left."""

from dataclasses import replace

from ottla.base.errors import Error
from ottla.cli.errors import CommandError
from ottla.cli.options import (
    DEFAULT_TIMEOUT_SECONDS,
    BootstrapServer,
    CommandConfig,
    Timeout,
    connect,
)
from ottla.cli.progress import print_stderr
from ottla.cli.tier import purge_status, tier_waits
from ottla.cli.tier.abandon_purge import abandon_purge
from ottla.cli.tier.restore import restore
from ottla.cli.tier.tier_options import (
    CLIENT_ID,
    WAIT_SECONDS,
    AsJson,
    TopicExpression,
    Wait,
    WaitPurged,
    WaitTimeout,
)
from ottla.cli.tier.tier_text import TopicTiers, json_text, table_lines
from ottla.cli.topics.topic_filter import choose
from ottla.cli.typing_app import examples, new_app
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, check
from ottla.client.partitions import TopicPartition
from ottla.client.remote_logs import describe_remote_logs
from ottla.wire.messages import describe_remote_log as wire
from ottla.wire.messages.describe_topic_tiering import (
    DescribedTopicTiering,
    DescribeTopicTieringRequest,
)
from ottla.wire.messages.metadata import MetadataResponseTopic

app = new_app()

EPILOG = examples(
    "ottla tier describe --bootstrap-server localhost:9092",
    "ottla tier describe --topic orders --json",
    "ottla tier describe --topic orders --wait --timeout 60",
    "ottla tier purge-status --bootstrap-server localhost:9092",
    "ottla tier abandon-purge --topic-id 1fCzmb8xT2SBmHNBkZCqMg --execute",
    "ottla tier restore --remote-storage s3://bucket/prefix --topic orders --plan",
)


@app.callback(epilog=EPILOG)
def tier() -> None:
    """Describe tiered storage; restore topics from it; give up purges."""


@app.command("describe", epilog=EPILOG)
def describe(
    bootstrap_server: BootstrapServer = None,
    topic: TopicExpression = None,
    as_json: AsJson = False,
    wait: Wait = False,
    wait_purged: WaitPurged = False,
    command_config: CommandConfig = None,
    timeout: WaitTimeout = None,
) -> None:
    """Show topics' tiering states, what they wait for, and each partition's tiers.

    Without --topic: all topics that have, or had, remote.storage.enable=true.
    """
    waits = wait or wait_purged
    if timeout is None:
        timeout = WAIT_SECONDS if waits else DEFAULT_TIMEOUT_SECONDS
    with connect(bootstrap_server, command_config, timeout, CLIENT_ID) as client:
        if not client.serves(wire.DescribeRemoteLogRequest):
            raise CommandError(
                f"the brokers at {client.config.bootstrap} do not serve DescribeRemoteLog: "
                "they run Kafka or an older version of Ottla"
            )
        if waits:
            names = None if topic is None else list(_chosen(client, topic))
            config = client.config
            tier_waits.wait(client, names, timeout, purged=wait_purged)
            client.config = config
        found = _describe(client, topic)
    if as_json:
        print(json_text(found))
    elif found:
        print("\n".join(table_lines(found)))
    else:
        print("No topic has remote.storage.enable=true.")


@app.command("purge-status", epilog=EPILOG)
def purge_status_command(
    bootstrap_server: BootstrapServer = None,
    topic: TopicExpression = None,
    as_json: AsJson = False,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Show the deleted topics whose objects are not all deleted in the store.

    What is left of a topic, and the last error, is what its brokers last reported.
    """
    with connect(bootstrap_server, command_config, timeout, CLIENT_ID) as client:
        purges = purge_status.pending_purges(client, topic)
    if as_json:
        print(purge_status.json_text(purges))
    elif purges:
        print("\n".join(purge_status.table_lines(purges)))
    else:
        print("No purge is pending.")


app.command("abandon-purge", epilog=EPILOG)(abandon_purge)
app.command("restore", epilog=EPILOG)(restore)


def _chosen(client: ClusterClient, expression: str | None) -> dict[str, MetadataResponseTopic]:
    """Return the topics to describe, by name."""
    every = {each.name or "": each for each in client.topics()}
    if expression is None:
        return every
    names = choose(list(every), expression, exclude_internal=False)
    if not names:
        raise CommandError(f"no topic matches {expression!r}: expected one that exists")
    return {name: every[name] for name in names}


def _describe(client: ClusterClient, expression: str | None) -> list[TopicTiers]:
    chosen = _chosen(client, expression)
    leaders: dict[int, list[TopicPartition]] = {}
    rows: dict[str, dict[int, tuple[int, wire.RemoteLogPartition]]] = {}
    for name, described in chosen.items():
        for each in described.partitions:
            if each.leader_id < 0:
                rows.setdefault(name, {})[each.partition_index] = (
                    -1,
                    _without_leader(each.partition_index),
                )
            else:
                key = (name, each.partition_index)
                leaders.setdefault(each.leader_id, []).append(key)
    topics: dict[str, wire.RemoteLogTopic] = {}
    for leader, keys in sorted(leaders.items()):
        for found in _ask(client, leader, keys):
            newest = topics.get(found.name)
            if newest is None or found.tiered_epoch > newest.tiered_epoch:
                topics[found.name] = found
            for row in found.partitions:
                rows.setdefault(found.name, {})[row.partition] = (leader, row)
    led = {name for name in rows if name in topics}
    asked = [each for each in rows if each not in led or topics[each].state]
    known = _controller_states(client, asked)
    for name in rows.keys() - led:
        topics[name] = _of_controller(name, chosen[name], known.get(name))
    return [
        _with_state(topics[name], sorted(rows[name].items()), known.get(name))
        for name in sorted(topics)
        if topics[name].state or expression is not None
    ]


def _of_controller(
    name: str, described: MetadataResponseTopic, known: DescribedTopicTiering | None
) -> wire.RemoteLogTopic:
    """Return a topic without any leader; the controller's state is added later."""
    topic_id = described.topic_id if known is None else known.topic_id
    state = 0 if known is None else known.state
    return wire.RemoteLogTopic(name=name, topic_id=topic_id, state=state)


def _controller_states(client: ClusterClient, names: list[str]) -> dict[str, DescribedTopicTiering]:
    """Return what the controller says of topics; nothing where it does not answer."""
    if not names or not client.serves(DescribeTopicTieringRequest):
        return {}
    try:
        return tier_waits.states(client, names)
    except ClientError as error:
        print_stderr(f"who has not acknowledged a state is not known: {error}")
        return {}


def _with_state(
    topic: wire.RemoteLogTopic,
    rows: list[tuple[int, tuple[int, wire.RemoteLogPartition]]],
    known: DescribedTopicTiering | None,
) -> TopicTiers:
    """Return a topic with the controller's state, unless its leader knows a newer one."""
    if known is None or not known.state or known.topic_id != topic.topic_id:
        return TopicTiers(topic, rows)
    if known.tiered_epoch < topic.tiered_epoch:
        return TopicTiers(topic, rows)  # A deposed controller answered.
    state = replace(
        topic,
        state=known.state,
        tiered_epoch=known.tiered_epoch,
        policy=known.policy,
        remote_floor_epoch=known.remote_floor_epoch,
        purge_pending=known.purge_pending,
    )
    return TopicTiers(state, rows, known)


def _ask(
    client: ClusterClient, leader: int, keys: list[TopicPartition]
) -> tuple[wire.RemoteLogTopic, ...]:
    try:
        response = describe_remote_logs(client, leader, keys)
        check(f"broker {leader}", response.error_code, response.error_message)
    except ClientError as error:
        raise CommandError(f"broker {leader}, the leader of {_some(keys)}: {error}") from None
    return response.topics


def _without_leader(partition: int) -> wire.RemoteLogPartition:
    return wire.RemoteLogPartition(
        partition=partition,
        error_code=Error.LEADER_NOT_AVAILABLE,
        error_message=Error.LEADER_NOT_AVAILABLE.message,
    )


def _some(keys: list[TopicPartition]) -> str:
    name, partition = keys[0]
    more = "" if len(keys) == 1 else f" and {len(keys) - 1} more"
    return f"{name}-{partition}{more}"
