"""Proposes reassignments and prints their state, over the wire and over ZooKeeper."""

from collections.abc import Collection, Iterable, Mapping

from ottla.base.errors import ApiError
from ottla.cli.errors import CommandError
from ottla.cli.partitions import partition_file as files
from ottla.client.partitions import TopicPartition
from ottla.controller.topics.placement import Candidate, place
from ottla.host.system_ports import SystemDice

Assignment = dict[TopicPartition, tuple[int, ...]]


def candidates(
    racks: Mapping[int, str | None], wanted: Collection[int], *, rack_aware: bool
) -> list[Candidate]:
    """Return the brokers to place replicas on; `racks` are those of all live ones.

    Raises: CommandError if a wanted broker is not alive, or only some have a rack.
    """
    check_brokers(racks, wanted)
    chosen = {each: rack for each, rack in sorted(racks.items()) if each in set(wanted)}
    without = [each for each, rack in chosen.items() if rack is None]
    if rack_aware and without and len(without) < len(chosen):
        raise CommandError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line "
            "to make replica assignment without rack information."
        )
    return [
        Candidate(each, rack if rack_aware else None, fenced=False) for each, rack in chosen.items()
    ]


def check_brokers(live: Iterable[int], wanted: Iterable[int]) -> None:
    """Raise CommandError if a wanted broker is not alive."""
    ids = sorted(live)
    unknown = sorted(set(wanted) - set(ids))
    if unknown:
        raise CommandError(
            f"Unknown broker id {unknown[0]}: expected live ones, some of {files.ids(ids)}"
        )


def propose(brokers: list[Candidate], current: Assignment) -> Assignment:
    """Assign the partitions of a topic again, with the replication factor of its first one."""
    (topic, _), replicas = min(current.items())
    try:
        placed = place(
            brokers,
            first=0,
            count=len(current),
            replication_factor=len(replicas),
            dice=SystemDice(),
        )
    except ApiError as refusal:
        raise CommandError(f"topic {topic}: {refusal.message}") from None
    return {(topic, partition): each for partition, each in enumerate(placed)}


def print_proposal(brokers: list[Candidate], found: Mapping[str, Assignment]) -> None:
    """Print the current and the proposed assignment of topics."""
    current: Assignment = {}
    proposed: Assignment = {}
    for name in sorted(found):
        current |= found[name]
        proposed |= propose(brokers, found[name])
    print("Current partition replica assignment")
    print(files.format_reassignment(current))
    print()
    print("Proposed partition reassignment configuration")
    print(files.format_reassignment(proposed))


def present(found: Mapping[str, Assignment], wanted: Iterable[TopicPartition]) -> Assignment:
    """Return the current assignment. Raises: CommandError for a missing partition."""
    missing = []
    for topic, partition in sorted(wanted):
        if topic not in found:
            raise CommandError(f"Topic {topic} not found.")
        if (topic, partition) not in found[topic]:
            missing.append((topic, partition))
    if missing:
        raise CommandError(f"Unable to find partition: {files.names_of(missing, ', ')}")
    return {each: found[each[0]][each] for each in sorted(wanted)}


def print_present(current: Assignment) -> None:
    """Print the current assignment, for a rollback."""
    print("Current partition replica assignment\n")
    print(files.format_reassignment(current))
    print("\nSave this to use as the --reassignment-json-file option during rollback")


def started(wanted: Collection[TopicPartition]) -> str:
    """Return the message for started reassignments."""
    return (
        f"Successfully started partition reassignment{plural(wanted)} for {files.names_of(wanted)}"
    )


def status_line(
    partition: TopicPartition,
    wanted: tuple[int, ...],
    under_way: Collection[TopicPartition],
    current: Assignment,
) -> str:
    """Return the line of --verify for one partition."""
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


def plural(things: Collection[object]) -> str:
    """Return the plural s for several things."""
    return "" if len(things) == 1 else "s"
