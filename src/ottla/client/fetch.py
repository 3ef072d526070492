"""Fetch: one partition's raw batches from its leader."""

from typing import Final

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.client.partitions import TopicPartition
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

_LAST_WITH_NAMES: Final = 12
"""Newer versions of Fetch name topics by id only."""
_LAST: Final = 17
"""Version 18 only adds fields of followers."""


def fetch(
    client: ClusterClient,
    key: TopicPartition,
    offset: int,
    *,
    topic_id: Uuid,
    max_bytes: int,
    max_wait_ms: int,
    read_committed: bool,
) -> PartitionData:
    """Fetch from the batch that holds `offset` onwards.

    `topic_id`: the topic is fetched by its id where the broker can; NO_UUID = by its name.
    Raises:     Refusal, but returns OFFSET_OUT_OF_RANGE.
    """
    name, partition = key
    leader = client.leader(key, topic_id=topic_id)
    at_most = _LAST_WITH_NAMES if topic_id == NO_UUID else _LAST
    version = client.version_for(FetchRequest, node=leader.node, at_most=at_most)
    is_named = version <= _LAST_WITH_NAMES
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        topics=(
            FetchTopic(
                topic=name if is_named else "",
                topic_id=NO_UUID if is_named else topic_id,
                partitions=(
                    FetchPartition(
                        partition=partition,
                        current_leader_epoch=leader.epoch,
                        fetch_offset=offset,
                        partition_max_bytes=max_bytes,
                    ),
                ),
            ),
        ),
    )
    response = client.ask(request, FetchResponse, node=leader.node, at_most=at_most)
    subject = f"{name}-{partition}"
    check(subject, response.error_code)
    data = response.responses[0].partitions[0]
    if data.error_code != Error.OFFSET_OUT_OF_RANGE:
        check(subject, data.error_code)
    return data
