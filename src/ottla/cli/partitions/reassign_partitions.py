"""`ottla reassign-partitions`: move partitions to other brokers. As kafka-reassign-partitions.sh.

Not done: throttles (brokers do not enforce them, so --throttle is refused) and the choice of a
replica's log directory.
"""

from collections.abc import Iterable

from ottla.cli.errors import CommandError
from ottla.cli.options import (
    BootstrapServer,
    CommandConfig,
    ZooKeeper,
    check_zookeeper,
    connect,
    one_of,
)
from ottla.cli.partitions import partition_file as files
from ottla.cli.partitions import reassign_partitions_client as wire
from ottla.cli.partitions import reassign_partitions_options as opt
from ottla.cli.partitions import reassign_plan as plan
from ottla.cli.partitions import reassign_zookeeper
from ottla.cli.partitions.reassign_partitions_options import ReassignOptions
from ottla.cli.progress import print_stderr
from ottla.cli.typing_app import examples, new_app
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError
from ottla.client.waiting import Waiting

app = new_app()

EPILOG = examples(
    "ottla reassign-partitions --bootstrap-server localhost:9092 --generate "
    "--topics-to-move-json-file topics.json --broker-list 2,3",
    "ottla reassign-partitions --bootstrap-server localhost:9092 --execute "
    "--reassignment-json-file moves.json",
    "ottla reassign-partitions --bootstrap-server localhost:9092 --verify "
    "--reassignment-json-file moves.json",
    "ottla reassign-partitions --bootstrap-server localhost:9092 --list",
) + (
    '\n\n\b\nThe files:\n  {"topics": [{"topic": "orders"}], "version": 1}\n'
    '  {"partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 3]}], "version": 1}'
)

CLIENT_ID = "reassign-partitions-tool"
PROBE_SECONDS = 1.0
"""Timeout for one controller to return whether it is the active one."""

EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to "
    "override this and create a new partition assignment in addition to the existing one."
)


@app.command("reassign-partitions", epilog=EPILOG)
def reassign_partitions(
    bootstrap_server: BootstrapServer = None,
    zookeeper: ZooKeeper = None,
    bootstrap_controller: opt.BootstrapController = None,
    generate: opt.Generate = False,
    execute: opt.Execute = False,
    verify: opt.Verify = False,
    cancel: opt.Cancel = False,
    list_: opt.List = False,
    reassignment_json_file: opt.ReassignmentFile = None,
    topics_to_move_json_file: opt.TopicsFile = None,
    broker_list: opt.BrokerList = None,
    disable_rack_aware: opt.DisableRackAware = False,
    additional: opt.Additional = False,
    throttle: opt.Throttle = None,
    replica_alter_log_dirs_throttle: opt.LogDirsThrottle = None,
    preserve_throttles: opt.PreserveThrottles = False,
    command_config: CommandConfig = None,
    timeout: opt.TimeoutMs = opt.DEFAULT_TIMEOUT_MS,
) -> None:
    """Move partitions to other brokers, or change their number of replicas."""
    action = one_of(generate=generate, execute=execute, verify=verify, cancel=cancel, list=list_)
    options = ReassignOptions(
        bootstrap_server=bootstrap_server,
        bootstrap_controller=bootstrap_controller,
        reassignment_json_file=reassignment_json_file,
        topics_to_move_json_file=topics_to_move_json_file,
        broker_list=broker_list,
        disable_rack_aware=disable_rack_aware,
        additional=additional,
        throttle=throttle,
        replica_alter_log_dirs_throttle=replica_alter_log_dirs_throttle,
        preserve_throttles=preserve_throttles,
    )
    opt.check(action, options)
    if zookeeper is not None:
        check_zookeeper(bootstrap_server or bootstrap_controller, command_config)
        reassign_zookeeper.run(action, zookeeper, timeout / 1000, options)
        return
    with _client(options, command_config, timeout / 1000) as client:
        ACTIONS[action](client, options)


def _client(options: ReassignOptions, command_config: str | None, timeout: float) -> ClusterClient:
    """Connect to a broker, which forwards requests, or to the active controller."""
    if options.bootstrap_controller is None:
        return connect(options.bootstrap_server, command_config, timeout, CLIENT_ID)
    waiting = Waiting(timeout, print_stderr)
    while True:
        for address in options.bootstrap_controller.split(","):
            probe_seconds = min(PROBE_SECONDS, timeout)
            with connect(address, command_config, probe_seconds, CLIENT_ID) as probe:
                try:
                    if wire.is_active_controller(probe):
                        return connect(address, command_config, timeout, CLIENT_ID)
                    reason = f"{address} is not the active controller"
                except ClientError as error:
                    reason = str(error)
        if waiting.is_over:
            raise CommandError(f"no controller is active within {timeout:g} s: {reason}")
        waiting.pause("an active controller")


