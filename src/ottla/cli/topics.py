"""`ottla topics`: create, delete, describe, list or alter topics. As kafka-topics.sh.

Beyond that one, it tells of deletions (`ottla.cli.deletions`) and of topics that nobody uses
(`ottla.cli.idle_topics`).
"""

from ottla.cli import deletions, idle_topics, topic_admin, topics_zookeeper
from ottla.cli import topic_options as opt
from ottla.cli.deletions_client import Selection
from ottla.cli.errors import CommandError
from ottla.cli.options import (
    DEFAULT_TIMEOUT_SECONDS,
    BootstrapServer,
    CommandConfig,
    ZooKeeper,
    check_zookeeper,
    connect,
    one_of,
)
from ottla.cli.topic_filter import choose
from ottla.cli.topic_options import Wish
from ottla.cli.topic_text import describe_lines
from ottla.cli.typing_app import examples, new_app
from ottla.cli.wire_client import WireClient, say

app = new_app()

EPILOG = examples(
    "ottla topics --bootstrap-server localhost:9092 --create --topic orders --partitions 6",
    "ottla topics --bootstrap-server localhost:9092 --describe --topic orders",
    "ottla topics --bootstrap-server localhost:9092 --list --exclude-internal",
    "ottla topics --bootstrap-server localhost:9092 --delete --topic 'orders-.*'",
    "ottla topics --zookeeper localhost:2181 --delete --topic orders",
    "ottla topics --bootstrap-server localhost:9092 --describe-deletions --topic orders --wait",
)


@app.command("topics", epilog=EPILOG)
def topics(
    bootstrap_server: BootstrapServer = None,
    zookeeper: ZooKeeper = None,
    create: opt.Create = False,
    delete: opt.Delete = False,
    describe: opt.Describe = False,
    list_: opt.List = False,
    alter: opt.Alter = False,
    describe_deletions: opt.DescribeDeletions = False,
    describe_idle: opt.DescribeIdle = False,
    topic: opt.Topic = None,
    topic_id: opt.TopicId = None,
    partitions: opt.Partitions = None,
    replication_factor: opt.ReplicationFactor = None,
    replica_assignment: opt.ReplicaAssignment = None,
    config: opt.Config = [],  # noqa: B006 - typer copies it
    delete_config: opt.DeleteConfig = [],  # noqa: B006
    if_exists: opt.IfExists = False,
    if_not_exists: opt.IfNotExists = False,
    exclude_internal: opt.ExcludeInternal = False,
    under_replicated_partitions: opt.UnderReplicated = False,
    unavailable_partitions: opt.Unavailable = False,
    under_min_isr_partitions: opt.UnderMinIsr = False,
    at_min_isr_partitions: opt.AtMinIsr = False,
    topics_with_overrides: opt.WithOverrides = False,
    partition_limit: opt.PartitionLimit = 2000,
    json: opt.AsJson = False,
    wait: opt.Wait = False,
    command_config: CommandConfig = None,
    timeout: opt.Timeout = None,
) -> None:
    """Create, delete, describe, list or alter topics."""
    wish = opt.wish_of(locals())
    action = one_of(
        create=create,
        delete=delete,
        describe=describe,
        list=list_,
        alter=alter,
        describe_deletions=describe_deletions,
        describe_idle=describe_idle,
    )
    opt.check(action, wish)
    if delete_config:
        say(opt.DELETE_CONFIG_NOTICE)
    if timeout is None:
        timeout = opt.WAIT_SECONDS if wait else DEFAULT_TIMEOUT_SECONDS
    if zookeeper is not None:
        check_zookeeper(bootstrap_server, command_config)
        topics_zookeeper.run(action, zookeeper, timeout, wish)
        return
    with connect(bootstrap_server, command_config, timeout, "topics-tool") as client:
        ACTIONS[action](client, wish)


def _create(client: WireClient, wish: Wish) -> None:
    assert wish.topic is not None
    if set(wish.topic) & set("._"):
        print(
            "WARNING: a name with '.' or '_' can collide with another one in the names of "
            "metrics: use one of the two throughout."
        )
    created = topic_admin.create(
        client,
        wish.topic,
        partitions=wish.partitions,
        replication_factor=wish.replication_factor,
        assignment=wish.replica_assignment,
        configs=dict(wish.config),
        unless_exists=wish.if_not_exists,
    )
    if created:
        print(f"Created topic {wish.topic}.")


def _list(client: WireClient, wish: Wish) -> None:
    names = [topic.name or "" for topic in client.topics()]
    print("\n".join(choose(names, wish.topic, exclude_internal=wish.exclude_internal)))


def _describe(client: WireClient, wish: Wish) -> None:
    every = client.topics()
    if wish.topic_id is not None:
        names = [topic.name or "" for topic in every if topic.topic_id == wish.topic_id]
        missing = "no topic has this id"
    else:
        found = [topic.name or "" for topic in every]
        names = choose(found, wish.topic, exclude_internal=wish.exclude_internal)
        missing = f"no topic matches {wish.topic!r}"
    if not names:
        if wish.if_exists or (wish.topic is None and wish.topic_id is None):
            return
        raise CommandError(f"{missing}: expected one that exists")
    live = set(client.broker_ids())
    for topic in topic_admin.describe(client, names, wish.partition_limit):
        for line in describe_lines(topic, wish.report, live):
            print(line)


def _alter(client: WireClient, wish: Wish) -> None:
    assert wish.partitions is not None
    names = _matching(client, wish)
    if names:
        topic_admin.grow(client, names, wish.partitions, wish.replica_assignment)


def _delete(client: WireClient, wish: Wish) -> None:
    names = _matching(client, wish)
    if names:
        topic_admin.delete(client, names)


def _describe_deletions(client: WireClient, wish: Wish) -> None:
    selection = Selection(wish.topic, wish.topic_id)
    if wish.wait:
        deletions.wait(client, selection, client.timeout, as_json=wish.json)
    else:
        deletions.describe(client, selection, as_json=wish.json)


def _describe_idle(client: WireClient, wish: Wish) -> None:
    idle_topics.show(client, wish.topic, as_json=wish.json)


def _matching(client: WireClient, wish: Wish) -> list[str]:
    found = [topic.name or "" for topic in client.topics()]
    names = choose(found, wish.topic, exclude_internal=False)
    if not names and not wish.if_exists:
        raise CommandError(f"no topic matches {wish.topic!r}: expected one that exists")
    return names


ACTIONS = {
    "create": _create,
    "delete": _delete,
    "describe": _describe,
    "list": _list,
    "alter": _alter,
    "describe_deletions": _describe_deletions,
    "describe_idle": _describe_idle,
}
