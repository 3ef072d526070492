"""`ottla reassign-partitions --zookeeper`: moves through `/admin/reassign_partitions`.

As kafka-reassign-partitions.sh up to 2.8: the znode holds all requested moves; the controller
executes them and removes the znode when all are done. --cancel and --list need a broker.

Source: ReassignPartitionsCommand.executeAssignment(zkClient, ...), Kafka 2.8.
"""

from collections.abc import Iterable

from ottla.base.zookeeper import Create
from ottla.cli.errors import CommandError, UsageError
from ottla.cli.partitions import partition_file as files
from ottla.cli.partitions import reassign_plan as plan
from ottla.cli.partitions.reassign_partitions_options import ReassignOptions, parse_brokers
from ottla.cli.partitions.reassign_plan import Assignment
from ottla.cli.zookeeper_client import WriteConflict, ZooKeeperClient
from ottla.client.partitions import TopicPartition
from ottla.metadata.znodes import admin, paths
from ottla.metadata.znodes.fields import ZnodeError

RUNNING = "There is an existing assignment running."


def run(action: str, connect: str, timeout: float, options: ReassignOptions) -> None:
    """Run the action of the options. Raises: CommandError, UsageError."""
    if action not in ACTIONS:
        raise UsageError(
            f"--{action} needs --bootstrap-server: it is not available through ZooKeeper"
        )
    with ZooKeeperClient(connect, timeout) as client:
        ACTIONS[action](client, options)


def _generate(client: ZooKeeperClient, options: ReassignOptions) -> None:
    assert options.topics_to_move_json_file is not None
    assert options.broker_list is not None
    brokers = parse_brokers(options.broker_list)
    names = files.read_as(options.topics_to_move_json_file, files.parse_topics)
    found = _assignment(client, names)
    for name in names:
        if name not in found:
            raise CommandError(f"Topic {name} not found.")
    rack_aware = not options.disable_rack_aware
    plan.print_proposal(plan.candidates(client.racks(), brokers, rack_aware=rack_aware), found)


def _execute(client: ZooKeeperClient, options: ReassignOptions) -> None:
    assert options.reassignment_json_file is not None
    wanted = files.read_as(
        options.reassignment_json_file,
        lambda text: files.check_executable(files.parse_reassignment(text)),
    )
    plan.check_brokers(client.broker_ids(), (e for replicas in wanted.values() for e in replicas))
    plan.print_present(plan.present(_assignment(client, {name for name, _ in wanted}), wanted))
    client.make_parents(paths.REASSIGN_PARTITIONS)
    try:
        client.write([Create(paths.REASSIGN_PARTITIONS, admin.encode_reassignment(wanted))])
    except WriteConflict:
        raise CommandError(RUNNING) from None
    print(plan.started(wanted))


def _verify(client: ZooKeeperClient, options: ReassignOptions) -> None:
    assert options.reassignment_json_file is not None
    wanted = files.read_as(options.reassignment_json_file, files.parse_reassignment)
    # Read the request first: a move that has left it is in the topic's znode by then.
    under_way = _requested(client)
    names = {name for (name, _), _ in wanted}
    found = _assignment(client, names)
    under_way |= _moving(client, names)
    print("Status of partition reassignment:")
    for partition, replicas in sorted(wanted):
        print(plan.status_line(partition, replicas, under_way, found.get(partition[0], {})))


def _requested(client: ZooKeeperClient) -> set[TopicPartition]:
    read = client.read(paths.REASSIGN_PARTITIONS)
    try:
        return set() if read is None else set(admin.decode_reassignment(read.data))
    except ZnodeError as error:
        raise CommandError(str(error)) from None


def _moving(client: ZooKeeperClient, names: Iterable[str]) -> set[TopicPartition]:
    return {
        (name, partition)
        for name in names
        if (found := client.topic(name)) is not None
        for partition, each in found[0].partitions.items()
        if each.adding or each.removing
    }


def _assignment(client: ZooKeeperClient, names: Iterable[str]) -> dict[str, Assignment]:
    return {
        name: {(name, partition): each.replicas for partition, each in found[0].partitions.items()}
        for name in sorted(set(names))
        if (found := client.topic(name)) is not None
    }


ACTIONS = {"generate": _generate, "execute": _execute, "verify": _verify}
