"""OffsetCommit by one that is no member of the group, as tools do it."""

from collections.abc import Mapping
from typing import Final

from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.client.partitions import TopicPartition, by_topic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

_NO_MEMBER: Final = -1
"""The generation of one that is no member."""


def commit(client: ClusterClient, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit a group's offsets as a non-member; refused while the group has members.

    Where a partition is refused, others may have been committed. Raises: ClientError.
    """
    topics = tuple(
        OffsetCommitRequestTopic(
            name=topic,
            partitions=tuple(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offsets[topic, partition],
                    committed_metadata="",
                )
                for partition in ids
            ),
        )
        for topic, ids in by_topic(offsets).items()
    )
    request = OffsetCommitRequest(
        group_id=name, generation_id_or_member_epoch=_NO_MEMBER, topics=topics
    )

    def act() -> None:
        response = client.ask(
            request,
            OffsetCommitResponse,
            node=client.coordinator(name)[0],
            at_most=9,  # From 10 on topics are named by id.
        )
        for topic in response.topics:
            for each in topic.partitions:
                subject = f"group {name}, partition {topic.name}-{each.partition_index}"
                check(subject, each.error_code)

    client.with_retries(act)
