"""`ottla reassign-partitions`: move partitions to other brokers. As kafka-reassign-partitions.sh.

Not done: throttles (no broker enforces them, so --throttle is refused by name), and the choice of
a replica's folder.
"""

from collections.abc import Iterable

from ottla.base.errors import ApiError
from ottla.cli import partition_file as files
from ottla.cli import reassign_partitions_client as wire
from ottla.cli import reassign_partitions_options as opt
from ottla.cli.errors import CommandError
from ottla.cli.options import BootstrapServer, CommandConfig, connect, one_of
from ottla.cli.reassign_partitions_options import Wish
from ottla.cli.typing_app import examples, new_app
from ottla.cli.wire_client import Waiting, WireClient
from ottla.controller.placement import Candidate, place
from ottla.host.world import SystemDice

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
"""How long one controller may take to say whether it is the active one."""

EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to "
    "override this and create a new partition assignment in addition to the existing one."
)


@app.command("reassign-partitions", epilog=EPILOG)
def reassign_partitions(
    bootstrap_server: BootstrapServer = None,
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
    """Move partitions to other brokers, and change how many replicas they have."""
    action = one_of(generate=generate, execute=execute, verify=verify, cancel=cancel, list=list_)
    wish = Wish(
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
    opt.check(action, wish)
    with _client(wish, command_config, timeout / 1000) as client:
        ACTIONS[action](client, wish)


def _client(wish: Wish, command_config: str | None, timeout: float) -> WireClient:
    """Connect to a broker, which passes requests on, or to the active one of the controllers."""
    if wish.bootstrap_controller is None:
        return connect(wish.bootstrap_server, command_config, timeout, CLIENT_ID)
    waiting = Waiting(timeout)
    while True:
        for address in wish.bootstrap_controller.split(","):
            probe_seconds = min(PROBE_SECONDS, timeout)
            with connect(address, command_config, probe_seconds, CLIENT_ID) as probe:
                try:
                    if wire.is_active_controller(probe):
                        return connect(address, command_config, timeout, CLIENT_ID)
                    reason = f"{address} is not the active one"
                except CommandError as error:
                    reason = str(error)
        if waiting.is_over:
            raise CommandError(f"no controller is active within {timeout:g} s: {reason}")
        waiting.pause("an active controller")


def _generate(client: WireClient, wish: Wish) -> None:
    assert wish.topics_to_move_json_file is not None
    assert wish.broker_list is not None
    brokers = opt.parse_brokers(wish.broker_list)
    names = files.read_as(wish.topics_to_move_json_file, files.parse_topics)
    found = wire.assignment(client, names)
    for name in names:
        if name not in found:
            raise CommandError(f"Topic {name} not found.")
    candidates = _candidates(client, brokers, rack_aware=not wish.disable_rack_aware)
    current: wire.Assignment = {}
    proposed: wire.Assignment = {}
    for name in sorted(names):
        current |= found[name]
        proposed |= _propose(candidates, found[name])
    print("Current partition replica assignment")
    print(files.format_reassignment(current))
    print()
    print("Proposed partition reassignment configuration")
    print(files.format_reassignment(proposed))


def _candidates(client: WireClient, wanted: list[int], *, rack_aware: bool) -> list[Candidate]:
    _check_brokers(client, wanted)
    chosen = [each for each in client.cluster().brokers if each.node_id in set(wanted)]
    racks = [each.rack for each in chosen]
    if rack_aware and None in racks and racks.count(None) < len(racks):
        raise CommandError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line "
            "to make replica assignment without rack information."
        )
    return [
        Candidate(each.node_id, each.rack if rack_aware else None, fenced=False) for each in chosen
    ]


def _propose(candidates: list[Candidate], current: wire.Assignment) -> wire.Assignment:
    """Place a topic's partitions anew, with as many replicas as its first one has."""
    (topic, _), replicas = min(current.items())
    try:
        placed = place(
            candidates,
            first=0,
            count=len(current),
            replication_factor=len(replicas),
            dice=SystemDice(),
        )
    except ApiError as refusal:
        raise CommandError(f"topic {topic}: {refusal.message}") from None
    return {(topic, number): each for number, each in enumerate(placed)}


def _execute(client: WireClient, wish: Wish) -> None:
    assert wish.reassignment_json_file is not None
    wanted = files.read_as(
        wish.reassignment_json_file,
        lambda text: files.check_executable(files.parse_reassignment(text)),
    )
    if wire.moves(client) and not wish.additional:
        raise CommandError(EXISTING)
    _check_brokers(client, (each for replicas in wanted.values() for each in replicas))
    current = _current(client, wanted)
    print("Current partition replica assignment\n")
    print(files.format_reassignment(current))
    print("\nSave this to use as the --reassignment-json-file option during rollback")
    refused = wire.alter(client, wanted)
    if refused:
        _tell("Error reassigning partition(s):", refused)
        raise CommandError(f"{len(refused)} of {len(wanted)} partitions were refused: see above")
    print(
        f"Successfully started partition reassignment{_plural(wanted)} for {files.names_of(wanted)}"
    )


def _check_brokers(client: WireClient, wanted: Iterable[int]) -> None:
    unknown = sorted(set(wanted) - set(client.broker_ids()))
    if unknown:
        raise CommandError(
            f"Unknown broker id {unknown[0]}: expected live ones, "
            f"some of {files.ids(client.broker_ids())}"
        )


def _current(client: WireClient, wanted: Iterable[tuple[str, int]]) -> wire.Assignment:
    partitions = sorted(wanted)
    found = wire.assignment(client, (topic for topic, _ in partitions))
    missing = []
    for topic, number in partitions:
        if topic not in found:
            raise CommandError(f"Topic {topic} not found.")
        if (topic, number) not in found[topic]:
            missing.append((topic, number))
    if missing:
        raise CommandError(f"Unable to find partition: {files.names_of(missing, ', ')}")
    return {partition: found[partition[0]][partition] for partition in partitions}


def _verify(client: WireClient, wish: Wish) -> None:
    assert wish.reassignment_json_file is not None
    wanted = files.read_as(wish.reassignment_json_file, files.parse_reassignment)
    under_way = wire.moves(client)
    found = wire.assignment(client, (topic for (topic, _), _ in wanted))
    print("Status of partition reassignment:")
    for partition, replicas in sorted(wanted):
        print(status_line(partition, replicas, under_way, found.get(partition[0], {})))
    print()
    if not under_way and not wish.preserve_throttles:
        _clear_throttles(client, client.broker_ids(), found)


def status_line(
    partition: tuple[str, int],
    wanted: tuple[int, ...],
    under_way: Iterable[tuple[str, int]],
    current: wire.Assignment,
) -> str:
    """Return what --verify says of one partition."""
    name = files.name_of(partition)
    if partition in under_way:
        return f"Reassignment of partition {name} is still in progress."
    replicas = current.get(partition, ())
    if replicas == wanted:
        return f"Reassignment of partition {name} is completed."
    return (
        f"There is no active reassignment of partition {name}, but replica set is "
        f"{files.ids(replicas)} rather than {files.ids(wanted)}."
    )


def _clear_throttles(
    client: WireClient, brokers: Iterable[int], topics: Iterable[str], *, directly: bool = True
) -> None:
    """Delete what may limit the moves: other tools, or Kafka's own, may have set it."""
    ids = sorted(brokers)
    print(f"Clearing broker-level throttles on broker{_plural(ids)} {files.ids(ids)}")
    wire.clear_broker_throttles(client, ids, directly=directly)
    names = sorted(topics)
    if names:
        print(f"Clearing topic-level throttles on topic{_plural(names)} {','.join(names)}")
        wire.clear_topic_throttles(client, names)


def _cancel(client: WireClient, wish: Wish) -> None:
    assert wish.reassignment_json_file is not None
    wanted = files.read_as(wish.reassignment_json_file, files.parse_reassignment)
    named = {partition for partition, _ in wanted}
    active = sorted(named & set(wire.moves(client)))
    if active:
        refused = wire.alter(client, dict.fromkeys(active))
        if refused:
            _tell(f"Error cancelling partition reassignment{_plural(refused)} for:", refused)
            raise CommandError(
                f"{len(refused)} of {len(active)} partitions were refused: see above"
            )
        print(
            f"Successfully cancelled partition reassignment{_plural(active)} for: "
            f"{files.names_of(active)}"
        )
    else:
        print("None of the specified partition reassignments are active.")
    print("None of the specified partition moves are active.")
    if wish.preserve_throttles:
        return
    topics = {topic for topic, _ in named}
    if wish.bootstrap_controller is None:
        _clear_throttles(client, client.broker_ids(), wire.assignment(client, topics))
    else:
        # Controllers do not tell of topics, nor of who lives: what the file names must do.
        brokers = {each for _, replicas in wanted for each in replicas}
        _clear_throttles(client, brokers, topics, directly=False)


def _list(client: WireClient, wish: Wish) -> None:
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


def _tell(title: str, refused: dict[tuple[str, int], str]) -> None:
    print(title)
    for partition, reason in sorted(refused.items()):
        print(f"{files.name_of(partition)}: {reason}")


def _plural(things: Iterable[object]) -> str:
    return "" if len(list(things)) == 1 else "s"


ACTIONS = {
    "generate": _generate,
    "execute": _execute,
    "verify": _verify,
    "cancel": _cancel,
    "list": _list,
}
