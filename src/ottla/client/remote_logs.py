"""The tiers of partitions, as their leaders know them: DescribeRemoteLog."""

from collections.abc import Iterable

from ottla.client.cluster import ClusterClient
from ottla.client.partitions import TopicPartition, by_topic
from ottla.wire.messages.describe_remote_log import (
    DescribeRemoteLogRequest,
    DescribeRemoteLogResponse,
    DescribeRemoteLogTopic,
)


def describe_remote_logs(
    client: ClusterClient,
    node: int,
    partitions: Iterable[TopicPartition],
    *,
    include_segments: bool = False,
) -> DescribeRemoteLogResponse:
    """Ask the leader of some partitions; errors of partitions are in their rows.

    `include_segments`: counts as a use of the topics. Raises: ClientError.
    """
    topics = tuple(
        DescribeRemoteLogTopic(name=name, partitions=tuple(numbers))
        for name, numbers in by_topic(partitions).items()
    )
    request = DescribeRemoteLogRequest(topics=topics, include_segments=include_segments)
    return client.ask(request, DescribeRemoteLogResponse, node=node)
