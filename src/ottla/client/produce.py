"""Produce: encoded batches to the broker that leads their partitions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.base.ids import NO_UUID
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, Refusal
from ottla.client.partitions import TopicPartition, by_topic
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_LAST_WITH_NAMES: Final = 12


@dataclass(frozen=True, slots=True)
class Produced:
    """The response for one partition.

    Fields: `refusal`: None = the batch is acknowledged.
            `log_append_ms`: the timestamp that the broker has given to all records; -1 = they keep
            their own (message.timestamp.type=CreateTime).
    """

    refusal: Refusal | None = None
    log_append_ms: int = -1


def produce(
    client: ClusterClient, node: int, batches: Mapping[TopicPartition, bytes], *, acks: int
) -> dict[TopicPartition, Produced]:
    """Send one batch a partition; return each partition's response.

    Raises: ClientError, also for a response that leaves a partition out: its batch may be lost.
    """
    request = ProduceRequest(
        acks=acks,
        timeout_ms=round(client.config.request_s * 1000),
        topic_data=tuple(
            TopicProduceData(
                name=name,
                topic_id=NO_UUID,
                partition_data=tuple(
                    PartitionProduceData(index=each, records=batches[name, each])
                    for each in partitions
                ),
            )
            for name, partitions in by_topic(batches).items()
        ),
    )
    response = client.ask(request, ProduceResponse, node=node, at_most=_LAST_WITH_NAMES)
    results = {
        (topic.name, each.index): Produced(
            Refusal(f"{topic.name}-{each.index}", each.error_code, each.error_message)
            if each.error_code
            else None,
            each.log_append_time_ms,
        )
        for topic in response.responses
        for each in topic.partition_responses
    }
    missing = sorted(batches.keys() - results.keys())
    if missing:
        topic, partition = missing[0]
        raise ClientError(
            f"Produce: broker {node} did not answer for partition {topic}-{partition}"
        )
    return results
