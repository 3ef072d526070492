"""Consumer groups over the wire: list, describe, read and delete offsets and groups."""

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ottla.base.errors import Error
from ottla.client.cluster import ClusterClient
from ottla.client.errors import Refusal, check
from ottla.client.offsets import list_offsets
from ottla.client.partitions import TopicPartition, by_topic
from ottla.wire.codec import decode
from ottla.wire.errors import WireError
from ottla.wire.messages import delete_groups as delete_wire
from ottla.wire.messages import describe_groups as describe_wire
from ottla.wire.messages import list_groups as list_wire
from ottla.wire.messages import offset_delete as offset_delete_wire
from ottla.wire.messages import offset_fetch as fetch_wire
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment

CONSUMER_PROTOCOL = "consumer"
_INT16 = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class Listing:
    """One group as brokers list it."""

    group: str
    type: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a group; `partitions` is what it is assigned."""

    consumer_id: str
    instance_id: str | None
    host: str
    client_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group as its coordinator describes it."""

    name: str
    state: str
    assignor: str
    members: tuple[Member, ...]
    coordinator: tuple[int, str, int]
    """Id, host and port of the broker that coordinates it."""

    @property
    def is_inactive(self) -> bool:
        """Tell whether a non-member may change its offsets."""
        return self.state in ("Empty", "Dead")


def list_groups(
    client: ClusterClient, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[Listing]:
    """Return the consumer groups of all brokers, sorted."""
    found: dict[str, Listing] = {}
    for broker in client.broker_ids():

        def act(broker: int = broker) -> list_wire.ListGroupsResponse:
            request = list_wire.ListGroupsRequest(
                states_filter=tuple(states), types_filter=tuple(types)
            )
            response = client.ask(request, list_wire.ListGroupsResponse, node=broker)
            check(f"broker {broker}", response.error_code)
            return response

        for each in client.with_retries(act).groups:
            if each.protocol_type in (CONSUMER_PROTOCOL, ""):
                found[each.group_id] = Listing(
                    each.group_id, each.group_type or "classic", each.group_state
                )
    return [found[name] for name in sorted(found)]


def describe(client: ClusterClient, name: str) -> Group:
    """Return a group; an unknown one is Dead."""
    return client.with_retries(lambda: _describe(client, name))


def _describe(client: ClusterClient, name: str) -> Group:
    coordinator = client.coordinator(name)
    request = describe_wire.DescribeGroupsRequest(groups=(name,))
    response = client.ask(request, describe_wire.DescribeGroupsResponse, node=coordinator[0])
    described = response.groups[0]
    if described.error_code == Error.GROUP_ID_NOT_FOUND:
        return Group(name=name, state="Dead", assignor="", members=(), coordinator=coordinator)
    check(f"group {name}", described.error_code, described.error_message)
    is_consumer = described.protocol_type == CONSUMER_PROTOCOL
    return Group(
        name=name,
        state=described.group_state,
        assignor=described.protocol_data,
        members=tuple(
            Member(
                consumer_id=each.member_id,
                instance_id=each.group_instance_id,
                host=each.client_host,
                client_id=each.client_id,
                partitions=_assigned(each.member_assignment) if is_consumer else (),
            )
            for each in described.members
        ),
        coordinator=coordinator,
    )


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    if len(data) < _INT16.size:
        return ()
    # Newer versions only append fields: read an unknown version as the newest known one.
    version = min(max(_INT16.unpack_from(data)[0], 0), 3)
    try:
        assignment = decode(ConsumerProtocolAssignment, data, version, _INT16.size)
    except WireError:
        return ()
    return tuple(
        sorted(
            (each.topic, partition)
            for each in assignment.assigned_partitions
            for partition in each.partitions
        )
    )


def committed(client: ClusterClient, name: str) -> dict[TopicPartition, int]:
    """Return the offsets that a group has committed."""

    def act() -> fetch_wire.OffsetFetchResponse:
        request = fetch_wire.OffsetFetchRequest(group_id=name, topics=None)
        response = client.ask(
            request,
            fetch_wire.OffsetFetchResponse,
            node=client.coordinator(name)[0],
            at_most=7,  # From 8 on a request names several groups.
        )
        check(f"group {name}", response.error_code)
        return response

    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in client.with_retries(act).topics
        for each in topic.partitions
        if not each.error_code and each.committed_offset >= 0
    }


def log_offsets(
    client: ClusterClient, partitions: Collection[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    """Return the offsets at a timestamp, LATEST or EARLIEST; -1 = no record that recent."""

    def act() -> dict[TopicPartition, int]:
        found = list_offsets(client, dict.fromkeys(partitions, timestamp))
        for (topic, partition), each in found.items():
            check(f"partition {topic}-{partition}", each.error_code)
        return {key: each.offset for key, each in found.items()}

    return client.with_retries(act)


def delete_offsets(
    client: ClusterClient, name: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Delete a group's offsets; return an error code for each partition."""
    topics = tuple(
        offset_delete_wire.OffsetDeleteRequestTopic(
            name=topic,
            partitions=tuple(
                offset_delete_wire.OffsetDeleteRequestPartition(partition_index=partition)
                for partition in ids
            ),
        )
        for topic, ids in by_topic(partitions).items()
    )
    request = offset_delete_wire.OffsetDeleteRequest(group_id=name, topics=topics)

    def act() -> offset_delete_wire.OffsetDeleteResponse:
        node = client.coordinator(name)[0]
        response = client.ask(request, offset_delete_wire.OffsetDeleteResponse, node=node)
        check(f"group {name}", response.error_code)
        return response

    return {
        (topic.name, each.partition_index): each.error_code
        for topic in client.with_retries(act).topics
        for each in topic.partitions
    }


def delete_group(client: ClusterClient, name: str) -> None:
    """Delete an empty group with its offsets; raise Refusal."""
    request = delete_wire.DeleteGroupsRequest(groups_names=(name,))

    def act() -> None:
        node = client.coordinator(name)[0]
        response = client.ask(request, delete_wire.DeleteGroupsResponse, node=node)
        for result in response.results:
            if result.error_code:
                raise Refusal("", result.error_code)

    client.with_retries(act)