def _generate(client: ClusterClient, options: ReassignOptions) -> None:
    assert options.topics_to_move_json_file is not None
    assert options.broker_list is not None
    brokers = opt.parse_brokers(options.broker_list)
    names = files.read_as(options.topics_to_move_json_file, files.parse_topics)
    found = wire.assignment(client, names)
    for name in names:
        if name not in found:
            raise CommandError(f"Topic {name} not found.")
    racks = {each.node_id: each.rack for each in client.cluster().brokers}
    rack_aware = not options.disable_rack_aware
    plan.print_proposal(plan.candidates(racks, brokers, rack_aware=rack_aware), found)


def _execute(client: ClusterClient, options: ReassignOptions) -> None:
    assert options.reassignment_json_file is not None
    wanted = files.read_as(
        options.reassignment_json_file,
        lambda text: files.check_executable(files.parse_reassignment(text)),
    )
    if wire.moves(client) and not options.additional:
        raise CommandError(EXISTING)
    plan.check_brokers(client.broker_ids(), (e for replicas in wanted.values() for e in replicas))
    plan.print_present(plan.present(wire.assignment(client, {name for name, _ in wanted}), wanted))
    refused = wire.alter(client, wanted)
    if refused:
        _print_refused("Error reassigning partition(s):", refused)
        raise CommandError(f"{len(refused)} of {len(wanted)} partitions were refused: see above")
    print(plan.started(wanted))


def _verify(client: ClusterClient, options: ReassignOptions) -> None:
    assert options.reassignment_json_file is not None
    wanted = files.read_as(options.reassignment_json_file, files.parse_reassignment)
    under_way = wire.moves(client)
    found = wire.assignment(client, (topic for (topic, _), _ in wanted))
    print("Status of partition reassignment:")
    for partition, replicas in sorted(wanted):
        print(plan.status_line(partition, replicas, under_way, found.get(partition[0], {})))
    print()
    if not under_way and not options.preserve_throttles:
        _clear_throttles(client, client.broker_ids(), found)


def _clear_throttles(
    client: ClusterClient, brokers: Iterable[int], topics: Iterable[str], *, directly: bool = True
) -> None:
    """Delete throttles, which other tools may have set."""
    ids = sorted(brokers)
    print(f"Clearing broker-level throttles on broker{plan.plural(ids)} {files.ids(ids)}")
    wire.clear_broker_throttles(client, ids, directly=directly)
    names = sorted(topics)
    if names:
        print(f"Clearing topic-level throttles on topic{plan.plural(names)} {','.join(names)}")
        wire.clear_topic_throttles(client, names)


def _cancel(client: ClusterClient, options: ReassignOptions) -> None:
    assert options.reassignment_json_file is not None
    wanted = files.read_as(options.reassignment_json_file, files.parse_reassignment)
    named = {partition for partition, _ in wanted}
    active = sorted(named & set(wire.moves(client)))
    if active:
        refused = wire.alter(client, dict.fromkeys(active))
        if refused:
            _print_refused(
                f"Error cancelling partition reassignment{plan.plural(refused)} for:", refused
            )
            raise CommandError(
                f"{len(refused)} of {len(active)} partitions were refused: see above"
            )
        print(
            f"Successfully cancelled partition reassignment{plan.plural(active)} for: "
            f"{files.names_of(active)}"
        )
    else:
        print("None of the specified partition reassignments are active.")
    print("None of the specified partition moves are active.")
    if options.preserve_throttles:
        return
    topics = {topic for topic, _ in named}
    if options.bootstrap_controller is None:
        _clear_throttles(client, client.broker_ids(), wire.assignment(client, topics))
    else:
        # Controllers return neither topics nor live brokers: use those that the file names.
        brokers = {each for _, replicas in wanted for each in replicas}
        _clear_throttles(client, brokers, topics, directly=False)


def _list(client: ClusterClient, options: ReassignOptions) -> None:
    under_way = wire.moves(client)
    if not under_way:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for partition, move in sorted(under_way.items()):
        line = f"{files.name_of(partition)}: replicas: {files.ids(move.replicas)}."
        if move.adding:
            line += f" adding: {files.ids(move.adding)}."
        if move.removing:
            line += f" removing: {files.ids(move.removing)}."
        print(line)


def _print_refused(title: str, refused: dict[tuple[str, int], str]) -> None:
    print(title)
    for partition, reason in sorted(refused.items()):
        print(f"{files.name_of(partition)}: {reason}")


ACTIONS = {
    "generate": _generate,
    "execute": _execute,
    "verify": _verify,
    "cancel": _cancel,
    "list": _list,
}
