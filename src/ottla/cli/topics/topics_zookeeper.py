"""`ottla topics --zookeeper`: topics through a cluster's znodes, as kafka-topics.sh up to 2.8.

The command writes znodes: a topic, more partitions, or a marker for deletion. The controller acts
when its watch fires. So when the command returns, the change is requested, not done.

Source: TopicCommand.ZookeeperTopicService and AdminZkClient, Kafka 2.8; TopicCommand, 0.11.
"""

import uuid
from collections.abc import Callable, Mapping

from ottla.base.errors import ApiError
from ottla.base.ids import INTERNAL_TOPICS, NO_LEADER, NO_UUID, Uuid
from ottla.base.zookeeper import Create, Delete, Operation, SetData
from ottla.cli.configs.configs_client import Entry
from ottla.cli.errors import CommandError, UsageError
from ottla.cli.options import flag
from ottla.cli.topics.topic_filter import choose
from ottla.cli.topics.topic_options import TopicOptions
from ottla.cli.topics.topic_text import Partition, Reassignment, Topic, describe_lines
from ottla.cli.zookeeper_client import WriteConflict, ZooKeeperClient
from ottla.cli.zookeeper_tiering import check_tiering, note_remote_storage
from ottla.client.errors import Refusal
from ottla.controller.topics.create_partitions import check_may_grow
from ottla.controller.topics.create_topics import check_partition_total
from ottla.controller.topics.placement import Candidate, place
from ottla.host.system_ports import SystemDice
from ottla.metadata.configs import ResourceType
from ottla.metadata.topic_config import check_may_go, validate_topic_configs
from ottla.metadata.topic_names import fault_of
from ottla.metadata.topics import metric_name
from ottla.metadata.znodes import admin, paths
from ottla.metadata.znodes.config import decode_config, encode_config
from ottla.metadata.znodes.topic import Assignment, TopicZnode, encode_topic

DYNAMIC_TOPIC_CONFIG = 1

MARKED = "\tMarkedForDeletion: true"


def run(action: str, connect: str, timeout: float, options: TopicOptions) -> None:
    """Run the action of the options. Raises: CommandError, UsageError."""
    if action not in ACTIONS:
        raise UsageError(
            f"{flag(action)} needs brokers, in ZooKeeper mode too: expected --bootstrap-server "
            "instead of --zookeeper"
        )
    if action == "create":
        _check_total(options.topic, len(options.replica_assignment) or options.partitions or 0)
    with ZooKeeperClient(connect, timeout) as client:
        ACTIONS[action](client, options)


# -- listing and describing --------------------------------------------------------------------


def _list(client: ZooKeeperClient, options: TopicOptions) -> None:
    marked = client.marked_for_deletion()
    for name in choose(
        client.topic_names(), options.topic, exclude_internal=options.exclude_internal
    ):
        print(f"{name} - marked for deletion" if name in marked else name)


def _describe(client: ZooKeeperClient, options: TopicOptions) -> None:
    names = choose(client.topic_names(), options.topic, exclude_internal=options.exclude_internal)
    topics = [topic for topic in (_topic(client, name) for name in names) if topic is not None]
    if options.topic_id is not None:
        topics = [topic for topic in topics if topic.id == options.topic_id]
    if not topics:
        if options.if_exists or (options.topic is None and options.topic_id is None):
            return
        raise _missing(client, options.topic)
    live, marked = set(client.broker_ids()), client.marked_for_deletion()
    for topic in topics:
        for line in describe_lines(topic, options.report, live):
            print(line + MARKED if topic.name in marked else line)


