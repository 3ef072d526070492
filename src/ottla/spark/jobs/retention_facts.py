"""What brokers say of topics for a retention report: present settings, log starts, local sizes."""

from collections.abc import Collection
from typing import Final, NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.client.errors import Refusal, check
from ottla.client.partitions import TopicPartition, by_topic
from ottla.spark.jobs.retention_rules import RETENTION_BYTES, RETENTION_MS, UNLIMITED
from ottla.wire.messages import describe_remote_log as wire
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

PARTITIONS_PER_REQUEST: Final = 500
_TOPIC_RESOURCE: Final = 2


class BrokerFacts(NamedTuple):
    """A partition as its leader has it."""

    log_start: int
    local_start: int
    local_bytes: int


def present_retention(client: ClusterClient, names: Collection[str]) -> dict[str, tuple[int, int]]:
    """Return retention.ms and retention.bytes of topics. Raises: ClientError, naming a topic."""
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                resource_type=_TOPIC_RESOURCE,
                resource_name=name,
                configuration_keys=(RETENTION_MS, RETENTION_BYTES),
            )
            for name in sorted(names)
        )
    )
    found = {}
    for result in client.ask(request, DescribeConfigsResponse).results:
        subject = f"the retention of topic {result.resource_name}"
        check(subject, result.error_code, result.error_message)
        values = {each.name: each.value for each in result.configs}
        found[result.resource_name] = (
            int(values.get(RETENTION_MS) or UNLIMITED),
            int(values.get(RETENTION_BYTES) or UNLIMITED),
        )
    return found


def broker_facts(
    client: ClusterClient, keys: Collection[TopicPartition]
) -> dict[TopicPartition, BrokerFacts]:
    """Return what leaders say of partitions; nothing of brokers that have no tiered storage.

    No segments are asked for, so that it is no use of a topic. Raises: ClientError.
    """
    found: dict[TopicPartition, BrokerFacts] = {}
    if not client.serves(wire.DescribeRemoteLogRequest):
        return found
    for node, led in sorted(client.by_leader(keys).items()):
        for begin in range(0, len(led), PARTITIONS_PER_REQUEST):
            some = by_topic(led[begin : begin + PARTITIONS_PER_REQUEST])
            topics = tuple(
                wire.DescribeRemoteLogTopic(name=name, partitions=tuple(partitions))
                for name, partitions in some.items()
            )
            request = wire.DescribeRemoteLogRequest(topics=topics)
            response = client.ask(request, wire.DescribeRemoteLogResponse, node=node)
            check("", response.error_code, response.error_message)
            for topic in response.topics:
                for row in topic.partitions:
                    if row.error_code:
                        subject = f"{topic.name}-{row.partition}"
                        raise Refusal(subject, row.error_code, row.error_message)
                    found[topic.name, row.partition] = BrokerFacts(
                        row.log_start_offset, row.local_start_offset, row.local_bytes
                    )
    return found
