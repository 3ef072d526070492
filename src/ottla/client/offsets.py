"""ListOffsets: offsets by timestamp, from the leaders of partitions."""

from collections.abc import Mapping

from ottla.client.cluster import ClusterClient
from ottla.client.partitions import TopicPartition, by_topic
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
"""Special timestamps; in Spark's JSON special offsets."""

_CLIENT = -1
"""The replica id of a client."""


def list_offsets(
    client: ClusterClient,
    timestamps: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
) -> dict[TopicPartition, ListOffsetsPartitionResponse]:
    """Ask each partition's leader for the first offset at a timestamp (ms) or after it.

    The response of each partition may be an error; the offset -1 means that there is none.
    """
    found: dict[TopicPartition, ListOffsetsPartitionResponse] = {}
    for node, led in sorted(client.by_leader(timestamps).items()):
        request = ListOffsetsRequest(
            replica_id=_CLIENT,
            isolation_level=int(read_committed),
            topics=tuple(
                ListOffsetsTopic(
                    name=name,
                    partitions=tuple(
                        ListOffsetsPartition(
                            partition_index=partition,
                            current_leader_epoch=client.leader((name, partition)).epoch,
                            timestamp=timestamps[name, partition],
                        )
                        for partition in partitions
                    ),
                )
                for name, partitions in by_topic(led).items()
            ),
            timeout_ms=client.timeout_ms,
        )
        response = client.ask(request, ListOffsetsResponse, node=node)
        for topic in response.topics:
            for each in topic.partitions:
                found[topic.name, each.partition_index] = each
    return found
