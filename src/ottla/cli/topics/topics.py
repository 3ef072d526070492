"""`ottla topics`: create, delete, describe, list or alter topics. As kafka-topics.sh.

Ottla's own: --describe-deletions (`ottla.cli.topics.deletions`) and --describe-idle
(`ottla.cli.topics.idle_topics`).
"""

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
from ottla.cli.progress import print_stderr
from ottla.cli.topics import deletions, idle_topics, topic_admin, topics_zookeeper
from ottla.cli.topics import topic_options as opt
from ottla.cli.topics.deletions_client import Selection
from ottla.cli.topics.topic_filter import choose
from ottla.cli.topics.topic_options import TopicOptions
from ottla.cli.topics.topic_text import describe_lines
from ottla.cli.typing_app import examples, new_app
from ottla.client.cluster import ClusterClient

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
    options = opt.parse_options(locals())
    action = one_of(
        create=create,
        delete=delete,
        describe=describe,
        list=list_,
        alter=alter,
        describe_deletions=describe_deletions,
        describe_idle=describe_idle,
    )
    opt.check(action, options)
    if delete_config:
        print_stderr(opt.DELETE_CONFIG_NOTICE)
    if timeout is None:
        timeout = opt.WAIT_SECONDS if wait else DEFAULT_TIMEOUT_SECONDS
    if zookeeper is not None:
        check_zookeeper(bootstrap_server, command_config)
        topics_zookeeper.run(action, zookeeper, timeout, options)
        return
    with connect(bootstrap_server, command_config, timeout, "topics-tool") as client:
        ACTIONS[action](client, options)


def _create(client: ClusterClient, options: TopicOptions) -> None:
    assert options.topic is not None
    if set(options.topic) & set("._"):
        print(
            "WARNING: a name with '.' or '_' can collide with another one in the names of "
            "metrics: use one of the two throughout."
        )
    created = topic_admin.create(
        client,
        options.topic,
        partitions=options.partitions,
        replication_factor=options.replication_factor,
        assignment=options.replica_assignment,
        configs=dict(options.config),
        unless_exists=options.if_not_exists,
    )
    if created:
        print(f"Created topic {options.topic}.")


def _list(client: ClusterClient, options: TopicOptions) -> None:
    names = [topic.name or "" for topic in client.topics()]
    print("\n".join(choose(names, options.topic, exclude_internal=options.exclude_internal)))


def _describe(client: ClusterClient, options: TopicOptions) -> None:
    every = client.topics()
    if options.topic_id is not None:
        names = [topic.name or "" for topic in every if topic.topic_id == options.topic_id]
        missing = "no topic has this id"
    else:
        found = [topic.name or "" for topic in every]
        names = choose(found, options.topic, exclude_internal=options.exclude_internal)
        missing = f"no topic matches {options.topic!r}"
    if not names:
        if options.if_exists or (options.topic is None and options.topic_id is None):
            return
        raise CommandError(f"{missing}: expected one that exists")
    live = set(client.broker_ids())
    for topic in topic_admin.describe(client, names, options.partition_limit):
        for line in describe_lines(topic, options.report, live):
            print(line)


def _alter(client: ClusterClient, options: TopicOptions) -> None:
    assert options.partitions is not None
    names = _matching(client, options)
    if names:
        topic_admin.grow(client, names, options.partitions, options.replica_assignment)


def _delete(client: ClusterClient, options: TopicOptions) -> None:
    names = _matching(client, options)
    if names:
        topic_admin.delete(client, names)


def _describe_deletions(client: ClusterClient, options: TopicOptions) -> None:
    selection = Selection(options.topic, options.topic_id)
    if options.wait:
        deletions.wait(client, selection, client.config.request_s, as_json=options.json)
    else:
        deletions.describe(client, selection, as_json=options.json)


def _describe_idle(client: ClusterClient, options: TopicOptions) -> None:
    idle_topics.show(client, options.topic, as_json=options.json)


def _matching(client: ClusterClient, options: TopicOptions) -> list[str]:
    found = [topic.name or "" for topic in client.topics()]
    names = choose(found, options.topic, exclude_internal=False)
    if not names and not options.if_exists:
        raise CommandError(f"no topic matches {options.topic!r}: expected one that exists")
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