def _topic(client: ZooKeeperClient, name: str) -> Topic | None:
    found = client.topic(name)
    if found is None:
        return None
    znode, _ = found
    states = client.states(name, len(znode.partitions))
    return Topic(
        name=name,
        id=znode.topic_id or NO_UUID,
        partitions=tuple(
            Partition(
                id=partition,
                leader=NO_LEADER if state is None else state.leader,
                replicas=znode.partitions[partition].replicas,
                isr=() if state is None else state.isr,
                elr=None,
                last_known_elr=None,
            )
            for partition, state in enumerate(states)
        ),
        configs=[
            Entry(key, value, DYNAMIC_TOPIC_CONFIG, False, ())
            for key, value in sorted(_configs(client, name).items())
        ],
        reassignments={
            partition: Reassignment(each.adding, each.removing)
            for partition, each in znode.partitions.items()
            if each.adding or each.removing
        },
    )


def _configs(client: ZooKeeperClient, name: str) -> Mapping[str, str]:
    resource = (int(ResourceType.TOPIC), name)
    found = client.read(paths.config(resource))
    return {} if found is None else decode_config(resource, found.data).values


# -- creating and growing ----------------------------------------------------------------------


def _create(client: ZooKeeperClient, options: TopicOptions) -> None:
    name, configs = options.topic, dict(options.config)
    assert name is not None
    existing = client.topic_names()
    if name in existing:
        if options.if_not_exists:
            return
        raise CommandError(f"Topic '{name}' already exists.")
    _check_name(name, existing)
    try:
        validate_topic_configs(configs)
        check_may_go(name, configs)
        check_tiering(configs)
    except ApiError as error:
        raise CommandError(error.message or error.error.name) from None
    assignments = {
        partition: Assignment(each) for partition, each in _first_replicas(client, options)
    }
    resource = (int(ResourceType.TOPIC), name)
    operations: list[Operation] = []
    if client.read(paths.config(resource)) is not None:
        operations.append(
            Delete(paths.config(resource))
        )  # Left over from a former topic of that name.
    operations.append(Create(paths.config(resource), encode_config(configs)))
    topic_id = Uuid(uuid.uuid4().bytes)
    operations.append(Create(paths.topic(name), encode_topic(assignments.items(), topic_id)))
    for each in operations:
        client.make_parents(each.path)
    try:
        client.write(operations)
    except WriteConflict:
        raise CommandError(f"Topic '{name}' already exists.") from None
    print(f"Created topic {name}.")
    note_remote_storage({}, configs)


def _check_total(name: str | None, count: int) -> None:
    """Raise Refusal for too many new partitions: the controller adds them in one step."""
    try:
        check_partition_total(count)
    except ApiError as error:
        raise Refusal(f"topic {name}", error.error, error.message) from None


def _check_may_grow(name: str) -> None:
    try:
        check_may_grow(name)
    except ApiError as error:
        raise CommandError(error.message or "") from None


def _check_name(name: str, existing: list[str]) -> None:
    fault = fault_of(name)
    if fault is not None:
        raise CommandError(fault)
    if set(name) & set("._"):
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or "
            "underscore ('_') could collide. To avoid issues it is best to use either, but not "
            "both."
        )
    for other in existing:
        if metric_name(other) == metric_name(name):
            raise CommandError(f"Topic '{name}' collides with existing topics: {other}")


def _first_replicas(
    client: ZooKeeperClient, options: TopicOptions
) -> list[tuple[int, tuple[int, ...]]]:
    if options.replica_assignment:
        return list(enumerate(_known(client, options.replica_assignment)))
    for option, value in (
        ("--partitions", options.partitions),
        ("--replication-factor", options.replication_factor),
    ):
        if value is None:
            raise UsageError(f"{option} is required with --create and --zookeeper")
    assert options.partitions is not None
    assert options.replication_factor is not None
    return _placed(client, 0, options.partitions, options.replication_factor)


def _placed(
    client: ZooKeeperClient, first: int, count: int, factor: int
) -> list[tuple[int, tuple[int, ...]]]:
    candidates = [Candidate(each, rack, fenced=False) for each, rack in client.racks().items()]
    if factor > len(candidates):
        raise CommandError(
            f"Replication factor: {factor} larger than available brokers: {len(candidates)}."
        )
    found = place(
        candidates, first=first, count=count, replication_factor=factor, dice=SystemDice()
    )
    return list(enumerate(found, first))


