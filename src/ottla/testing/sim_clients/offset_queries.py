"""OffsetFetch and ListOffsets requests of clients.

Source: KIP-709 (OffsetFetch of several groups), KIP-848 (topic ids); ListOffsetsRequest.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER, Uuid
from ottla.testing.history.groups import OffsetFetch
from ottla.testing.history.topics import TopicPartition
from ottla.testing.sim_clients.client import Leader, SimClient
from ottla.testing.sim_clients.coordinator import Coordinator
from ottla.testing.sim_clients.dialogue import Dialogue
from ottla.wire.messages import list_offsets as list_wire
from ottla.wire.messages import offset_fetch as fetch_wire

LIST_VERSION = 7
LATEST, EARLIEST = -1, -2
MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -3, -4, -5, -6
SPECIAL_VERSION = 11
"""The first version that has them all."""
CONSUMER = -1
FIRST_VERSION_WITH_TOPIC_IDS = 10


class ListedOffset(NamedTuple):
    """A ListOffsets response of a leader in `epoch`; offset -1 = there is no record so late."""

    offset: int
    timestamp: int
    node: int
    epoch: int
    sent_ms: int
    at_ms: int


def fetch_offsets(
    coordinator: Coordinator, partitions: Iterable[TopicPartition], version: int
) -> Dialogue[dict[TopicPartition, int] | Error]:
    """Fetch committed offsets, -1 = none; partitions with an error are left out.

    A cached leader of an epoch older than the committed one is dropped: its log may end before the
    committed offset.
    """
    client = coordinator.client
    names = {topic_id: name for name, topic_id in client.ids.items()}
    numbers: defaultdict[Uuid, list[int]] = defaultdict(list)
    for topic_id, number in sorted(partitions):
        if topic_id in names:
            numbers[topic_id].append(number)
    topics = tuple(
        fetch_wire.OffsetFetchRequestTopics(
            name=names[topic_id], topic_id=topic_id, partition_indexes=tuple(of_topic)
        )
        for topic_id, of_topic in numbers.items()
    )
    group = fetch_wire.OffsetFetchRequestGroup(group_id=coordinator.group, topics=topics)
    sent_ms = client.now_ms
    answer = yield from coordinator.ask(fetch_wire.OffsetFetchRequest(groups=(group,)), version)
    if isinstance(answer, ApiError):
        return answer.error
    (result,) = answer.groups
    if result.error_code:
        coordinator.note_error(Error(result.error_code))
        return Error(result.error_code)
    by_name = {name: topic_id for topic_id, name in names.items()}
    found: dict[TopicPartition, int] = {}
    for topic in result.topics:
        by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
        topic_id = topic.topic_id if by_id else by_name[topic.name]
        for each in topic.partitions:
            if each.error_code:
                continue
            key = (topic_id, each.partition_index)
            found[key] = each.committed_offset
            client.update_epoch(key, each.committed_leader_epoch)
            client.history.groups.fetches.append(
                OffsetFetch(
                    client=client.name,
                    group=coordinator.group,
                    partition=key,
                    offset=each.committed_offset,
                    token=each.metadata or "",
                    epoch=each.committed_leader_epoch,
                    node=coordinator.answered_by,
                    sent_ms=sent_ms,
                    at_ms=client.now_ms,
                )
            )
    return found


def list_offset(
    client: SimClient, partition: TopicPartition, timestamp: int, version: int = LIST_VERSION
) -> Dialogue[ListedOffset | None]:
    """Query the leader for the offset of a timestamp, or a special one; None = it failed."""
    leader = client.leaders.get(partition, Leader(NO_LEADER, -1))
    name = next((name for name, topic_id in client.ids.items() if topic_id == partition[0]), None)
    if leader.node == NO_LEADER or name is None:
        return None
    requested = list_wire.ListOffsetsPartition(
        partition_index=partition[1], current_leader_epoch=leader.epoch, timestamp=timestamp
    )
    request = list_wire.ListOffsetsRequest(
        replica_id=CONSUMER,
        topics=(list_wire.ListOffsetsTopic(name=name, partitions=(requested,)),),
    )
    sent_ms = client.now_ms
    answer = yield client.send(leader.node, request, version)
    if isinstance(answer, ApiError):
        return None
    result = answer.topics[0].partitions[0]
    if result.error_code:
        return None
    return ListedOffset(
        result.offset, result.timestamp, leader.node, leader.epoch, sent_ms, client.now_ms
    )
