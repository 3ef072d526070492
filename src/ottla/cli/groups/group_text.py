"""What `ottla consumer-groups` prints: kafka-consumer-groups.sh's columns."""

from collections.abc import Mapping, Sequence

from ottla.cli.groups.group_client import Group, Listing, Member
from ottla.client.errors import reason_of
from ottla.client.partitions import TopicPartition, by_topic

MISSING = "-"
COLUMN_MIN = 15

OFFSET_HEADING = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)


def offset_lines(
    group: Group,
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[str]:
    """Return the table of a group's partitions: those of members first, then unassigned ones."""
    rows: list[tuple[str, ...]] = []
    assigned: set[TopicPartition] = set()
    for member in sorted(group.members, key=lambda each: -len(each.partitions)):
        assigned.update(member.partitions)
        facts = (member.consumer_id, member.host, member.client_id)
        rows += [_offset_row(group, each, committed, ends, facts) for each in member.partitions]
    unassigned = (MISSING, MISSING, MISSING)
    rows += [
        _offset_row(group, each, committed, ends, unassigned)
        for each in sorted(set(committed) - assigned)
    ]
    if not rows:
        return []
    widths = (
        _width(rows, 0),
        _width(rows, 1),
        10,
        15,
        15,
        15,
        _width(rows, 6),
        _width(rows, 7),
        0,
    )
    return ["", *(_padded(row, widths) for row in (OFFSET_HEADING, *rows))]


def _offset_row(
    group: Group,
    key: TopicPartition,
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    member: tuple[str, str, str],
) -> tuple[str, ...]:
    offset, end = committed.get(key), ends.get(key)
    lag = end - offset if offset is not None and end is not None else None
    return (group.name, key[0], str(key[1]), _number(offset), _number(end), _number(lag), *member)


def member_lines(group: Group, *, verbose: bool) -> list[str]:
    """Return the table of a group's members."""
    if not group.members:
        return []
    has_instances = any(member.instance_id for member in group.members)
    heading = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    rows = [
        [group.name, each.consumer_id, each.host, each.client_id, str(len(each.partitions))]
        for each in group.members
    ]
    if has_instances:
        heading.insert(2, "GROUP-INSTANCE-ID")
        for row, each in zip(rows, group.members, strict=True):
            row.insert(2, each.instance_id or "")
    widths = [
        max(COLUMN_MIN, len(title), *(len(row[index]) for row in rows))
        for index, title in enumerate(heading)
    ]
    if verbose:
        heading.append("ASSIGNMENT")
        for row, each in zip(rows, group.members, strict=True):
            row.append(_assignment(each))
        widths.append(0)
    return ["", *(_padded(row, widths) for row in (heading, *rows))]


def _assignment(member: Member) -> str:
    topics = by_topic(member.partitions)
    named = (f"{topic}({','.join(map(str, ids))})" for topic, ids in topics.items())
    return ", ".join(named) or MISSING


def state_lines(group: Group) -> list[str]:
    """Return the table of one row that shows a group's state."""
    node, host, port = group.coordinator
    coordinator = f"{host}:{port}  ({node})"
    rows = (
        ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"),
        (group.name, coordinator, group.assignor or MISSING, group.state, str(len(group.members))),
    )
    widths = (max(COLUMN_MIN, len(group.name)), max(25, len(coordinator)), 20, 20, 0)
    return ["", *(_padded(row, widths) for row in rows)]


def listing_lines(groups: Sequence[Listing], *, types: bool, states: bool) -> list[str]:
    """Return the table of groups with their types and states, or plain names without either."""
    if not (types or states):
        return [each.group for each in groups]
    width = max([COLUMN_MIN, *(len(each.group) for each in groups)]) + 10
    rows = [("GROUP", "TYPE", "STATE")]
    rows += [(each.group, each.type.capitalize(), each.state) for each in groups]
    lines = []
    for group, kind, state in rows:
        cells = [f"{group:<{width}}"]
        cells += [f"{kind:<20}"] if types else []
        cells += [f"{state:<20}"] if states else []
        lines.append(" ".join(cells))
    return lines


def reset_lines(planned: Mapping[str, Mapping[TopicPartition, int]]) -> list[str]:
    """Return the table of new offsets."""
    if not planned:
        return [""]
    rows = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")]
    rows += [
        (group, topic, str(partition), str(offset))
        for group, offsets in sorted(planned.items())
        for (topic, partition), offset in sorted(offsets.items())
    ]
    return ["", *(_padded(row, (30, 30, 10, 15)) for row in rows)]


def deletion_lines(outcomes: Mapping[TopicPartition, int]) -> list[str]:
    """Return the table of the results of deleting offsets."""
    rows = [("TOPIC", "PARTITION", "STATUS")]
    rows += [
        (topic, str(partition), f"Error: {reason_of(code)}" if code else "Successful")
        for (topic, partition), code in sorted(outcomes.items())
    ]
    return ["", *(_padded(row, (30, 15, 15)) for row in rows)]


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))


def _width(rows: Sequence[Sequence[str]], column: int) -> int:
    return max(COLUMN_MIN, *(len(row[column]) for row in rows))


def _number(value: int | None) -> str:
    return MISSING if value is None else str(value)