def _known(
    client: ZooKeeperClient, replicas: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], ...]:
    live = set(client.broker_ids())
    unknown = sorted({each for listed in replicas for each in listed} - live)
    if unknown:
        raise CommandError(
            f"Unknown broker id {unknown[0]}: expected live ones, some of {sorted(live)}"
        )
    return replicas


def _alter(client: ZooKeeperClient, options: TopicOptions) -> None:
    marked = client.marked_for_deletion()
    for name in _matching(client, options):
        _check_may_grow(name)
        if name in marked:
            raise CommandError(f"Topic {name} is marked for deletion.")
        found = client.topic(name)
        if found is None:
            continue  # Deleted meanwhile.
        print(
            "WARNING: If partitions are increased for a topic that has a key, the partition "
            "logic or ordering of the messages will be affected"
        )
        _grow(client, name, *found, options)
        print("Adding partitions succeeded!")


def _grow(
    client: ZooKeeperClient, name: str, znode: TopicZnode, version: int, options: TopicOptions
) -> None:
    count, present = options.partitions, len(znode.partitions)
    assert count is not None
    if any(each.adding or each.removing for each in znode.partitions.values()):
        raise CommandError(f"Topic {name}: a partition reassignment is under way: wait for its end")
    if count <= present:
        raise CommandError(
            f"The number of partitions for a topic can only be increased. Topic {name} currently "
            f"has {present} partitions, {count} would not be an increase."
        )
    _check_total(name, count - present)
    if options.replica_assignment:
        if len(options.replica_assignment) != count:
            raise CommandError(
                f"--replica-assignment names {len(options.replica_assignment)} partitions: "
                f"expected {count}, old ones too"
            )
        added = list(enumerate(_known(client, options.replica_assignment)))[present:]
    else:
        factor = len(znode.partitions[0].replicas)
        added = _placed(client, present, count - present, factor)
    assignments = [*znode.partitions.items(), *((n, Assignment(each)) for n, each in added)]
    data = encode_topic(assignments, znode.topic_id, version=znode.version, extra=znode.extra)
    try:
        client.write([SetData(paths.topic(name), data, version)])
    except WriteConflict:
        raise CommandError(f"Topic {name} was changed meanwhile: try again") from None


# -- deleting ----------------------------------------------------------------------------------


def _delete(client: ZooKeeperClient, options: TopicOptions) -> None:
    for name in _matching(client, options):
        if name in INTERNAL_TOPICS:
            raise CommandError(
                f"Topic {name} is a kafka internal topic and is not allowed to be marked for "
                "deletion."
            )
        try:
            client.make_parents(paths.marker(name))
            client.write([Create(paths.marker(name), admin.MARKER)])
        except WriteConflict:
            print(f"Topic {name} is already marked for deletion.")
            continue
        except CommandError as error:
            # Kafka's text is a line of its own; the reason follows, as in its tool.
            raise CommandError(f"Error while deleting topic {name}\n{error}") from None
        print(f"Topic {name} is marked for deletion.")
        print("Note: This will have no impact if delete.topic.enable is not set to true.")


def _matching(client: ZooKeeperClient, options: TopicOptions) -> list[str]:
    names = choose(client.topic_names(), options.topic, exclude_internal=False)
    if not names and not options.if_exists:
        raise _missing(client, options.topic)
    return names


def _missing(client: ZooKeeperClient, topic: str | None) -> CommandError:
    return CommandError(f"Topic {topic} does not exist on ZK path {client.connect}")


ACTIONS: dict[str, Callable[[ZooKeeperClient, TopicOptions], None]] = {
    "create": _create,
    "delete": _delete,
    "describe": _describe,
    "list": _list,
    "alter": _alter,
}
