"""`ottla consumer-groups`: list, describe, delete, reset offsets. As kafka-consumer-groups.sh."""

import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ottla.cli.errors import CommandError
from ottla.cli.groups import group_client as groups
from ottla.cli.groups import group_options as opt
from ottla.cli.groups import group_reset as reset
from ottla.cli.groups import group_text as text
from ottla.cli.groups.group_options import GroupOptions
from ottla.cli.options import BootstrapServer, CommandConfig, connect, one_of
from ottla.cli.typing_app import examples, new_app
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, NoBrokerError, Refusal
from ottla.client.group_offsets import commit
from ottla.client.offsets import EARLIEST, LATEST
from ottla.client.partitions import TopicPartition

app = new_app()

OPTIONAL_VALUES = opt.OPTIONAL_VALUES

EPILOG = examples(
    "ottla consumer-groups --bootstrap-server localhost:9092 --list --state",
    "ottla consumer-groups --bootstrap-server localhost:9092 --describe --group billing",
    "ottla consumer-groups --bootstrap-server localhost:9092 --reset-offsets --group billing \\",
    "    --topic orders --to-earliest --execute",
    "ottla consumer-groups --bootstrap-server localhost:9092 --delete --group billing",
)

REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


@app.command("consumer-groups", epilog=EPILOG)
def consumer_groups(
    bootstrap_server: BootstrapServer = None,
    list_: opt.List = False,
    describe: opt.Describe = False,
    delete: opt.Delete = False,
    reset_offsets: opt.ResetOffsets = False,
    delete_offsets: opt.DeleteOffsets = False,
    group: opt.Groups = [],  # noqa: B006 - typer copies it
    all_groups: opt.AllGroups = False,
    topic: opt.Topics = [],  # noqa: B006
    all_topics: opt.AllTopics = False,
    offsets: opt.Offsets = False,
    members: opt.Members = False,
    verbose: opt.Verbose = False,
    state: opt.State = None,
    type_: opt.Type = None,
    to_earliest: opt.ToEarliest = False,
    to_latest: opt.ToLatest = False,
    to_current: opt.ToCurrent = False,
    to_offset: opt.ToOffset = None,
    shift_by: opt.ShiftBy = None,
    by_duration: opt.ByDuration = None,
    to_datetime: opt.ToDatetime = None,
    from_file: opt.FromFile = None,
    dry_run: opt.DryRun = False,
    execute: opt.Execute = False,
    export: opt.Export = False,
    command_config: CommandConfig = None,
    timeout: opt.TimeoutMs = 5000,
) -> int:
    """List, describe or delete consumer groups, or change their offsets."""
    action = one_of(
        list=list_,
        describe=describe,
        delete=delete,
        reset_offsets=reset_offsets,
        delete_offsets=delete_offsets,
    ).replace("_", "-")
    options = GroupOptions(
        group=tuple(group), all_groups=all_groups, topic=tuple(topic), all_topics=all_topics,
        offsets=offsets, members=members, verbose=verbose, state=state, type=type_,
        to_earliest=to_earliest, to_latest=to_latest, to_current=to_current,
        to_offset=to_offset, shift_by=shift_by, by_duration=by_duration,
        to_datetime=to_datetime, from_file=from_file,
        dry_run=dry_run, execute=execute, export=export,
    )  # fmt: skip
    opt.check(action, options)
    with connect(bootstrap_server, command_config, timeout / 1000) as client:
        return ACTIONS[action](client, options)


def _list(client: ClusterClient, options: GroupOptions) -> int:
    found = groups.list_groups(
        client,
        states=opt.parse_names(options.state, opt.STATES, "--state"),
        types=opt.parse_names(options.type, opt.TYPES, "--type"),
    )
    lines = text.listing_lines(
        found, types=options.type is not None, states=options.state is not None
    )
    _print(lines)
    return 0


