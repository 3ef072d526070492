"""The consumer protocol between group members: subscriptions, assignments, the range assignor.

Source: ConsumerProtocol{Subscription,Assignment}.json; Kafka's RangeAssignor.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence

from ottla.testing.history.groups import NamedPartition
from ottla.wire.codec import decode, encode
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

PROTOCOL_TYPE = "consumer"
PROTOCOL = "range"
VERSION = 0

_int16 = struct.Struct(">h")


def encode_subscription(topics: Sequence[str]) -> bytes:
    """Return the metadata of a member's JoinGroup."""
    subscription = ConsumerProtocolSubscription(topics=tuple(topics))
    return _int16.pack(VERSION) + encode(subscription, VERSION)


def encode_assignment(partitions: Iterable[NamedPartition]) -> bytes:
    """Return a member's partitions as the leader sends them."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    assigned = tuple(
        TopicPartition(topic=topic, partitions=tuple(numbers))
        for topic, numbers in by_topic.items()
    )
    assignment = ConsumerProtocolAssignment(assigned_partitions=assigned)
    return _int16.pack(VERSION) + encode(assignment, VERSION)


def decode_assignment(data: bytes) -> tuple[NamedPartition, ...]:
    """Return a member's partitions; none if the leader did not name it."""
    if not data:
        return ()
    (version,) = _int16.unpack_from(data)
    assignment = decode(ConsumerProtocolAssignment, data, version, _int16.size)
    assigned = assignment.assigned_partitions
    return tuple((each.topic, number) for each in assigned for number in each.partitions)


def assign_ranges(
    members: Iterable[str], partitions: Mapping[str, Sequence[int]]
) -> dict[str, tuple[NamedPartition, ...]]:
    """Return each member's partitions: of every topic a range, the first members' longer by one."""
    ordered = sorted(members)
    assigned: dict[str, list[NamedPartition]] = {member: [] for member in ordered}
    for topic, numbers in sorted(partitions.items()):
        least, longer = divmod(len(numbers), len(ordered))
        start = 0
        for place, member in enumerate(ordered):
            end = start + least + (place < longer)
            assigned[member] += [(topic, number) for number in sorted(numbers)[start:end]]
            start = end
    return {member: tuple(owned) for member, owned in assigned.items()}