def _describe(client: ClusterClient, options: GroupOptions) -> int:
    missing = []
    for name in _names(client, options):
        group = groups.describe(client, name)
        if group.state == "Dead":
            missing.append(name)
            continue
        _warn_of_state(group)
        if options.members:
            _print(text.member_lines(group, verbose=options.verbose))
        elif options.state is not None:
            _print(text.state_lines(group))
        else:
            committed = groups.committed(client, name)
            assigned = {each for member in group.members for each in member.partitions}
            ends = _ends(client, assigned | set(committed))
            _print(text.offset_lines(group, committed, ends))
    if missing:
        lines = (f"Consumer group '{name}' does not exist." for name in missing)
        raise CommandError("\n".join(lines))
    return 0


def _ends(client: ClusterClient, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
    """Return log end offsets, without partitions that have no leader or do not exist any more."""
    topics, live = client.topics(), set(client.broker_ids())
    led = partitions & {
        (topic.name or "", each.partition_index)
        for topic in topics
        for each in topic.partitions
        if each.leader_id in live
    }
    return groups.log_offsets(client, led, LATEST) if led else {}


def _warn_of_state(group: groups.Group) -> None:
    if group.state == "Empty":
        print(f"\nConsumer group '{group.name}' has no active members.", file=sys.stderr)
    elif group.state in REBALANCING:
        print(f"\nWarning: Consumer group '{group.name}' is rebalancing.", file=sys.stderr)


def _delete(client: ClusterClient, options: GroupOptions) -> int:
    names = _names(client, options)
    done, failed = _for_each(names, lambda name: groups.delete_group(client, name))
    named = ", ".join(f"'{name}'" for name in done)
    if not failed:
        print(f"Deletion of requested consumer groups ({named}) was successful.")
        return 0
    _print(["", "Error: Deletion of some consumer groups failed:"])
    for name, error in failed.items():
        reason = error.reason if isinstance(error, Refusal) else error
        print(f"* Group '{name}' could not be deleted due to: {reason}")
    if done:
        print(f"\nThese consumer groups were deleted successfully: {named}")
    raise CommandError(f"{len(failed)} of {len(names)} groups were not deleted")


def _for_each(
    names: Sequence[str], act: Callable[[str], None]
) -> tuple[list[str], dict[str, ClientError]]:
    """Run `act` for each group; return those done, and the errors of the others.

    Where no broker answers any more the rest is not tried: each try would take the whole timeout.
    Raises: NoBrokerError where that is so from the start.
    """
    done: list[str] = []
    failed: dict[str, ClientError] = {}
    for index, name in enumerate(names):
        try:
            act(name)
            done.append(name)
        except NoBrokerError as error:
            if index == 0:
                raise
            return done, failed | dict.fromkeys(names[index:], error)
        except ClientError as error:
            failed[name] = error
    return done, failed


def _delete_offsets(client: ClusterClient, options: GroupOptions) -> int:
    name = options.group[0]
    outcomes = groups.delete_offsets(client, name, _partitions(client, options.topic))
    failed = sum(bool(outcome) for outcome in outcomes.values())
    if failed:
        _print(["", "Error: Encounter some partition level error, see the follow-up details:"])
    else:
        topics = ", ".join(options.topic)
        print(f"Request succeed for deleting offsets with topic {topics} group {name}")
    _print(text.deletion_lines(outcomes))
    if failed:
        raise CommandError(f"{failed} of {len(outcomes)} partitions were refused")
    return 0


def _reset(client: ClusterClient, options: GroupOptions) -> int:
    if not (options.dry_run or options.execute):
        print("WARN: nothing is changed, as --execute is not given.", file=sys.stderr)
    planned: dict[str, reset.Plan] = {}
    busy: list[str] = []
    for name in _names(client, options):
        group = groups.describe(client, name)
        if not group.is_inactive:
            busy.append(f"group {name} is {group.state}")
            continue
        planned[name] = _plan(client, options, name)
    failed: dict[str, ClientError] = {}
    if options.execute:
        wanted = [name for name in planned if planned[name]]
        _, failed = _for_each(wanted, lambda name: commit(client, name, planned[name]))
    shown = {name: plan for name, plan in planned.items() if name not in failed}
    if options.export:
        print(reset.format_plan(shown, one_group=len(options.group) == 1), end="")
    else:
        _print(text.reset_lines(shown))
    reasons = []
    if busy:
        reasons.append(
            f"{'; '.join(busy)}: offsets can be reset only while a group has no active members"
        )
    reasons += [f"group {name} was not reset, or only in part: {failed[name]}" for name in failed]
    if reasons:
        raise CommandError("; ".join(reasons))
    return 0


def _plan(client: ClusterClient, options: GroupOptions, name: str) -> reset.Plan:
    if options.from_file is not None:
        only = options.group[0] if len(options.group) == 1 else None
        plans = reset.parse_plan(_read(options.from_file), only)
        if name not in plans:
            raise CommandError(f"{options.from_file}: no offset for group {name}: expected some")
        return _clamped(client, plans[name])
    committed = groups.committed(client, name)
    keys = set(committed) if options.all_topics else _partitions(client, options.topic)
    if options.to_earliest:
        return groups.log_offsets(client, keys, EARLIEST)
    if options.to_latest:
        return groups.log_offsets(client, keys, LATEST)
    if options.to_current:
        others = keys - set(committed)
        return groups.log_offsets(client, others, LATEST) | {
            key: committed[key] for key in keys - others
        }
    if options.to_offset is not None:
        return _clamped(client, dict.fromkeys(keys, options.to_offset))
    if options.shift_by is not None:
        for topic, partition in sorted(keys - set(committed)):
            raise CommandError(
                f"partition {topic}-{partition} has no committed offset to shift from"
            )
        return _clamped(client, {key: committed[key] + options.shift_by for key in keys})
    if options.to_datetime is not None:
        return _at_time(client, keys, reset.parse_datetime_ms(options.to_datetime))
    assert options.by_duration is not None
    back_ms = reset.parse_duration_ms(options.by_duration)
    return _at_time(client, keys, int(time.time() * 1000) - back_ms)


def _clamped(client: ClusterClient, wanted: reset.Plan) -> reset.Plan:
    starts = groups.log_offsets(client, wanted.keys(), EARLIEST)
    ends = groups.log_offsets(client, wanted.keys(), LATEST)
    plan, warnings = reset.clamp(wanted, starts, ends)
    for warning in warnings:
        print(f"WARN: {warning}", file=sys.stderr)
    return plan


def _at_time(
    client: ClusterClient, keys: Collection[TopicPartition], timestamp_ms: int
) -> reset.Plan:
    plan = groups.log_offsets(client, keys, max(0, timestamp_ms))
    late = {key for key, offset in plan.items() if offset < 0}
    for topic, partition in sorted(late):
        print(
            f"\nWarn: Partition {partition} from topic {topic} has no record of that time or "
            "later. Falling back to latest known offset."
        )
    return plan | (groups.log_offsets(client, late, LATEST) if late else {})


def _names(client: ClusterClient, options: GroupOptions) -> list[str]:
    if options.all_groups:
        return [each.group for each in groups.list_groups(client)]
    return list(dict.fromkeys(options.group))


def _partitions(client: ClusterClient, arguments: Collection[str]) -> set[TopicPartition]:
    partitions, topics = reset.parse_topics(list(arguments))
    for topic in client.topics(sorted(topics)) if topics else ():
        partitions.update((topic.name or "", each.partition_index) for each in topic.partitions)
    return partitions


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {(error.strerror or 'unreadable').lower()}") from None


def _print(lines: list[str]) -> None:
    if lines:
        print("\n".join(lines))


ACTIONS = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "reset-offsets": _reset,
    "delete-offsets": _delete_offsets,
}
